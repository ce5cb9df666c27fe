/// One side of delivery that outlives a link; `docs/delivery.md` has the rules and their terms.
///
/// The endpoint does no input or output. Its owner passes it the records of one link at a time,
/// sends what ``nextRecord(atMost:)`` returns, and commits what ``takeChanges()`` returns.
package struct DeliveryEndpoint: Sendable {
    /// What the program learns.
    package enum Event: Sendable, Equatable {
        /// The peer's program has taken the message.
        case confirmed(id: UInt64)
        /// The peer's program has taken everything up to this side's end.
        case finished
        /// Whether the peer's program has taken the message cannot be known any more.
        case unknown(id: UInt64)
        /// The store is an older copy of a store that the peer has met.
        case storeRolledBack
    }

    package struct Limits: Sendable {
        /// How many bytes of whole messages wait for the program, roughly.
        package var window = 256 << 10
        /// The longest message of the peer, in bytes.
        package var longest = 16 << 20
        /// Whether a message whose fate is unknown is sent again, and may arrive twice.
        package var resendsUnknown = false

        package init() {}
    }

    /// How this instance began.
    private enum Origin {
        case fresh
        /// With the state of a store.
        case restored
        /// With the state of a store that turned out to be an older copy.
        case rolledBack
    }

    private enum Link {
        case none
        case up(sent: Bool, received: Bool)
        /// This side's state is new since the `resume` that it has sent.
        case ending
        /// The peer was rolled back, learns so from this side's `resume`, and ends the link.
        case waitingForEnd
    }

    private var outgoing: OutgoingMessages
    private var incoming: IncomingMessages
    /// The tokens of this side's instances, and its epochs.
    private var own: [Identifier]
    private var origin: Origin
    private var token: Identifier
    /// What the peer's last `resume` had.
    private var seen: PeerState
    /// The peer's instance that has last seen a `resume` of this side.
    private var peerToken: Identifier
    /// The peer's `resume` on this link, until the peer is known to have this side's.
    private var arrived: Resume?
    private var nextID: UInt64
    /// Messages up to this id came from the store.
    private let restoredID: UInt64
    private let limits: Limits
    /// Whether the program sends nothing more.
    package private(set) var hasFinished: Bool
    private var link = Link.none
    private var owesEpoch = false
    /// Whether the peer has begun an epoch on this link.
    private var hasTakenEpoch = false
    private var toldConfirmed: UInt64 = 0
    private var credit: UInt64 = 0

    // MARK: - The store

    /// What the store has, or will have once it has committed the changes that it was given.
    private struct Marks {
        var epoch: Identifier
        var left: UInt64
        var confirmed: UInt64
    }
    private var changes: [StoreChange] = []
    private var isCommitting = false
    private var committing: Marks
    private var committed: Marks
    /// The highest number of a message that the store was asked to mark as one that may have left.
    private var askedLeft: UInt64
    /// Whether nothing may be sent or taken before the store has the changes that wait, or those
    /// that it was given.
    private var blocks: (waiting: Bool, given: Bool)
    private var news: (waiting: [Event], given: [Event]) = ([], [])
    private var events = Queue<Event>()

    /// Whether changes are committed to a store. Without one, they need nothing.
    private let hasStore: Bool

    /// Begins an instance, with an empty state or what a store has.
    package init(
        _ stored: StoredEndpoint = StoredEndpoint(), hasStore: Bool = true,
        limits: Limits = Limits(), using generator: inout some RandomNumberGenerator
    ) {
        var stored = stored
        self.hasStore = hasStore
        token = Identifier(using: &generator)
        if hasStore { changes.append(.token(token)) }
        if stored.epoch == .none {
            stored.epoch = Identifier(using: &generator)
            if hasStore { changes.append(.epoch(stored.epoch, keeping: [])) }
        }
        outgoing = OutgoingMessages(stored)
        incoming = IncomingMessages(stored, window: limits.window, longest: limits.longest)
        own = stored.own + [token, stored.epoch]
        origin = stored.own.isEmpty ? .fresh : .restored
        seen = stored.seen
        peerToken = stored.peerToken
        nextID = stored.nextID
        restoredID = stored.nextID - 1
        askedLeft = stored.left
        hasFinished = stored.hasFinished
        self.limits = limits
        committed = Marks(
            epoch: stored.epoch, left: stored.left, confirmed: stored.confirmed)
        committing = committed
        blocks = (hasStore, false)
    }

    /// Takes the changes that the store must commit next, as one; nil while there are none, or
    /// while it commits others. ``didCommit()`` follows.
    package mutating func takeChanges() -> [StoreChange]? {
        guard !isCommitting, !changes.isEmpty else { return nil }
        isCommitting = true
        committing = Marks(
            epoch: outgoing.epoch, left: askedLeft, confirmed: incoming.confirmed)
        blocks = (false, blocks.waiting)
        news.given = news.waiting
        news.waiting = []
        defer { changes = [] }
        return changes
    }

    /// The store has the changes that it was given.
    package mutating func didCommit() {
        isCommitting = false
        committed = committing
        blocks.given = false
        for event in news.given { events.append(event) }
        news.given = []
    }

    private mutating func change(_ change: StoreChange, blocks isBlocking: Bool) {
        guard hasStore else { return }
        changes.append(change)
        if isBlocking { blocks.waiting = true }
    }

    private var isBlocked: Bool { blocks.waiting || blocks.given }

    /// Tells the program, once the store has what this rests on.
    private mutating func tell(_ event: Event) {
        if hasStore { news.waiting.append(event) } else { events.append(event) }
    }

    /// The program's position that may be told to the peer.
    private var committedConfirmed: UInt64 {
        hasStore ? committed.confirmed : incoming.confirmed
    }

    /// The next event, once the store has what it rests on.
    package mutating func nextEvent() -> Event? { events.popFirst() }

    // MARK: - The program

    /// Queues a message, and returns its id. The store commits the program's note with it.
    package mutating func send(_ bytes: [UInt8], noting note: [UInt8]? = nil) -> UInt64 {
        precondition(!hasFinished, "a program that has finished sends nothing")
        if let note { change(.sentNote(note), blocks: false) }
        return queue(bytes)
    }

    /// Queues this side's end: the program sends nothing more.
    package mutating func finish() {
        guard !hasFinished else { return }
        hasFinished = true
        _ = queue(nil)
    }

    private mutating func queue(_ bytes: [UInt8]?) -> UInt64 {
        let message = StoredEndpoint.Message(id: nextID, bytes: bytes)
        nextID += 1
        outgoing.append(message)
        change(.message(message), blocks: false)
        return message.id
    }

    /// The next message of the peer; nil as well after the peer's end.
    package mutating func take() -> [UInt8]? {
        defer { confirmEnd() }
        return incoming.take()
    }
    /// Whether the program has taken everything up to the peer's end.
    package var hasPeerFinished: Bool { incoming.hasFinished }
    /// How many messages the program has taken.
    package var takenCount: UInt64 { incoming.takenCount }

    /// The program has dealt with the first `count` messages that it took. The store commits the
    /// program's note with that.
    package mutating func confirm(through count: UInt64, noting note: [UInt8]? = nil) {
        if let note { change(.confirmedNote(note), blocks: false) }
        if incoming.confirm(through: count) {
            change(.confirmed(incoming.confirmed), blocks: false)
        }
        confirmEnd()
    }

    /// The program has taken the fates of messages up to this id.
    package mutating func tookFates(through id: UInt64) {
        change(.fatesTaken(through: id), blocks: false)
    }

    private mutating func confirmEnd() {
        guard incoming.confirmEnd() else { return }
        change(.confirmed(incoming.confirmed), blocks: false)
        change(.peerFinished, blocks: false)
    }

    /// Whether each side's program has taken everything up to the other's end, as far as this side
    /// can know, and its store has it.
    package var isComplete: Bool { isSettled && isCommitted }
    /// The same, before the store has it.
    package var isSettled: Bool { hasFinished && !hasPending && incoming.hasConfirmedEnd }
    /// Whether the store has everything.
    package var isCommitted: Bool { changes.isEmpty && !isCommitting }
    /// Whether the peer has been told so on this link, and nothing is left to be sent.
    package var hasToldAll: Bool { hasToldEnd && isCommitted }
    /// The same, before the store has everything.
    package var hasToldEnd: Bool {
        guard case .up(sent: true, received: true) = link, isSettled else { return false }
        return toldConfirmed == incoming.confirmed && !owesEpoch
    }

    /// Whether messages, or this side's end, wait for their fate.
    package var hasPending: Bool { !outgoing.messages.isEmpty }
    /// How many chunks have been sent, and records been received that show that messages move.
    package private(set) var movements: UInt64 = 0
    /// How many messages wait for their fate, and their bytes.
    package var pending: (count: Int, bytes: Int) { outgoing.pending }
    /// Whether the program has taken a message and not confirmed it.
    package var hasUnconfirmed: Bool { incoming.hasUnconfirmed }
    /// Whether a message waits for the program.
    package var hasMessage: Bool { incoming.hasMessage }
    /// The bytes of the peer's messages that are kept here.
    package var heldBytes: Int { incoming.heldBytes }

    // MARK: - Links

    /// A link to the peer is there, and every older one is dropped.
    package mutating func linkBegan() {
        linkEnded()
        link = .up(sent: false, received: false)
        credit = incoming.linkBegan()
    }

    package mutating func linkEnded() {
        link = .none
        arrived = nil
        owesEpoch = false
        hasTakenEpoch = false
        outgoing.linkEnded()
    }

    /// Whether the peer is behind its own state, and is to end the link.
    package var isWaitingForEnd: Bool { if case .waitingForEnd = link { true } else { false } }
    /// Ends the link, and drops the incomplete message; the peer sends it again.
    package mutating func dropLink() {
        linkEnded()
        dropIncomplete()
    }

    /// How many bytes of an incomplete message are kept.
    package var incompleteBytes: Int { incoming.positions.offset }
    /// Drops the incomplete message. Only before this side's `resume` tells the peer of it.
    package mutating func dropIncomplete() { incoming.dropPartial() }

    /// Whether this side must end the link, since its state is another one than it has told.
    package var mustEndLink: Bool { if case .ending = link { !isBlocked } else { false } }
    /// Whether a record may be passed to ``receive(_:using:)`` now. On a link that is to end,
    /// records are dropped, so that its owner reads on and learns of the end.
    package var wantsRecords: Bool { if case .up = link { !isBlocked } else { true } }

    /// How many messages the program has confirmed and the peer has not been told of on this link;
    /// more than any number if the peer waits for nothing else.
    package var owedConfirmations: UInt64 {
        guard case .up(sent: true, received: true) = link, !isBlocked,
            committedConfirmed > toldConfirmed
        else { return 0 }
        return incoming.hasFinished ? .max : committedConfirmed - toldConfirmed
    }

    /// Whether the peer should get a credit.
    package var owesCredit: Bool {
        guard case .up(sent: true, received: true) = link else { return false }
        return incoming.owesCredit
    }

    /// The next record for the peer, with at most `limit` bytes of a message; without a limit, no
    /// part of a message. A confirmation may wait, so that it covers several messages, if
    /// `confirms` is false.
    package mutating func nextRecord(
        atMost limit: Int?, confirms: Bool = true
    ) -> DeliveryRecord? {
        guard case .up(let sent, let received) = link, !isBlocked else { return nil }
        guard sent else {
            link = .up(sent: true, received: received)
            // Nothing blocks, so what is committed belongs to the peer's epoch.
            var positions = incoming.positions
            positions.confirmed = committedConfirmed
            toldConfirmed = committedConfirmed
            return .resume(
                Resume(
                    token: token, peerToken: peerToken, epoch: outgoing.epoch,
                    first: outgoing.first, peerEpoch: incoming.epoch, positions: positions,
                    credit: credit))
        }
        guard received else { return nil }
        if owesEpoch {
            owesEpoch = false
            return .epoch(outgoing.epoch)
        }
        if confirms, committedConfirmed > toldConfirmed {
            toldConfirmed = committedConfirmed
            return .confirm(epoch: incoming.epoch, toldConfirmed)
        }
        if let credit = incoming.takeCredit() { return .credit(credit) }
        guard let limit, let number = outgoing.nextNumber else { return nil }
        guard !hasStore || committed.epoch == outgoing.epoch && number <= committed.left else {
            if number > askedLeft {
                askedLeft = outgoing.last
                change(.left(through: askedLeft), blocks: false)
            }
            return nil
        }
        movements += 1
        return outgoing.takeRecord(atMost: limit)
    }

    /// Takes a record of the link. A thrown error ends the link. Returns whether the record shows
    /// that messages of either side move.
    @discardableResult
    package mutating func receive(
        _ record: DeliveryRecord, using generator: inout some RandomNumberGenerator
    ) throws(DeliveryError) -> Bool {
        guard case .up(let sent, let received) = link else { return false }
        if case .resume(let resume) = record {
            guard !received else { throw .violation("a second resume") }
            link = .up(sent: sent, received: true)
            return try resumed(resume, using: &generator)
        }
        guard received else { throw .violation("a record before resume") }
        meetPeer()
        switch record {
        case .resume: return false
        case .chunk(let chunk): try incoming.append(chunk)
        case .finish(let number):
            try incoming.finish(at: number)
            confirmEnd()
        case .confirm(let epoch, let number):
            // It may have crossed this side's `epoch`.
            guard epoch == outgoing.epoch else { return false }
            guard number >= outgoing.first, number <= outgoing.sent else {
                throw .violation("a confirmation of what was not sent, or was confirmed before")
            }
            retire(through: number)
        case .epoch(let epoch):
            guard !hasTakenEpoch, epoch != .none, epoch != incoming.epoch,
                !incoming.pastEpochs.contains(epoch)
            else { throw .violation("an epoch that is not new, or a second one on a link") }
            hasTakenEpoch = true
            seen.epoch = epoch
            change(.seen(seen), blocks: true)
            begin(peerEpoch: epoch, after: 0)
            return false
        case .credit(let credit):
            guard outgoing.allow(credit) else { throw .violation("a credit that is less") }
            return false
        }
        movements += 1
        return true
    }

    // MARK: - Resume

    private mutating func resumed(
        _ resume: Resume, using generator: inout some RandomNumberGenerator
    ) throws(DeliveryError) -> Bool {
        guard resume.token != .none, resume.epoch != .none,
            (1...Resume.greatestNumber).contains(resume.first)
        else { throw .violation("a resume without a token, an epoch or a number") }
        if origin == .restored, showsRollback(resume) {
            beginAnew(resume, using: &generator)
            return false
        }
        let isSameInstance = resume.token == seen.token
        guard !incoming.pastEpochs.contains(resume.epoch) else {
            link = .waitingForEnd
            return false
        }
        arrived = resume
        // A peer with another token and another epoch has lost its state. That it shows this side's
        // epoch proves nothing: it may have learned it on this link or on one that was cut.
        let goesOn = isSameInstance || resume.epoch == seen.epoch
        if resume.token != seen.token || resume.epoch != seen.epoch {
            seen = PeerState(token: resume.token, epoch: resume.epoch)
            change(.seen(seen), blocks: true)
        }
        guard
            resume.first <= incoming.confirmed + 1 || resume.epoch != incoming.epoch
                || origin == .rolledBack
        else { throw .violation("a first message behind what was confirmed") }
        let knowsEpoch = resume.peerEpoch == outgoing.epoch
        guard !knowsEpoch || outgoing.allows(resume.positions) else {
            throw .violation("positions that do not fit what was sent")
        }
        if goesOn, knowsEpoch {
            guard resume.positions.confirmed >= outgoing.first - 1 else {
                guard resume.token != peerToken else {
                    throw .violation("a confirmation that was undone")
                }
                link = .waitingForEnd
                return false
            }
            retire(through: resume.positions.confirmed)
            return outgoing.resume(at: resume.positions, credit: resume.credit)
        } else {
            var isLost = false
            let wasUndone = knowsEpoch && resume.positions.confirmed < outgoing.first - 1
            if !goesOn, outgoing.hasSentAny || wasUndone {
                loseEpoch(using: &generator)
                isLost = true
            }
            if !goesOn { sendEndAgain() }
            // A peer that knows the epoch may have a part of the first message.
            let hasPart = knowsEpoch && !isLost && resume.positions.held == outgoing.first - 1
            _ = outgoing.resume(
                at: Positions(
                    held: outgoing.first - 1, offset: hasPart ? resume.positions.offset : 0),
                credit: resume.credit)
            return false
        }
    }

    /// Takes over the peer's token and epoch, at the first record after its `resume`. Such a record
    /// proves that the peer has this side's `resume`, which shows the token and the epoch that this
    /// side knew before. So a peer that was rolled back has learned of it.
    private mutating func meetPeer() {
        guard let peer = arrived.take() else { return }
        if peer.token != peerToken {
            peerToken = peer.token
            change(.peer(peerToken), blocks: false)
        }
        if peer.epoch != incoming.epoch || peer.first > incoming.confirmed + 1 {
            begin(peerEpoch: peer.epoch, after: peer.first - 1)
        }
    }

    private mutating func retire(through number: UInt64) {
        guard number >= outgoing.first else { return }
        change(.retired(through: number), blocks: false)
        while let message = outgoing.retireFirst(through: number) {
            tell(message.bytes == nil ? .finished : .confirmed(id: message.id))
        }
    }

    private mutating func begin(peerEpoch epoch: Identifier, after confirmed: UInt64) {
        incoming.begin(epoch, after: confirmed)
        toldConfirmed = confirmed
        change(.peerEpoch(epoch, confirmed: confirmed), blocks: true)
    }

    /// The peer's state is lost.
    private mutating func loseEpoch(using generator: inout some RandomNumberGenerator) {
        let resendsUnknown = limits.resendsUnknown
        beginEpoch(using: &generator) { _, mayHaveLeft in !mayHaveLeft || resendsUnknown }
        // A `resume` that is still to be sent has the new epoch.
        if case .up(sent: true, _) = link { owesEpoch = true }
    }

    /// Whether the peer has met a later state of this side than the one that the store had.
    private func showsRollback(_ resume: Resume) -> Bool {
        for identifier in [resume.peerToken, resume.peerEpoch]
        where identifier != .none && !own.contains(identifier) { return true }
        if resume.peerEpoch == outgoing.epoch, !outgoing.allows(resume.positions) { return true }
        if resume.epoch == incoming.epoch { return resume.first > incoming.confirmed + 1 }
        return resume.first > 1 && !incoming.pastEpochs.contains(resume.epoch)
    }

    /// This side's store is an older copy.
    private mutating func beginAnew(
        _ resume: Resume, using generator: inout some RandomNumberGenerator
    ) {
        origin = .rolledBack
        for identifier in [resume.peerToken, resume.peerEpoch]
        where identifier != .none && !own.contains(identifier) {
            add(identifier)
            change(.token(identifier), blocks: true)
        }
        let (restoredID, resendsUnknown) = (restoredID, limits.resendsUnknown)
        beginEpoch(using: &generator) { id, mayHaveLeft in
            resendsUnknown || id > restoredID && !mayHaveLeft
        }
        token = Identifier(using: &generator)
        add(token)
        change(.token(token), blocks: true)
        tell(.storeRolledBack)
        link = .ending
    }

    /// A peer whose state was lost must learn that this side has finished.
    private mutating func sendEndAgain() {
        if hasFinished, !outgoing.hasEnd { _ = queue(nil) }
    }

    private mutating func add(_ identifier: Identifier) {
        own.append(identifier)
        if own.count > StoredEndpoint.mostOwn { own.removeFirst() }
    }

    private mutating func beginEpoch(
        using generator: inout some RandomNumberGenerator,
        keeping stays: (_ id: UInt64, _ mayHaveLeft: Bool) -> Bool
    ) {
        let epoch = Identifier(using: &generator)
        add(epoch)
        let (lost, kept) = outgoing.begin(epoch, keeping: stays)
        askedLeft = 0
        change(.epoch(epoch, keeping: kept), blocks: true)
        sendEndAgain()
        for id in lost { tell(.unknown(id: id)) }
    }
}
