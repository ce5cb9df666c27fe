internal import BLESecChannelCore
internal import BLESecDelivery
internal import BLESecLinks
internal import BLESecLocking

/// The messages and streams of a connection that delivers exactly once. The lane outlives the
/// connection's channels, which use it from their loops.
final class MessageLane: Sendable {
    fileprivate struct State {
        let endpoint: DeliveryEndpoint
        var generator = SystemRandomNumberGenerator()
        /// The number of the newest link. Calls from channels of older links change nothing.
        var linkNumber: UInt64 = 0
        var fates: Fates
        /// The error after which the store commits nothing more.
        var failure: ChannelError?
        /// Whether the store has committed something since the last ``takeNews()``.
        var hasCommitted = false
        /// Whether the store has turned out to be an older copy, perhaps in an earlier process.
        var wasRolledBack: Bool
        /// The newest link's part of the process's memory budget, for the incomplete message.
        var part: ReassemblyBudget.Part?
        /// How many bytes of the incomplete message count towards `part`.
        var countedBytes = 0
        /// Whether the link was ended because the process needs memory.
        var isRevoked = false
        /// Whether the program may take messages: false after ``stopTaking()``.
        var isTaking = true
        /// Whether the store is closed or about to be. The program then takes and confirms nothing
        /// more: the store could not commit that, so messages would arrive again after a restart.
        var isReleased = false
        /// The calls that wait until the store is closed.
        var closeWaiters: [CheckedContinuation<Void, Never>] = []
        /// The last known ``DeliveryEndpoint/progressCount``, and the time by the connection's loop
        /// when it last changed; nil before ``measureProgress(from:)``.
        var progress: (count: UInt64, time: MonotonicTime)?
        /// Whether a message has got its fate, or the peer has confirmed this side's end, since the
        /// last ``takeNews()``.
        var hasNewFate = false
        /// Whether the connection was told of news and has not called ``takeNews()`` yet.
        var isNewsPending = false
        /// The number of the last link for which the connection was told that the peer must end the
        /// link.
        var linkReportedAsWaiting: UInt64?
        /// Whether the channel in use was told of a message, and has not asked for a record since.
        var isChannelToldOfMessage = false
        /// Whether the channel in use was told that confirmations or a credit are owed, and has not
        /// asked for a record since.
        var isChannelToldOfDebt = false
        var newsHandler: NewsHandler?
    }

    /// Tells the connection that something has changed. The handler is an object, because copying a
    /// closure out of the lock would allocate memory.
    final class NewsHandler: Sendable {
        /// The connection's loop.
        fileprivate let loop: EventLoop
        /// What the connection's tasks wait on.
        fileprivate let waiting: LoopCondition
        /// Called on any thread.
        fileprivate let onNews: @Sendable () -> Void

        init(
            loop: EventLoop, waiting: LoopCondition, onNews: @escaping @Sendable () -> Void
        ) {
            self.loop = loop
            self.waiting = waiting
            self.onNews = onNews
        }

        /// A message has arrived, and nothing else has changed. Called on the loop's thread.
        fileprivate func messageArrived() {
            waiting.wake(.message)
            // A call that is closing the connection must notice this progress.
            waiting.wake(.change)
        }
    }

    /// What has changed, as ``takeNews()`` returns it.
    struct News {
        /// Whether a message has got its fate, or the peer has confirmed this side's end.
        var hasFate: Bool
        /// All messages up to this number have a fate.
        var decided: UInt64
        /// Whether a stream is over, so that another one may be opened.
        var isStreamOver: Bool
        /// The streams for which something has changed.
        var streams: [Streams.Handle]
        /// Whether the peer has opened a stream that the program has not accepted.
        var hasIncomingStream: Bool
        /// Whether the program has taken everything up to the peer's end.
        var hasReachedPeerEnd: Bool
        /// Whether the peer has shown a state that is older than the state that it showed before. The
        /// peer must then end the link.
        var isWaitingForLinkEnd: Bool
        /// The error after which the store commits nothing more.
        var failure: ChannelError?
        /// Whether the store has committed something.
        var hasCommitted: Bool
        /// Whether the link was ended because the process needs memory.
        var isRevoked: Bool
        /// Whether this side must end the link, because its store has turned out to be an older
        /// copy, and this side has begun a new epoch.
        var mustEndLink: Bool
        /// Whether ``MessageLane/isSettled`` is true, the store has committed everything, and the
        /// peer has been told so on this link.
        var hasToldPeerOfCompletion: Bool
    }

