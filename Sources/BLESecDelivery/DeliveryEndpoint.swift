/// One side of a delivery that outlives links. `docs/delivery.md` has the rules and the terms, such
/// as *instance*, *token*, *epoch* and *fate*.
///
/// The endpoint does no input or output. Its owner passes it the records of one link at a time,
/// sends what ``nextRecord(atMost:)`` returns, and commits what ``takeChanges()`` returns.
package final class DeliveryEndpoint {
    /// What is reported to the program.
    package enum Event: Sendable, Equatable {
        /// The peer's program has confirmed the message.
        case confirmed(id: UInt64)
        /// The peer's program has confirmed everything up to this side's end.
        case finished
        /// It cannot be known any more whether the peer's program has taken the message.
        case unknown(id: UInt64)
        /// The store has turned out to be an older copy: the peer has met a later state of the
        /// store.
        case storeRolledBack
    }

    package struct Limits: Sendable {
        /// How many bytes of whole messages may wait for the program, approximately. More than 2^40
        /// counts as 2^40, here and in `longestMessage`.
        package var window = 1 << 20
        /// The longest message of the peer, in bytes.
        package var longestMessage = 16 << 20
        /// Whether a message whose fate is unknown is sent again, and may arrive twice.
        package var resendsUnknown = false
        /// The class of the frames that carry messages.
        package var priority = FramePriority.normal
        package var streams = StreamLimits()

        package init() {}
    }

    /// How this instance began.
    private enum Origin {
        /// With an empty state.
        case fresh
        /// With the state of a store.
        case restored
        /// With the state of a store that turned out to be an older copy.
        case rolledBack
    }

    private enum Link {
        case none
        /// The link is in use. This side's `resume` was sent if `sent`, and the peer's was received
        /// if `received`.
        case up(sent: Bool, received: Bool)
        /// This side was rolled back, and has begun anew. It has to end the link, because the
        /// `resume` that it sent on this link may have shown the old state.
        case ending
        /// The peer was rolled back, and has to end the link. The peer learns this from this side's
        /// `resume`, which was sent if `sent`.
        case waitingForLinkEnd(sent: Bool)
    }

    // To save time, exclusive access to the most used properties is checked in debug builds only.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    private var outgoing: OutgoingMessages
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    private var incoming: IncomingMessages
    package let streams: Streams
    /// Decides which class sends the next frame.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    private var schedule = FrameSchedule()
    /// Whether the last frame of the messages' class carried a message, and not a stream's data.
    private var lastWasMessage = false
    /// How this side's key compares with the peer's on this link; nil if a side has no key.
    private var order: Streams.Order?
    private var own: OwnIdentifiers
    private var origin: Origin
    /// What the peer last said of itself: the token in its last `resume`, and the epoch in its last
    /// `resume` or `epoch`. This side may not have taken them over yet.
    private var seenPeer: PeerState
    /// The token of the last peer instance that is known to have received a `resume` of this side.
    private var peerToken: Identifier
    /// The peer's `resume` on this link; nil before it arrives, and once the peer is known to have
    /// received this side's `resume`.
    private var arrivedResume: Resume? {
        didSet { awaitsProofOfResume = arrivedResume != nil }
    }
    /// Whether ``arrivedResume`` is set. If so, the peer's next record shows that this side's
    /// `resume` has arrived. A separate property, because a comparison with nil makes a copy.
    private var awaitsProofOfResume = false
    /// Whether the last record that was sent was a frame of a message or a stream.
    private var lastSentWasFrame = false
    /// Whether the last record that was received was a part of a message, and has changed nothing
    /// else.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    package private(set) var lastWasOnlyMessage = false
    /// The id of the program's next message.
    private var nextID: UInt64
    /// Messages up to this id came from the store.
    private let restoredID: UInt64
    private let limits: Limits
    /// Whether the program sends nothing more.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    package private(set) var hasFinished: Bool
    private var link = Link.none
    /// Whether the peer's messages have ever failed to continue what the peer had sent before, in
    /// this instance or in an earlier instance of the store.
    private var wasInterrupted: Bool
    /// Whether programs may have taken messages of the peer before this instance.
    private let hasTakenBefore: Bool
    /// Whether an `epoch` record has to be sent.
    private var owesEpoch = false
    /// Whether the peer has sent an `epoch` on this link.
    private var hasPeerBegunEpoch = false
    /// The position *confirmed* that the peer was told last.
    private var toldConfirmed: UInt64 = 0
    /// The first credit that this side gives the peer on this link.
    private var firstCredit: UInt64 = 0

    /// What the store has not committed yet.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    private var commits: CommitQueue
    /// The highest number of a message that the store was asked to mark as possibly sent
    /// (``StoreChange/mayHaveLeft(through:)``).
    private var requestedMark: UInt64

    /// Begins an instance. `stored` is empty, or the state in a store.
    package init(
        _ stored: StoredEndpoint = StoredEndpoint(), hasStore: Bool = true,
        limits: Limits = Limits(), using generator: inout some RandomNumberGenerator
    ) {
        var stored = stored
        let isNew = stored.epoch == .none
        if isNew { stored.epoch = Identifier(using: &generator) }
        own = OwnIdentifiers(
            isNew ? stored.own + [stored.epoch] : stored.own,
            token: Identifier(sharingStoreOf: stored.epoch, using: &generator))
        commits = CommitQueue(
            hasStore: hasStore,
            CommitQueue.StoreState(
                epoch: stored.epoch, lastThatMayHaveLeft: stored.lastThatMayHaveLeft,
                confirmed: stored.confirmed))
        if isNew { commits.append(.epoch(stored.epoch, keeping: []), blocks: true) }
        outgoing = OutgoingMessages(stored)
        incoming = IncomingMessages(
            stored, window: limits.window, longestMessage: limits.longestMessage)
        streams = Streams(limits.streams)
        origin = stored.own.isEmpty ? .fresh : .restored
        seenPeer = stored.seen
        peerToken = stored.peerToken
        nextID = stored.nextID
        restoredID = stored.nextID - 1
        hasTakenBefore = stored.confirmed > 0 || !stored.pastEpochs.isEmpty
        wasInterrupted = stored.wasInterrupted
        requestedMark = stored.lastThatMayHaveLeft
        hasFinished = stored.hasFinished
        self.limits = limits
    }

    // MARK: - The store

    /// Takes the changes that the store must commit next, in one transaction; nil while there are
    /// none, or while the store commits others. ``didCommit()`` must follow.
    package func takeChanges() -> [StoreChange]? {
        commits.beginCommit(
            CommitQueue.StoreState(
                epoch: outgoing.epoch, lastThatMayHaveLeft: requestedMark,
                confirmed: incoming.confirmed))
    }

    /// The store has committed the changes that ``takeChanges()`` returned.
    package func didCommit() { commits.didCommit() }

    /// Whether ``nextEvent()`` returns an event, or ``takeChanges()`` returns changes.
    package var hasUpdates: Bool { commits.hasUpdates }
    /// The next event; nil while there is no event whose changes are committed.
    package func nextEvent() -> Event? { commits.nextEvent() }
    /// Whether the store has committed everything.
    package var isCommitted: Bool { commits.isEmpty }

    /// The position *confirmed* that the peer may be told.
    private var committedConfirmed: UInt64 {
        commits.hasStore ? commits.committedState.confirmed : incoming.confirmed
    }

    // MARK: - The program

    /// Queues a message, and returns its id. The store commits the program's note together with the
    /// message.
    package func send(_ bytes: [UInt8], noting note: [UInt8]? = nil) -> UInt64 {
        precondition(!hasFinished, "a program that has finished sends nothing")
        if let note { commits.append(.sentNote(note)) }
        return queue(bytes)
    }

    /// Queues this side's end: the program sends nothing more.
    package func finish() {
        guard !hasFinished else { return }
        hasFinished = true
        _ = queue(nil)
    }

    /// Queues a message or, if `bytes` is nil, this side's end. Returns its id.
    private func queue(_ bytes: [UInt8]?) -> UInt64 {
        let message = StoredEndpoint.Message(id: nextID, bytes: bytes)
        nextID += 1
        outgoing.append(message)
        commits.append(.message(message))
        return message.id
    }

    /// The next message of the peer; nil while there is none, and after the peer's end.
    package func take() -> [UInt8]? {
        defer { confirmEnd() }
        return incoming.take()
    }
    /// Does what ``take()`` does, and confirms the message. All messages before it must have been
    /// confirmed.
    package func takeConfirmed() -> [UInt8]? {
        defer { confirmEnd() }
        let (bytes, hasMoved) = incoming.takeConfirmed()
        if hasMoved { commits.append(.confirmed(through: incoming.confirmed)) }
        return bytes
    }
    /// Whether the program has taken everything up to the peer's end.
    package var hasReachedPeerEnd: Bool { incoming.hasReachedEnd }
    /// How many messages the program has taken.
    package var takenCount: UInt64 { incoming.takenCount }

    /// Confirms the first `count` messages that the program took: the program has dealt with them.
    /// The store commits the program's note together with the confirmation.
    package func confirm(through count: UInt64, noting note: [UInt8]? = nil) {
        if let note { commits.append(.confirmedNote(note)) }
        if incoming.confirm(through: count) {
            commits.append(.confirmed(through: incoming.confirmed))
        }
        confirmEnd()
    }

    /// Marks the fates of messages up to this id as taken by the program.
    package func tookFates(through id: UInt64) {
        commits.append(.fatesTaken(through: id))
    }

    /// Confirms the peer's end, if the program has confirmed everything before it.
    private func confirmEnd() {
        guard incoming.confirmEnd() else { return }
        commits.append(.confirmed(through: incoming.confirmed))
        commits.append(.peerEndConfirmed)
    }

    /// Whether this side is complete, and its store has committed that. A side is complete when no
    /// stream is open, the peer has confirmed this side's end, and this side has confirmed the
    /// peer's end.
    package var isComplete: Bool { isSettled && isCommitted }
    /// Like ``isComplete``, but without waiting for the store.
    package var isSettled: Bool {
        hasFinished && !hasPending && hasConfirmedPeersEnd && streams.isOver
    }
    /// Whether the peer's end is confirmed in the epoch in which the peer sends now. The peer's
    /// `resume` shows that epoch, but ``incoming`` has that epoch only from the peer's next
    /// record on.
    private var hasConfirmedPeersEnd: Bool {
        incoming.hasConfirmedEnd && arrivedResume.map { $0.epoch == incoming.epoch } ?? true
    }
    /// Whether this side is complete and has told the peer so on this link.
    package var hasToldPeerOfCompletion: Bool { hasToldPeerOfSettling && isCommitted }
    /// Like ``hasToldPeerOfCompletion``, but without waiting for the store.
    package var hasToldPeerOfSettling: Bool {
        guard case .up(sent: true, received: true) = link, isSettled else { return false }
        return toldConfirmed == incoming.confirmed && !owesEpoch
    }

    /// Whether messages, or this side's end, wait for their fate.
    package var hasPending: Bool { !outgoing.messages.isEmpty }
    /// The number of received records that show progress of messages or streams.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    private var receivedProgress: UInt64 = 0
    /// A number that grows whenever messages or streams make progress: something is sent for the
    /// first time to the peer's present instance, or since that has dropped a part; a record of the peer shows progress, or this side's
    /// program takes or confirms a message, or reads from a stream.
    package var progressCount: UInt64 {
        let linkProgress = outgoing.progressCount + streams.sentCount + receivedProgress
        return linkProgress + takenCount + incoming.confirmedCount + streams.readCount
    }
    /// How many messages wait for their fate, and how many bytes these messages have.
    package var pending: (count: Int, bytes: Int) { outgoing.pending }
    /// Whether the program has taken a message and not confirmed it.
    package var hasUnconfirmed: Bool { incoming.hasUnconfirmed }
    /// Whether the messages that this side's programs take may have a gap or a repetition, because
    /// the peer has begun another epoch in the middle, perhaps after the loss of an earlier state
    /// of this side. As long as programs have taken nothing, there is no gap.
    package var mayMissMessages: Bool { wasInterrupted && (hasTakenBefore || takenCount > 0) }
    /// Whether a message waits for the program.
    package var hasMessage: Bool { incoming.hasMessage }
    /// The bytes of the peer's messages that are kept here.
    package var heldBytes: Int { incoming.heldBytes }

    // MARK: - Links

    /// Begins a link to the peer, and drops the older link. `order` says how this side's key
    /// compares with the peer's; it is nil if a side has no key.
    package func linkBegan(_ order: Streams.Order? = nil) {
        linkEnded()
        self.order = order
        link = .up(sent: false, received: false)
        firstCredit = incoming.linkBegan()
    }

    package func linkEnded() {
        link = .none
        arrivedResume = nil
        owesEpoch = false
        hasPeerBegunEpoch = false
        outgoing.linkEnded()
        streams.linkEnded()
    }

    /// Whether the peer was rolled back, and has to end the link.
    package var isWaitingForLinkEnd: Bool {
        if case .waitingForLinkEnd = link { true } else { false }
    }
    /// Ends the link, and drops the incomplete message; the peer sends it again.
    package func dropLink() {
        linkEnded()
        dropIncomplete()
    }

    /// How many bytes of an incomplete message are kept.
    package var incompleteBytes: Int { incoming.positions.offset }
    /// Drops the incomplete message. Must not be called between this side's `resume` and the end of
    /// the link, since the `resume` tells the peer how much of the message is here.
    package func dropIncomplete() { incoming.dropPartial() }

    /// Whether this side must end the link now, since it was rolled back and has begun anew.
    package var mustEndLink: Bool { if case .ending = link { !commits.isBlocked } else { false } }
    /// Whether a record may be passed to ``receive(_:using:)`` now. On a link that has to end,
    /// records are accepted and dropped, so that the link's owner reads on and learns of the end.
    package var wantsRecords: Bool { if case .up = link { !commits.isBlocked } else { true } }

    /// How many messages the program has confirmed and the peer was not told of on this link. If
    /// there are any and the program has taken the peer's end, the value is `UInt64.max`, since the
    /// last confirmations must not wait.
    package var owedConfirmations: UInt64 {
        guard case .up(sent: true, received: true) = link, !commits.isBlocked,
            committedConfirmed > toldConfirmed
        else { return 0 }
        return incoming.hasReachedEnd ? .max : committedConfirmed - toldConfirmed
    }

    /// Whether the peer should get a credit.
    package var owesCredit: Bool {
        guard case .up(sent: true, received: true) = link else { return false }
        return incoming.owesCredit
    }

    /// The next record for the peer, with at most `limit` bytes of data; if `limit` is nil, the
    /// record has no data. If `onlyWhole` is true, data longer than `limit` is not begun.
    /// `confirms` is called with ``owedConfirmations``, and returns whether these confirmations
    /// leave now. They may wait, so that one record covers several messages.
    package func nextRecord(
        atMost limit: Int?, onlyWhole: Bool = false,
        confirms: (_ owed: UInt64) -> Bool = { _ in true }
    ) -> DeliveryRecord? {
        lastSentWasFrame = false
        guard !commits.isBlocked else { return nil }
        switch link {
        case .up(sent: false, let received):
            link = .up(sent: true, received: received)
            return .resume(resume())
        case .waitingForLinkEnd(sent: false):
            link = .waitingForLinkEnd(sent: true)
            return .resume(resume())
        case .up(sent: true, received: true): break
        case .none, .up, .ending, .waitingForLinkEnd: return nil
        }
        if owesEpoch {
            owesEpoch = false
            return .epoch(outgoing.epoch)
        }
        let owed = owedConfirmations
        let isDue = confirms(owed)
        // If a credit is owed too, the confirmations do not wait but leave right before the credit,
        // so that the peer can release what it keeps.
        if owed > 0, isDue || incoming.owesCredit {
            toldConfirmed = committedConfirmed
            return .confirm(epoch: incoming.epoch, through: toldConfirmed)
        }
        if let credit = incoming.takeCredit() { return .credit(credit) }
        if let record = streams.nextControl() { return .stream(record) }
        guard let limit else { return nil }
        return nextFrame(atMost: limit, onlyWhole)
    }

    /// This side's `resume`.
    private func resume() -> Resume {
        // The committed position belongs to the peer's present epoch: while a new epoch is not
        // committed, no record leaves.
        var positions = incoming.positions
        positions.confirmed = committedConfirmed
        toldConfirmed = committedConfirmed
        return Resume(
            token: own.token, peerToken: peerToken, epoch: outgoing.epoch, first: outgoing.first,
            peerEpoch: incoming.epoch, positions: positions, credit: firstCredit,
            streams: streams.summary())
    }

    /// The next frame with data, of a message or a stream.
    private func nextFrame(atMost limit: Int, _ onlyWhole: Bool) -> DeliveryRecord? {
        let streamPriorities = streams.readyPriorities()
        var priorities = streamPriorities
        let hasMessage = mayMessageLeave()
        if hasMessage { priorities.insert(limits.priority) }
        var schedule = schedule
        guard let priority = schedule.choose(priorities) else { return nil }
        // Messages take every second frame of their class; the streams share the others.
        let isStreamsTurn = lastWasMessage && streamPriorities.contains(priority)
        let isMessage = priority == limits.priority && hasMessage && !isStreamsTurn
        if onlyWhole {
            let length = isMessage ? outgoing.nextLength : streams.nextLength(priority)
            guard length <= limit else { return nil }
        }
        self.schedule = schedule
        lastSentWasFrame = true
        if priority == limits.priority { lastWasMessage = isMessage }
        if isMessage { return outgoing.takeRecord(atMost: limit) }
        return streams.nextData(priority, atMost: limit).map { .stream($0) }
    }

    /// Whether another record may follow the last one that was sent. Frames leave after all other
    /// records, so only a frame can follow a frame.
    package var mayHaveMore: Bool {
        !lastSentWasFrame || outgoing.nextNumber != nil || !streams.isOver
    }

    /// Whether streams are open.
    package var hasStreams: Bool { !streams.isOver }
    /// Whether the link's owner has to act: a stream has changed for the program, the peer was told
    /// that this side is complete, or the link has to end.
    package var hasNews: Bool { hasToldPeerOfCompletion || mustEndLink || streams.hasNews }
    /// Whether the peer has begun a message on this link that has not arrived whole.
    package var isMidMessage: Bool { incoming.isMidMessage }

    /// Whether the last record that was received may be a reason to send a record now.
    package var mayHaveAnswer: Bool { !lastWasOnlyMessage || owesCredit }

    /// Whether a part of a message can leave now. The store first has to mark the message as
    /// possibly sent. If only this mark is missing, asks the store for the mark.
    private func mayMessageLeave() -> Bool {
        guard let number = outgoing.nextNumber else { return false }
        // This side's end is sent after all its `open` records, so that none follows the end.
        guard !streams.hasUnopened || !outgoing.isEnd(number) else { return false }
        guard commits.hasStore else { return true }
        let stored = commits.committedState
        if stored.epoch == outgoing.epoch, number <= stored.lastThatMayHaveLeft { return true }
        if number > requestedMark {
            requestedMark = outgoing.last
            commits.append(.mayHaveLeft(through: requestedMark))
        }
        return false
    }

    /// Handles a record that has arrived on the link. A thrown error ends the link. Returns whether
    /// the record shows that messages or streams make progress.
    @discardableResult
    package func receive(
        _ record: DeliveryRecord, using generator: inout some RandomNumberGenerator
    ) throws(DeliveryError) -> Bool {
        lastWasOnlyMessage = false
        guard case .up(let sent, let received) = link else { return false }
        if case .resume(let resume) = record {
            guard !received else { throw .violation("a second resume") }
            link = .up(sent: sent, received: true)
            let showsProgress = try receiveResume(resume, using: &generator)
            if showsProgress { receivedProgress += 1 }
            return showsProgress
        }
        guard received else { throw .violation("a record before resume") }
        let isProofOfResume = awaitsProofOfResume
        takeOverPeerState()
        streams.markOwnResumeAsReceived()
        switch record {
        case .resume: return false
        case .chunk(let chunk):
            let isNew = try incoming.append(chunk)
            lastWasOnlyMessage = !isProofOfResume
            guard isNew else { return false }
        case .finish(let number):
            let isFirst = try incoming.finish(at: number)
            confirmEnd()
            guard isFirst else { return false }
        case .confirm(let epoch, let number):
            // A confirmation in an older epoch was sent before this side's `epoch` arrived.
            guard epoch == outgoing.epoch else { return false }
            guard number >= outgoing.first, number <= outgoing.sent else {
                throw .violation("a confirmation of what was not sent, or was confirmed before")
            }
            retire(through: number)
        case .epoch(let epoch):
            guard !hasPeerBegunEpoch, epoch != .none, epoch != incoming.epoch,
                !incoming.pastEpochs.contains(epoch)
            else { throw .violation("an epoch that is not new, or a second one on a link") }
            hasPeerBegunEpoch = true
            seenPeer.epoch = epoch
            commits.append(.seen(seenPeer), blocks: true)
            begin(peerEpoch: epoch, confirmed: 0)
            markInterrupted()
            return false
        case .credit(let credit):
            guard outgoing.raiseCredit(to: credit) else {
                throw .violation("a credit that is less than an earlier one")
            }
            return false
        case .stream(let record):
            if case .open = record { try incoming.refuseAfterEnd("a new stream") }
            guard try streams.receive(record) else { return false }
        }
        receivedProgress += 1
        return true
    }

    // MARK: - Resume

    private func receiveResume(
        _ resume: Resume, using generator: inout some RandomNumberGenerator
    ) throws(DeliveryError) -> Bool {
        guard resume.token != .none, resume.epoch != .none,
            (1...Resume.greatestNumber).contains(resume.first)
        else { throw .violation("a resume without a token, an epoch or a number") }
        let evidence = rollbackEvidence(resume)
        let wasRolledBack =
            switch origin {
            case .fresh: commits.hasStore && evidence.showsCopyInUse
            case .restored: evidence.showsOlderCopy
            case .rolledBack: false
            }
        if wasRolledBack {
            beginAnew(resume, evidence, using: &generator)
            return false
        }
        let isSameInstance = resume.token == seenPeer.token
        if evidence.hasMetPeer {
            // An instance begins another epoch only if a state was lost.
            if isSameInstance, resume.epoch != seenPeer.epoch { markInterrupted() }
        } else if resume.first == 1, !evidence.foreignIdentifiers.isEmpty {
            // The peer has met an earlier state of this side, and may have begun this epoch because
            // that state was lost. But if `first` is above 1, that state has confirmed messages of
            // this epoch, so the epoch is older than the loss.
            markInterrupted()
        }
        makeTokenOwn(resume)
        guard !incoming.pastEpochs.contains(resume.epoch) else {
            waitForLinkEnd()
            return false
        }
        arrivedResume = resume
        // Normally the peer's epoch is taken over only at the next record, since this side's
        // `resume` has to show the earlier epoch until then. Here there is no earlier epoch. And if
        // the store did not have the epoch, this side would take the gap for a rollback after a
        // restart.
        if incoming.epoch == .none, resume.first > 1 {
            begin(peerEpoch: resume.epoch, confirmed: resume.first - 1)
        }
        // If the peer's token and epoch both differ from those seen last, the peer has lost its
        // state, even if its `resume` names this side's epoch: the peer's new instance may have
        // learned that epoch from an earlier `resume` of this side.
        let peerStateContinues = isSameInstance || resume.epoch == seenPeer.epoch
        if !isSameInstance { outgoing.peerBeganInstance() }
        if resume.token != seenPeer.token || resume.epoch != seenPeer.epoch {
            seenPeer = PeerState(token: resume.token, epoch: resume.epoch)
            commits.append(.seen(seenPeer), blocks: true)
        }
        let leavesGap = resume.epoch == incoming.epoch && resume.first > incoming.confirmed + 1
        guard !leavesGap || origin == .rolledBack else {
            throw .violation("a first message that leaves a gap after what was confirmed")
        }
        let peerKnowsEpoch = resume.peerEpoch == outgoing.epoch
        guard !peerKnowsEpoch || outgoing.peerCanHaveReached(resume.positions) else {
            throw .violation("positions that do not fit what was sent")
        }
        let undoesConfirmation = peerKnowsEpoch && resume.positions.confirmed < outgoing.first - 1
        // If the peer was rolled back, its fields for streams have no effect.
        let peerWasRolledBack = peerStateContinues && undoesConfirmation
        var showsProgress = false
        if !peerWasRolledBack {
            showsProgress = try streams.receiveResume(
                resume.streams, from: resume.token, token: own.token,
                order ?? (own.token < resume.token ? .lower : .higher))
        }
        if peerStateContinues, peerKnowsEpoch {
            guard !peerWasRolledBack else {
                // Only a new instance can have been rolled back.
                guard resume.token != peerToken else {
                    throw .violation("a confirmation that was undone")
                }
                waitForLinkEnd()
                return false
            }
            if resume.positions.confirmed >= outgoing.first { showsProgress = true }
            retire(through: resume.positions.confirmed)
            if outgoing.resume(at: resume.positions, credit: resume.credit) { showsProgress = true }
        } else {
            var hasBegunEpoch = false
            if !peerStateContinues, outgoing.hasMessageThatMayHaveLeft || undoesConfirmation {
                beginEpochAfterPeerLoss(using: &generator)
                hasBegunEpoch = true
            }
            if !peerStateContinues { sendEndAgain() }
            // A peer that knows the epoch may have a part of the first message.
            let hasPart =
                peerKnowsEpoch && !hasBegunEpoch && resume.positions.held == outgoing.first - 1
            _ = outgoing.resume(
                at: Positions(
                    held: outgoing.first - 1, offset: hasPart ? resume.positions.offset : 0),
                credit: resume.credit)
        }
        return showsProgress
    }

    /// Waits until the peer, which was rolled back, ends the link.
    private func waitForLinkEnd() {
        guard case .up(let sent, _) = link else { return }
        link = .waitingForLinkEnd(sent: sent)
    }

    /// Replaces the peer's known token and epoch at the first record after the peer's `resume`.
    /// This record proves that the peer has received this side's `resume`, which shows the earlier
    /// token and epoch. From these, a peer that was rolled back learns of its rollback.
    private func takeOverPeerState() {
        guard awaitsProofOfResume, let peer = arrivedResume.take() else { return }
        // If a peer lost its state before it had sent a whole message, no program misses anything.
        let hadWholeMessage = incoming.held > 0
        if peer.token != peerToken {
            peerToken = peer.token
            commits.append(.peer(peerToken), blocks: true)
        }
        if peer.epoch != incoming.epoch || peer.first > incoming.confirmed + 1 {
            begin(peerEpoch: peer.epoch, confirmed: peer.first - 1)
            if hadWholeMessage { markInterrupted() }
        }
    }

    /// Records that the peer's messages do not continue what the peer had sent before. Does nothing
    /// after the peer's end, since no message follows the end.
    private func markInterrupted() {
        guard !incoming.hasReceivedEnd, !wasInterrupted else { return }
        wasInterrupted = true
        commits.append(.interrupted)
    }

    private func retire(through number: UInt64) {
        guard number >= outgoing.first else { return }
        commits.append(.retired(through: number))
        while let message = outgoing.retireFirst(through: number) {
            commits.report(message.bytes == nil ? .finished : .confirmed(id: message.id))
        }
    }

    private func begin(peerEpoch epoch: Identifier, confirmed: UInt64) {
        incoming.begin(epoch, confirmed: confirmed)
        toldConfirmed = confirmed
        commits.append(.peerEpoch(epoch, confirmed: confirmed), blocks: true)
    }

    /// Begins a new epoch, because the peer's state is lost.
    private func beginEpochAfterPeerLoss(using generator: inout some RandomNumberGenerator) {
        beginEpoch(nextIdentifier(using: &generator)) { _, mayHaveLeft in mayHaveLeft }
        // If this side's `resume` has not been sent yet, it will show the new epoch.
        if case .up(sent: true, _) = link { owesEpoch = true }
    }

    private func rollbackEvidence(_ resume: Resume) -> RollbackEvidence {
        RollbackEvidence(
            resume: resume, own: own, epoch: outgoing.epoch,
            canHaveSent: outgoing.peerCanHaveReached(resume.positions), seenPeer: seenPeer,
            peerEpoch: incoming.epoch, confirmed: incoming.confirmed,
            pastEpochs: incoming.pastEpochs)
    }

    /// Begins anew, because this side's store is an older copy: a new epoch, a new token, and the
    /// end of the link.
    private func beginAnew(
        _ resume: Resume, _ evidence: RollbackEvidence,
        using generator: inout some RandomNumberGenerator
    ) {
        origin = .rolledBack
        let foreign = evidence.foreignIdentifiers
        // A foreign identifier may belong to another store, which is in use even if this side counts
        // it as lost. Then this side's new identifiers get a new first half, which sets them apart
        // from those of both stores.
        let keepsStore = foreign.allSatisfy { $0.sharesStore(with: outgoing.epoch) }
        foreign.forEach(makeNewest)
        // Every message from the store may have left after the copy was made. If this instance has
        // had a link, the copy may have been made during this instance: then each of this
        // instance's messages may have left, too.
        let mayBeCopied = own.includesToken
        beginEpoch(
            keepsStore ? nextIdentifier(using: &generator) : Identifier(using: &generator)
        ) { id, mayHaveLeft in mayBeCopied || id <= restoredID || mayHaveLeft }
        own.replaceToken(nextIdentifier(using: &generator))
        commits.append(.newestIdentifier(own.token), blocks: true)
        commits.append(.rolledBack, blocks: true)
        // The peer no longer keeps the messages that this side's later state has confirmed, so this
        // side skips them. Otherwise this side would find the same rollback again after a restart.
        if evidence.leavesGap { begin(peerEpoch: resume.epoch, confirmed: resume.first - 1) }
        commits.report(.storeRolledBack)
        streams.lose()
        link = .ending
    }

    /// If this side's end was confirmed, queues the end again: after a loss of state, the peer may
    /// not know that this side has finished.
    private func sendEndAgain() {
        if hasFinished, !outgoing.hasUnconfirmedEnd { _ = queue(nil) }
    }

    /// Makes this instance's token one of this side's own: once the peer's `resume` has arrived,
    /// the peer may take the token over, and name it on later links. The peer may also go on naming
    /// what its `resume` names, so these identifiers and the present epoch become the newest again.
    /// This includes identifiers of a store of this side that was lost.
    private func makeTokenOwn(_ resume: Resume) {
        guard commits.hasStore, !own.includesToken else { return }
        for identifier in [resume.peerToken, resume.peerEpoch, outgoing.epoch]
        where identifier != .none { makeNewest(identifier) }
        makeNewest(own.token)
    }

    /// Makes an identifier the newest of this side's own.
    private func makeNewest(_ identifier: Identifier) {
        own.makeNewest(identifier)
        commits.append(.newestIdentifier(identifier), blocks: true)
    }

    /// A new identifier of this side's store.
    private func nextIdentifier(using generator: inout some RandomNumberGenerator) -> Identifier {
        Identifier(sharingStoreOf: outgoing.epoch, using: &generator)
    }

    /// Begins an epoch. The messages for which `mayHaveArrived` returns true become unknown, or are
    /// sent again.
    private func beginEpoch(
        _ epoch: Identifier, _ mayHaveArrived: (_ id: UInt64, _ mayHaveLeft: Bool) -> Bool
    ) {
        own.makeNewest(epoch)
        let (lost, kept) = outgoing.begin(
            epoch, keepsAll: limits.resendsUnknown, mayHaveArrived)
        commits.append(.epoch(epoch, keeping: kept), blocks: true)
        requestedMark = outgoing.sent
        if requestedMark > 0 { commits.append(.mayHaveLeft(through: requestedMark)) }
        // The peer goes on naming the token, however many epochs begin.
        if own.includesToken { makeNewest(own.token) }
        sendEndAgain()
        for id in lost { commits.report(.unknown(id: id)) }
    }
}
