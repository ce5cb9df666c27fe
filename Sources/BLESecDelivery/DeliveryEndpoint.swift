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
        /// The class of messages' frames.
        package var priority = FramePriority.normal
        package var streams = StreamLimits()

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
    package var streams: Streams
    /// Which of streams and messages sends the next frame.
    private var schedule = FrameSchedule()
    /// Whether the last frame of the messages' class was a message's.
    private var wasMessage = false
    /// The order of the two sides' keys, of this link; nil if they are the same.
    private var order: Streams.Order?
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

    /// What the store has not committed yet.
    private var commits: CommitQueue
    /// The highest number of a message that the store was asked to mark as one that may have left.
    private var askedLeft: UInt64

    /// Begins an instance, with an empty state or what a store has.
    package init(
        _ stored: StoredEndpoint = StoredEndpoint(), hasStore: Bool = true,
        limits: Limits = Limits(), using generator: inout some RandomNumberGenerator
    ) {
        var stored = stored
        token = Identifier(using: &generator)
        let isNew = stored.epoch == .none
        if isNew { stored.epoch = Identifier(using: &generator) }
        commits = CommitQueue(
            hasStore: hasStore,
            CommitQueue.Marks(
                epoch: stored.epoch, left: stored.left, confirmed: stored.confirmed))
        commits.append(.token(token))
        if isNew { commits.append(.epoch(stored.epoch, keeping: [])) }
        outgoing = OutgoingMessages(stored)
        incoming = IncomingMessages(stored, window: limits.window, longest: limits.longest)
        streams = Streams(limits.streams)
        own = stored.own + [token, stored.epoch]
        origin = stored.own.isEmpty ? .fresh : .restored
        seen = stored.seen
        peerToken = stored.peerToken
        nextID = stored.nextID
        restoredID = stored.nextID - 1
        askedLeft = stored.left
        hasFinished = stored.hasFinished
        self.limits = limits
    }

    // MARK: - The store

    /// Takes the changes that the store must commit next, as one; nil while there are none, or
    /// while it commits others. ``didCommit()`` follows.
    package mutating func takeChanges() -> [StoreChange]? {
        commits.take(
            CommitQueue.Marks(
                epoch: outgoing.epoch, left: askedLeft, confirmed: incoming.confirmed))
    }

    /// The store has the changes that it was given.
    package mutating func didCommit() { commits.didCommit() }

    /// The next event, once the store has what it rests on.
    package mutating func nextEvent() -> Event? { commits.nextEvent() }
    /// Whether the store has everything.
    package var isCommitted: Bool { commits.isEmpty }

    /// The program's position that may be told to the peer.
    private var committedConfirmed: UInt64 {
        commits.hasStore ? commits.committed.confirmed : incoming.confirmed
    }

    // MARK: - The program

    /// Queues a message, and returns its id. The store commits the program's note with it.
    package mutating func send(_ bytes: [UInt8], noting note: [UInt8]? = nil) -> UInt64 {
        precondition(!hasFinished, "a program that has finished sends nothing")
        if let note { commits.append(.sentNote(note)) }
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
        commits.append(.message(message))
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
        if let note { commits.append(.confirmedNote(note)) }
        if incoming.confirm(through: count) {
            commits.append(.confirmed(incoming.confirmed))
        }
        confirmEnd()
    }

    /// The program has taken the fates of messages up to this id.
    package mutating func tookFates(through id: UInt64) {
        commits.append(.fatesTaken(through: id))
    }

    private mutating func confirmEnd() {
        guard incoming.confirmEnd() else { return }
        commits.append(.confirmed(incoming.confirmed))
        commits.append(.peerFinished)
    }

    /// Whether each side's program has taken everything up to the other's end, as far as this side
    /// can know, and its store has it.
    package var isComplete: Bool { isSettled && isCommitted }
    /// The same, before the store has it.
    package var isSettled: Bool {
        hasFinished && !hasPending && incoming.hasConfirmedEnd && streams.isOver
    }
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

    /// A link to the peer is there, and every older one is dropped. `order` is that of the two
    /// sides' keys; nil if they are the same.
    package mutating func linkBegan(_ order: Streams.Order? = nil) {
        linkEnded()
        self.order = order
        link = .up(sent: false, received: false)
        credit = incoming.linkBegan()
    }

    package mutating func linkEnded() {
        link = .none
        arrived = nil
        owesEpoch = false
        hasTakenEpoch = false
        outgoing.linkEnded()
        streams.linkEnded()
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
    package var mustEndLink: Bool { if case .ending = link { !commits.isBlocked } else { false } }
    /// Whether a record may be passed to ``receive(_:using:)`` now. On a link that is to end,
    /// records are dropped, so that its owner reads on and learns of the end.
    package var wantsRecords: Bool { if case .up = link { !commits.isBlocked } else { true } }

    /// How many messages the program has confirmed and the peer has not been told of on this link;
    /// more than any number if the peer waits for nothing else.
    package var owedConfirmations: UInt64 {
        guard case .up(sent: true, received: true) = link, !commits.isBlocked,
            committedConfirmed > toldConfirmed
        else { return 0 }
        return incoming.hasFinished ? .max : committedConfirmed - toldConfirmed
    }

    /// Whether the peer should get a credit.
    package var owesCredit: Bool {
        guard case .up(sent: true, received: true) = link else { return false }
        return incoming.owesCredit
    }

    /// The next record for the peer, with at most `limit` bytes of data; without a limit, no data.
    /// `confirms` is called with ``owedConfirmations``, and decides whether they leave now: they may
    /// wait, so that one record covers several messages.
    package mutating func nextRecord(
        atMost limit: Int?, confirms: (_ owed: UInt64) -> Bool = { _ in true }
    ) -> DeliveryRecord? {
        guard case .up(let sent, let received) = link, !commits.isBlocked else { return nil }
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
                    credit: credit, streams: streams.summary()))
        }
        guard received else { return nil }
        if owesEpoch {
            owesEpoch = false
            return .epoch(outgoing.epoch)
        }
        if confirms(owedConfirmations), committedConfirmed > toldConfirmed {
            toldConfirmed = committedConfirmed
            return .confirm(epoch: incoming.epoch, toldConfirmed)
        }
        if let credit = incoming.takeCredit() { return .credit(credit) }
        if let record = streams.nextControl() { return .stream(record) }
        guard let limit else { return nil }
        return nextFrame(atMost: limit)
    }

    /// The next frame with data, of a message or a stream.
    private mutating func nextFrame(atMost limit: Int) -> DeliveryRecord? {
        let streamClasses = streams.readyClasses()
        var classes = streamClasses
        let hasMessage = mayMessageLeave()
        if hasMessage { classes.insert(limits.priority) }
        guard let priority = schedule.choose(classes) else { return nil }
        movements += 1
        // Messages take turns with all streams of their class.
        let hasStream = streamClasses.contains(priority)
        if priority == limits.priority {
            wasMessage = hasMessage && !(hasStream && wasMessage)
            if wasMessage { return outgoing.takeRecord(atMost: limit) }
        }
        return streams.nextData(priority, atMost: limit).map { .stream($0) }
    }

    /// Whether a part of a message can leave now. If only its mark in the store is missing, the
    /// store is asked for that.
    private mutating func mayMessageLeave() -> Bool {
        guard let number = outgoing.nextNumber else { return false }
        // An end follows the streams of its side, so that none is opened behind it.
        guard !streams.hasUnopened || !outgoing.isEnd(number) else { return false }
        guard commits.hasStore else { return true }
        if commits.committed.epoch == outgoing.epoch, number <= commits.committed.left {
            return true
        }
        if number > askedLeft {
            askedLeft = outgoing.last
            commits.append(.left(through: askedLeft))
        }
        return false
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
        streams.meetPeer()
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
            commits.append(.seen(seen), blocks: true)
            begin(peerEpoch: epoch, after: 0)
            return false
        case .credit(let credit):
            guard outgoing.allow(credit) else { throw .violation("a credit that is less") }
            return false
        case .stream(let record):
            if case .open = record, incoming.hasEnd {
                throw .violation("a stream that is opened behind the end")
            }
            guard try streams.receive(record) else { return false }
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
            commits.append(.seen(seen), blocks: true)
        }
        guard
            resume.first <= incoming.confirmed + 1 || resume.epoch != incoming.epoch
                || origin == .rolledBack
        else { throw .violation("a first message behind what was confirmed") }
        let knowsEpoch = resume.peerEpoch == outgoing.epoch
        guard !knowsEpoch || outgoing.allows(resume.positions) else {
            throw .violation("positions that do not fit what was sent")
        }
        if !goesOn || !knowsEpoch || resume.positions.confirmed >= outgoing.first - 1 {
            try streams.resumed(
                resume.streams, from: resume.token, token: token,
                order ?? (token < resume.token ? .lower : .higher))
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
            commits.append(.peer(peerToken))
        }
        if peer.epoch != incoming.epoch || peer.first > incoming.confirmed + 1 {
            begin(peerEpoch: peer.epoch, after: peer.first - 1)
        }
    }

    private mutating func retire(through number: UInt64) {
        guard number >= outgoing.first else { return }
        commits.append(.retired(through: number))
        while let message = outgoing.retireFirst(through: number) {
            commits.tell(message.bytes == nil ? .finished : .confirmed(id: message.id))
        }
    }

    private mutating func begin(peerEpoch epoch: Identifier, after confirmed: UInt64) {
        incoming.begin(epoch, after: confirmed)
        toldConfirmed = confirmed
        commits.append(.peerEpoch(epoch, confirmed: confirmed), blocks: true)
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
            commits.append(.token(identifier), blocks: true)
        }
        let (restoredID, resendsUnknown) = (restoredID, limits.resendsUnknown)
        beginEpoch(using: &generator) { id, mayHaveLeft in
            resendsUnknown || id > restoredID && !mayHaveLeft
        }
        token = Identifier(using: &generator)
        add(token)
        commits.append(.token(token), blocks: true)
        commits.append(.rolledBack, blocks: true)
        commits.tell(.storeRolledBack)
        streams.lose()
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
        commits.append(.epoch(epoch, keeping: kept), blocks: true)
        sendEndAgain()
        for id in lost { commits.tell(.unknown(id: id)) }
    }
}