    private let state: Locked<State>
    private let options: PeerConnection.DeliveryOptions
    private let store: (any EndpointStore)?
    /// The program's notes that were in the store when it was opened.
    let notes: StoredEndpoint.Notes

    /// Makes a lane; `stored` is what the store had when it was opened, and empty without a store.
    init(
        _ options: PeerConnection.DeliveryOptions, _ stored: StoredEndpoint = StoredEndpoint()
    ) {
        self.options = options
        store = options.store?.endpoint
        notes = stored.notes
        var limits = DeliveryEndpoint.Limits()
        limits.window = options.readAhead
        limits.longestMessage = options.maximumMessageLength
        limits.resendsUnknown = options.resendsUnknown
        limits.priority = options.priority.frames
        limits.streams = options.streams.limits
        var generator = SystemRandomNumberGenerator()
        state = Locked(
            State(
                endpoint: DeliveryEndpoint(
                    stored, hasStore: store != nil, limits: limits, using: &generator),
                fates: stored.fates, wasRolledBack: stored.wasRolledBack))
        // Has the store commit what the new endpoint has changed, such as its first epoch.
        change { _ in }
    }

    /// Changes the state, and has the store commit the resulting changes of the endpoint.
    private func change<Result, Failure: Error>(
        _ body: (inout State) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        var changes: [StoreChange]?
        defer { if let changes { commit(changes) } }
        return try state.withLock { state throws(Failure) in
            defer {
                state.noteProgress()
                if state.endpoint.hasUpdates {
                    state.recordFates()
                    changes = state.endpoint.takeChanges()
                }
            }
            return try body(&state)
        }
    }

    private func readEndpoint<Result>(_ body: (DeliveryEndpoint) -> Result) -> Result {
        state.withLock { body($0.endpoint) }
    }

    /// Calls the handler from now on when something has changed. What has changed before is not
    /// reported: call ``takeNews()`` next.
    func setNewsHandler(_ handler: NewsHandler) { state.withLock { $0.newsHandler = handler } }

    private func reportNews() {
        let handler = state.withLock { $0.newsHandler }
        handler?.onNews()
    }

    // MARK: - The store

    /// Starts a thread in which the store commits these changes, and then the changes that have come
    /// meanwhile.
    private func commit(_ changes: [StoreChange]) {
        let isStarted = BlockingWork.start { [self] in
            var next: [StoreChange]? = changes
            while let changes = next {
                do throws(StoreFailure) {
                    try store?.commit(changes)
                } catch {
                    return fail(ChannelError(.store, error.reason))
                }
                next = state.withLock { state in
                    state.didCommit()
                    state.hasCommitted = true
                    return state.endpoint.takeChanges()
                }
                reportNews()
            }
            closeIfCommitted()
        }
        if !isStarted {
            fail(ChannelError(.store, "the store cannot commit: there are too many threads"))
        }
    }

    /// Closes the store, so that others can open it. Everything that the program has taken is
    /// committed first; messages and fates that it has not taken stay in the store.
    func closeStore() async {
        guard store != nil else { return }
        release()
        await withCheckedContinuation { waiter in
            let mustWait = state.withLock { state in
                state.closeWaiters.append(waiter)
                return !state.hasNothingToCommit
            }
            // A thread that commits closes the store as its last step. Without such a thread, a new
            // thread closes the store; if no thread can be made, this thread does.
            if !mustWait, !BlockingWork.start({ [self] in closeIfCommitted() }) {
                closeIfCommitted()
            }
        }
    }

    /// Closes the store, if that was asked for and nothing is left to commit. May block.
    private func closeIfCommitted() {
        let waiters = takeCloseWaiters()
        guard !waiters.isEmpty else { return }
        store?.close()
        for waiter in waiters { waiter.resume() }
    }

    private func takeCloseWaiters() -> [CheckedContinuation<Void, Never>] {
        state.withLock { state in
            guard state.hasNothingToCommit else { return [] }
            defer { state.closeWaiters = [] }
            return state.closeWaiters
        }
    }

    /// From now on, the program takes and confirms nothing more. Has no effect without a store.
    func release() {
        guard store != nil else { return }
        state.withLock { $0.isReleased = true }
    }

