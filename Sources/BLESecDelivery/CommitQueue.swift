/// What an endpoint has changed and its store has not committed yet, and what waits for that
/// (`docs/delivery.md`, "Commit points"). Without a store, nothing waits.
struct CommitQueue: Sendable {
    /// What the store has, or will have once it has committed the changes that it was given.
    struct Marks: Sendable {
        var epoch: Identifier
        /// The highest number of a message that may have left.
        var left: UInt64
        /// The number up to which the program has confirmed the peer's messages.
        var confirmed: UInt64
    }

    /// What is added before the store takes changes, and what belongs to those that it was given.
    private struct Part: Sendable {
        var events: [DeliveryEndpoint.Event] = []
        /// Whether nothing may be sent or taken before the store has this part.
        var blocks = false
    }

    let hasStore: Bool
    private var changes: [StoreChange] = []
    private var isCommitting = false
    private var waiting = Part()
    private var given = Part()
    private var givenMarks: Marks
    private(set) var committed: Marks
    private var events = Queue<DeliveryEndpoint.Event>()

    init(hasStore: Bool, _ stored: Marks) {
        self.hasStore = hasStore
        committed = stored
        givenMarks = stored
        waiting.blocks = hasStore
    }

    mutating func append(_ change: StoreChange, blocks isBlocking: Bool = false) {
        guard hasStore else { return }
        changes.append(change)
        if isBlocking { waiting.blocks = true }
    }

    /// Tells the program, once the store has what this rests on.
    mutating func tell(_ event: DeliveryEndpoint.Event) {
        if hasStore { waiting.events.append(event) } else { events.append(event) }
    }

    /// The next event, once the store has what it rests on.
    mutating func nextEvent() -> DeliveryEndpoint.Event? { events.popFirst() }

    /// Whether nothing may be sent or taken before the store has more.
    var isBlocked: Bool { waiting.blocks || given.blocks }
    /// Whether the store has everything.
    var isEmpty: Bool { changes.isEmpty && !isCommitting }

    /// The changes that the store must commit next, as one; nil while there are none, or while it
    /// commits others. `marks` is what it then has.
    mutating func take(_ marks: Marks) -> [StoreChange]? {
        guard !isCommitting, !changes.isEmpty else { return nil }
        isCommitting = true
        givenMarks = marks
        given = waiting
        waiting = Part()
        defer { changes = [] }
        return changes
    }

    /// The store has the changes that it was given.
    mutating func didCommit() {
        isCommitting = false
        committed = givenMarks
        for event in given.events { events.append(event) }
        given = Part()
    }
}
