/// The changes of an endpoint that its store has not committed yet, and the events that wait for
/// the commit (`docs/delivery.md`, "Commit points"). Without a store, nothing waits.
struct CommitQueue: Sendable {
    /// The parts of the store's state that decide which records may be sent.
    struct StoreState: Sendable {
        var epoch: Identifier
        /// The highest number of a message that is marked as possibly sent.
        var lastThatMayHaveLeft: UInt64
        /// The number up to which the program has confirmed the peer's messages.
        var confirmed: UInt64
    }

    /// What depends on one commit.
    private struct Batch: Sendable {
        /// The events that are reported after the commit.
        var events: [DeliveryEndpoint.Event] = []
        /// If true, no record may be sent or received before the commit.
        var blocks = false
    }

    let hasStore: Bool
    private var changes: [StoreChange] = []
    private var isCommitting = false
    /// What depends on the next commit.
    private var nextBatch = Batch()
    /// What depends on the commit that is under way.
    private var committingBatch = Batch()
    /// What the store has when the commit that is under way is done.
    private var committingState: StoreState
    /// What the store has now.
    private(set) var committedState: StoreState
    /// The events that depend on no commit any more.
    private var events = Queue<DeliveryEndpoint.Event>()

    init(hasStore: Bool, _ stored: StoreState) {
        self.hasStore = hasStore
        committedState = stored
        committingState = stored
    }

    /// Adds a change to those that the store must commit next. If `isBlocking` is true, no record may
    /// be sent or received before that commit. Without a store, `change` is not evaluated.
    ///
    /// Of successive changes ``StoreChange/confirmed(through:)``, only the last is kept. Otherwise
    /// their number would grow with each message that a program confirms during a slow commit. If
    /// each confirmation has a note, the changes are not successive, and their number does grow.
    mutating func append(_ change: @autoclosure () -> StoreChange, blocks isBlocking: Bool = false)
    {
        guard hasStore else { return }
        let change = change()
        if case .confirmed = change, case .confirmed = changes.last { changes.removeLast() }
        changes.append(change)
        if isBlocking { nextBatch.blocks = true }
    }

    /// Reports the event to the program once the store has committed all changes so far.
    mutating func report(_ event: DeliveryEndpoint.Event) {
        if hasStore { nextBatch.events.append(event) } else { events.append(event) }
    }

    /// Whether ``nextEvent()`` returns an event, or ``beginCommit(_:)`` returns changes.
    var hasUpdates: Bool { !events.isEmpty || (!changes.isEmpty && !isCommitting) }
    /// The next event; nil while there is no event whose changes are committed.
    mutating func nextEvent() -> DeliveryEndpoint.Event? { events.popFirst() }

    /// Whether a blocking change is not committed yet, so that no record may be sent or received.
    var isBlocked: Bool { nextBatch.blocks || committingBatch.blocks }
    /// Whether the store has committed everything.
    var isEmpty: Bool { changes.isEmpty && !isCommitting }

    /// The changes that the store must commit next, in one transaction; nil while there are none,
    /// or while the store commits others. `state` is what the store has after the commit.
    mutating func beginCommit(_ state: StoreState) -> [StoreChange]? {
        guard !isCommitting, !changes.isEmpty else { return nil }
        isCommitting = true
        committingState = state
        committingBatch = nextBatch
        nextBatch = Batch()
        defer { changes = [] }
        return changes
    }

    /// The store has committed the changes that ``beginCommit(_:)`` returned.
    mutating func didCommit() {
        isCommitting = false
        committedState = committingState
        for event in committingBatch.events { events.append(event) }
        committingBatch = Batch()
    }
}