    private func fail(_ error: ChannelError) {
        state.withLock { $0.failure = $0.failure ?? error }
        reportNews()
        closeIfCommitted()
    }

    // MARK: - The program

    /// Queues a message, and returns its number; nil if there is no room for it now.
    /// `mustTellChannel` is true if the channel has to be told of the message.
    func send(
        _ message: [UInt8], noting note: [UInt8]?
    ) throws(ChannelError) -> (number: UInt64, mustTellChannel: Bool)? {
        guard message.count <= options.maximumMessageLength, message.count <= options.maximumBytes
        else {
            throw ChannelError(
                .limitExceeded,
                "a message of \(message.count) bytes is longer than the "
                    + "\(min(options.maximumMessageLength, options.maximumBytes)) bytes allowed")
        }
        return change { state in
            guard hasRoom(for: message.count, state.endpoint.pending) else { return nil }
            let number = state.endpoint.send(message, noting: note)
            let wasTold = exchange(&state.isChannelToldOfMessage, with: state.linkNumber > 0)
            return (number, !wasTold)
        }
    }

    var whenFull: PeerConnection.WhenFull { options.whenFull }
    /// The key of this side that the store belongs to.
    var ownKey: Fingerprint? { options.store?.own }
    func hasRoom(for length: Int) -> Bool { readEndpoint { hasRoom(for: length, $0.pending) } }

    private func hasRoom(for length: Int, _ pending: (count: Int, bytes: Int)) -> Bool {
        pending.count == 0
            || pending.count < options.maximumMessages
                && pending.bytes + length <= options.maximumBytes
    }

    func finish() { change { $0.endpoint.finish() } }

    /// The result of ``take()``.
    enum Taken {
        /// The peer's next message. If `mustTellChannel` is true, the channel has to send a record
        /// or set a timer because the message was taken. If `isLast` is true, no further message
        /// follows: the peer's end has arrived.
        case message([UInt8], mustTellChannel: Bool, isLast: Bool)
        /// The program has taken everything up to the peer's end.
        case end
        case nothing
    }

    /// Takes the peer's next message, which counts as confirmed unless acknowledgement is manual.
    func take() -> Taken {
        change { state in
            let isConfirmed = options.acknowledgement == .automatic
            guard state.isTaking, !state.isReleased,
                let message = isConfirmed
                    ? state.endpoint.takeConfirmed() : state.endpoint.take()
            else { return state.endpoint.hasReachedPeerEnd ? .end : .nothing }
            let isLast = state.endpoint.hasReachedPeerEnd
            // The first owed confirmation makes the channel set a timer. Later, the channel is told
            // only when it must send a record at once.
            let owed = state.endpoint.owedConfirmations
            guard owed == 1 || owed >= Record.messagesPerAck || state.endpoint.owesCredit else {
                return .message(message, mustTellChannel: false, isLast: isLast)
            }
            let wasTold = exchange(&state.isChannelToldOfDebt, with: state.linkNumber > 0)
            return .message(message, mustTellChannel: !wasTold, isLast: isLast)
        }
    }

    /// Confirms messages; throws the store's error, or `closed`, if the store can no longer commit
    /// the confirmation.
    func confirm(through number: UInt64, noting note: [UInt8]?) throws(ChannelError) {
        try change { state throws(ChannelError) in
            guard !state.isReleased else {
                throw state.failure
                    ?? ChannelError(.closed, "the store is closed, and commits nothing more")
            }
            state.endpoint.confirm(through: number, noting: note)
        }
    }

    /// From now on, the program takes no more messages.
    func stopTaking() { state.withLock { $0.isTaking = false } }
    /// Whether the program has taken a message and not confirmed it.
    var hasUnconfirmed: Bool { readEndpoint { $0.hasUnconfirmed } }

    /// Whether the program has said, perhaps in an earlier process, that it sends nothing more.
    var hasFinished: Bool { readEndpoint { $0.hasFinished } }
    /// Whether the store has turned out to be an older copy, perhaps in an earlier process.
    var wasRolledBack: Bool { state.withLock { $0.wasRolledBack } }
    /// Whether messages may be missing or repeated between those that the program takes.
    var mayMissMessages: Bool { readEndpoint { $0.mayMissMessages } }

    var takenCount: UInt64 { readEndpoint { $0.takenCount } }
    /// Whether ``take()`` would return a message or the end.
    var canTake: Bool {
        state.withLock { state in
            state.isTaking && !state.isReleased && state.endpoint.hasMessage
                || state.endpoint.hasReachedPeerEnd
        }
    }
    /// Whether the program has taken everything up to the peer's end.
    var hasReachedPeerEnd: Bool { readEndpoint { $0.hasReachedPeerEnd } }
    /// Whether each program has taken everything up to the other side's end, and every stream is
    /// over; the store may not have committed that yet.
    var isSettled: Bool { readEndpoint { $0.isSettled } }
    /// Whether ``isSettled`` is true, and the peer has been told so on this link; the store may not
    /// have committed that yet.
    var hasToldPeerOfSettling: Bool { readEndpoint { $0.hasToldPeerOfSettling } }
    /// Whether the store has committed everything.
    var isCommitted: Bool { readEndpoint { $0.isCommitted } }
    /// The error after which the store commits nothing more.
    var failure: ChannelError? { state.withLock { $0.failure } }
    /// Notes the time of each progress from now on. `now` is the time by the connection's loop.
    func measureProgress(from now: MonotonicTime) {
        state.withLock { state in
            if state.progress == nil { state.progress = (state.endpoint.progressCount, now) }
        }
    }
    /// When messages or streams last made progress, or else when ``measureProgress(from:)`` was first
    /// called; nil before that.
    var lastProgressTime: MonotonicTime? { state.withLock { $0.progress?.time } }
    /// How many messages have no fate yet.
    var pendingCount: Int { readEndpoint { $0.pending.count } }

    /// Whether this side has finished, and a message or this side's end still waits for its fate.
    var isEndPending: Bool { readEndpoint { $0.hasFinished && $0.hasPending } }

    /// The fate of a message; nil while it is undecided.
    func fate(of number: UInt64) -> Delivery? {
        state.withLock { $0.fates.fate(id: number) }.map(Delivery.init)
    }

    /// Takes the next fate that the program has not taken, in the order of the messages.
    /// After ``release()``, the fate stays in the store.
    func takeFate() -> (number: UInt64, fate: Delivery)? {
        change { state in
            guard let (id, fate) = state.fates.take() else { return nil }
            if !state.isReleased { state.endpoint.tookFates(through: id) }
            return (id, Delivery(fate))
        }
    }

    var unknownCount: Int { state.withLock { $0.fates.unknownCount } }
    var droppedCount: Int { state.withLock { $0.fates.droppedCount } }
    var hasFate: Bool { state.withLock { $0.fates.hasNext } }

    /// Returns what has changed since the last call. After this call, the connection is told of the
    /// next change.
    func takeNews() -> News {
        state.withLock { state in
            state.isNewsPending = false
            defer {
                (state.hasCommitted, state.hasNewFate, state.isRevoked) = (false, false, false)
            }
            return News(
                hasFate: state.hasNewFate, decided: state.fates.decided,
                isStreamOver: state.endpoint.streams.hasForgotten,
                streams: state.endpoint.streams.takeTouched(),
                hasIncomingStream: state.endpoint.streams.hasArrived,
                hasReachedPeerEnd: state.endpoint.hasReachedPeerEnd,
                isWaitingForLinkEnd: state.endpoint.isWaitingForLinkEnd,
                failure: state.failure, hasCommitted: state.hasCommitted,
                isRevoked: state.isRevoked,
                mustEndLink: state.endpoint.mustEndLink,
                hasToldPeerOfCompletion: state.endpoint.hasToldPeerOfCompletion)
        }
    }

    /// Changes or reads the connection's streams.
    func changeStreams<Result>(_ body: (Streams) -> Result) -> Result {
        change { body($0.endpoint.streams) }
    }

    // MARK: - Links

    /// Begins to use a new link, and drops the older link. The budget keeps the lane alive until
    /// ``end()``: a weak reference would make each reference to the lane slower.
    func beginLink(
        to peer: PeerIdentity, _ order: Streams.Order? = nil, budget: ReassemblyBudget = .shared
    ) -> Port {
        let (linkNumber, keptBytes, handler) = change { state in
            state.linkNumber += 1
            state.part = nil
            (state.isChannelToldOfMessage, state.isChannelToldOfDebt) = (false, false)
            state.isRevoked = false
            state.endpoint.linkBegan(order)
            return (state.linkNumber, state.endpoint.incompleteBytes, state.newsHandler)
        }
        let part = budget.part(for: peer) { [self] in revoke(linkNumber) }
        let hasMemory =
            keptBytes == 0
            || part.take(keptBytes, maximumMessageLength: options.maximumMessageLength)
        state.withLock { state in
            guard state.linkNumber == linkNumber else { return }
            state.part = part
            state.countedBytes = hasMemory ? keptBytes : 0
            if !hasMemory { state.endpoint.dropIncomplete() }
        }
        return Port(lane: self, linkNumber: linkNumber, newsHandler: handler)
    }

    /// Ends the use of links, because the connection is gone: from now on, ports change nothing, and the
    /// budget does not keep the lane alive.
    func end() {
        state.withLock { state in
            state.linkNumber += 1
            state.part = nil
        }
    }

    /// Ends the link, because the process needs the memory of the incomplete message. The peer
    /// sends the message again on the next link.
    private func revoke(_ linkNumber: UInt64) {
        drop(linkNumber)
        reportNews()
    }

    /// If the link with this number is still the newest link, ends its use: later calls of its port
    /// change nothing.
    private func drop(_ linkNumber: UInt64) {
        change { state in
            guard state.linkNumber == linkNumber else { return }
            state.linkNumber += 1
            state.part = nil
            state.endpoint.dropLink()
            state.isRevoked = true
        }
    }

    /// The lane's interface for one link's channel. Once a newer link has begun, calls of the port
    /// change nothing in the lane.
    final class Port: DeliveryPort, Sendable {
        private let lane: MessageLane
        private let linkNumber: UInt64
        /// The lane's handler when the link began.
        private let newsHandler: NewsHandler?

        fileprivate init(lane: MessageLane, linkNumber: UInt64, newsHandler: NewsHandler?) {
            self.lane = lane
            self.linkNumber = linkNumber
            self.newsHandler = newsHandler
        }

        /// Counts the bytes of an incomplete message. Called without the lane's lock, because the
        /// budget may revoke another lane's part, for which it takes that lane's lock.
        private func count(_ chunk: Chunk) throws(DeliveryError) {
            let longest = lane.options.maximumMessageLength
            // After its last chunk, a message is complete, and no part of it is counted. A chunk
            // that is too long is not counted either: the endpoint refuses it later.
            guard !chunk.isLast, chunk.offset <= longest, chunk.count <= longest else { return }
            let end = chunk.offset + chunk.count
            let (part, more) = lane.state.withLock { state -> (ReassemblyBudget.Part?, Int) in
                // A chunk that does not continue the message is not counted: it is refused later.
                guard state.linkNumber == linkNumber,
                    chunk.offset == state.endpoint.incompleteBytes
                else { return (nil, 0) }
                defer { state.countedBytes = max(state.countedBytes, end) }
                return (state.part, end - state.countedBytes)
            }
            guard let part, more > 0 else { return }
            if !part.take(more, maximumMessageLength: longest) {
                // The channel ends with this error. The bytes that the lane holds are dropped,
                // because they are not counted any more.
                lane.drop(linkNumber)
                throw .noMemory
            }
        }

        var wantsRecords: Bool {
            // The records of an older link are taken, and change nothing.
            lane.state.withLock { $0.linkNumber == linkNumber ? $0.endpoint.wantsRecords : true }
        }

        func nextRecord(
            atMost limit: Int?, onlyWhole: Bool, _ outlook: inout PortOutlook,
            confirms: (_ owed: UInt64) -> Bool
        ) -> DeliveryRecord? {
            var isNews = false
            let record = lane.change { state -> DeliveryRecord? in
                guard state.linkNumber == linkNumber else { return nil }
                (state.isChannelToldOfMessage, state.isChannelToldOfDebt) = (false, false)
                let record = state.endpoint.nextRecord(
                    atMost: limit, onlyWhole: onlyWhole, confirms: confirms)
                outlook.hasStreams = state.endpoint.hasStreams
                outlook.mayHaveMore = state.endpoint.mayHaveMore
                isNews = state.mustReportLink()
                return record
            }
            if isNews { lane.reportNews() }
            return record
        }

        func receive(_ record: DeliveryRecord) throws(DeliveryError) -> ReceivedRecord {
            let received = try lane.change { state throws(DeliveryError) -> ReceivedRecord? in
                // A message in one piece is never incomplete, and is not counted.
                if record.hasFurtherParts || state.countedBytes > 0 { return nil }
                return try state.receive(record, from: linkNumber)
            }
            return if let received { received } else { try countAndReceive(record) }
        }

        /// Counts the record's bytes, and processes the record. Not inlined, because most messages
        /// come in one piece and do not need this.
        @inline(never)
        private func countAndReceive(
            _ record: DeliveryRecord
        ) throws(DeliveryError) -> ReceivedRecord {
            if case .chunk(let chunk) = record { try count(chunk) }
            return try lane.change { state throws(DeliveryError) in
                try state.receive(record, from: linkNumber)
            }
        }

        func didReceiveAll(_ effect: ReceivedRecord.Effect) {
            // What has arrived is news even if a newer link has begun meanwhile.
            if effect == .message, let newsHandler, newsHandler.loop.isCurrent {
                return newsHandler.messageArrived()
            }
            let handler = lane.state.withLock { $0.mustReportNews() ? $0.newsHandler : nil }
            handler?.onNews()
        }
    }
}

extension MessageLane.State {
    /// If there has been progress, and progress is measured, notes the time.
    fileprivate mutating func noteProgress() {
        guard let last = progress?.count else { return }
        let count = endpoint.progressCount
        guard count != last, let newsHandler else { return }
        progress = (count, newsHandler.loop.now)
    }

    /// Whether the store has committed everything, or has failed and commits nothing more.
    fileprivate var hasNothingToCommit: Bool { endpoint.isCommitted || failure != nil }

    /// Processes a record that has arrived on the link with this number; does nothing if a newer
    /// link has begun.
    fileprivate mutating func receive(
        _ record: DeliveryRecord, from linkNumber: UInt64
    ) throws(DeliveryError) -> ReceivedRecord {
        guard self.linkNumber == linkNumber else { return ReceivedRecord() }
        let showsProgress = try endpoint.receive(record, using: &generator)
        if countedBytes > 0, endpoint.incompleteBytes == 0 {
            countedBytes = 0
            part?.giveBackAll()
        }
        let isMidMessage = endpoint.isMidMessage
        return ReceivedRecord(
            showsProgress: showsProgress, isMidMessage: isMidMessage,
            effect: endpoint.lastWasOnlyMessage ? (isMidMessage ? .none : .message) : .other,
            wantsRecords: endpoint.wantsRecords, mayHaveAnswer: endpoint.mayHaveAnswer)
    }

    /// Records that the store has committed the changes that it was given.
    fileprivate mutating func didCommit() {
        endpoint.didCommit()
        recordFates()
    }

    /// Records the fates that have been decided.
    fileprivate mutating func recordFates() {
        while let event = endpoint.nextEvent() {
            switch event {
            case .confirmed(let id): decide(id, isUnknown: false)
            case .unknown(let id): decide(id, isUnknown: true)
            case .finished: hasNewFate = true
            case .storeRolledBack:
                wasRolledBack = true
                fates.makeDroppedUnknown()
            }
        }
    }

    private mutating func decide(_ id: UInt64, isUnknown: Bool) {
        fates.add(id: id, isUnknown: isUnknown)
        hasNewFate = true
    }

    /// Returns whether the connection must be told now that it has something to do for its link. If
    /// so, also records that the connection was told.
    fileprivate mutating func mustReportLink() -> Bool {
        guard !isNewsPending else { return false }
        isNewsPending = endpoint.hasNews
        return isNewsPending
    }

    /// Returns whether the connection must be told now that something has arrived, or that its link
    /// must end. If so, also records that the connection was told.
    fileprivate mutating func mustReportNews() -> Bool {
        guard !isNewsPending else { return false }
        // For each link, the connection is told only once that the peer must end the link.
        let mustReportWaiting = endpoint.isWaitingForLinkEnd && linkReportedAsWaiting != linkNumber
        if mustReportWaiting { linkReportedAsWaiting = linkNumber }
        isNewsPending =
            endpoint.hasMessage || endpoint.hasReachedPeerEnd || hasNewFate || endpoint.hasNews
            || mustReportWaiting
        return isNewsPending
    }
}
