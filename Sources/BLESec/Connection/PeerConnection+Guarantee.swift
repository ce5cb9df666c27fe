public import BLESecChannelCore
package import BLESecDelivery
internal import BLESecLinks

extension PeerConnection {
    /// What a connection promises about its messages.
    public enum Guarantee: Sendable {
        /// Each message belongs to the link on which it was sent, and arrives once or not at all.
        case atMostOnce
        /// Messages arrive once and in order, however often the link is lost. This holds as long as
        /// each side keeps its state: its connection or, with a store, the store's file.
        /// `docs/delivery.md` has the rules. The peer's connection must have the same guarantee, and
        /// both sides must set ``ChannelConfiguration/carriesDelivery``.
        ///
        /// If the peer makes a new connection without a store, the peer's state is lost. This
        /// side's messages that may have arrived are then `unknown`, and the others go to the
        /// peer's new connection.
        case exactlyOnce(DeliveryOptions = DeliveryOptions())
    }

    /// The options of a connection whose messages arrive exactly once.
    public struct DeliveryOptions: Sendable {
        /// How many messages may wait for their fate (``Delivery``); 10,000 by default.
        public var maximumMessages = 10_000
        /// How many bytes of messages may wait for their fate; 64 MiB by default. Messages are kept
        /// until the peer's program has taken them.
        public var maximumBytes = 64 << 20
        /// The longest message in bytes, sent or received; 16 MiB by default. Both sides need the
        /// same limit: a longer message of the peer ends every link on which the peer sends it.
        public var maximumMessageLength = 16 << 20
        /// How many bytes of whole messages the peer may send before the program receives them;
        /// 2 MiB by default. A message that begins below this limit may exceed it.
        public var readAhead = 2 << 20
        /// What to do with a message when there is no room for it.
        public var whenFull = WhenFull.wait
        /// Which messages count as taken: those that ``PeerConnection/receive()`` has returned, or
        /// those that ``PeerConnection/confirm(through:)`` names.
        public var acknowledgement = ChannelConfiguration.Acknowledgement.automatic
        /// Whether a message whose fate is unknown, because the peer's state was lost, is sent
        /// again. It may then arrive twice.
        public var resendsUnknown = false
        /// The priority of the messages' frames. All messages have the same priority, because they
        /// stay in order.
        public var priority = Priority.normal
        /// The bounds of streams.
        public var streams = StreamOptions()
        /// Keeps messages when this process ends; `nil` keeps them in memory only. The module
        /// `BLESecStore` opens stores.
        public var store: Store?

        /// The default options.
        public init() {}
    }

    /// Keeps a connection's messages outside of this process. A store belongs to one pair of keys,
    /// and one connection at a time can use it.
    public struct Store: Sendable {
        /// This side's key.
        public let own: Fingerprint
        /// The peer's key.
        public let peer: Fingerprint
        package let endpoint: any EndpointStore

        package init(own: Fingerprint, peer: Fingerprint, _ endpoint: any EndpointStore) {
            self.own = own
            self.peer = peer
            self.endpoint = endpoint
        }
    }

    /// What to do with a message when too many wait for their fate.
    public enum WhenFull: Sendable, Hashable {
        /// Wait for room.
        case wait
        /// Throw `limitExceeded`, without sending the message.
        case fail
    }

    /// The notes that the store had when it was opened: the last note that the program gave to
    /// ``send(_:noting:whenDisconnected:)``, and the last that it gave to ``confirm(through:noting:)``.
    /// A note is empty if there was none.
    public var notes: (sent: [UInt8], confirmed: [UInt8]) {
        let notes = lane?.notes
        return (notes?.sent ?? [], notes?.confirmed ?? [])
    }

    /// Whether this side has declared that it sends nothing more, perhaps in an earlier process.
    public var hasFinished: Bool { machine.hasFinished }

    /// How many messages have the fate ``Delivery/unknown``, including those of earlier processes
    /// with this store. Only with ``Guarantee/exactlyOnce(_:)``.
    public var unknownCount: Int { lane?.unknownCount ?? 0 }

    /// How many messages were removed from the store before they were sent (``Delivery/dropped``).
    public var droppedCount: Int { lane?.droppedCount ?? 0 }

    /// How many streams have ended with `sessionLost` before the peer's program had taken all of this
    /// side's bytes and their end. Streams that this side had reset, or the peer had stopped, do
    /// not count.
    public var lostStreamCount: Int { lane?.changeStreams { $0.lostCount } ?? 0 }

    /// Whether the store has turned out to be an older copy of a store that was used with the peer,
    /// perhaps in an earlier process. The messages that were in the copy are then `unknown`.
    public var wasStoreRolledBack: Bool { lane?.wasRolledBack ?? false }

    /// Whether messages of the peer may be missing or repeated between those that this side's
    /// programs take. There are two causes. Either the peer's state was lost or rolled back in between.
    /// Or this side's state is new or was rolled back: then the peer may have begun a new numbering,
    /// because an earlier state of this side was lost. A process that is started again without a store
    /// has lost its state. With a store, the value is also true if an earlier process has noticed such a cause.
    /// Only with ``Guarantee/exactlyOnce(_:)``.
    public var mayMissMessages: Bool { lane?.mayMissMessages ?? false }

    /// The fates of the messages in the order in which they were sent, each once, with their
    /// numbers from 1 (``PendingDelivery/number``). The stream ends when the connection is closed
    /// and all fates were returned. With a store, a fate that is returned after the connection was
    /// closed may be returned again after a restart. Only with ``Guarantee/exactlyOnce(_:)``;
    /// otherwise the stream is empty.
    public nonisolated var deliveries: AsyncStream<(number: UInt64, delivery: Delivery)> {
        AsyncStream { await self.nextDelivery() }
    }

    private func nextDelivery() async -> (number: UInt64, delivery: Delivery)? {
        guard let lane else { return nil }
        while true {
            // `isOver` is read before the fate. In the other order, the store's thread could decide
            // the last fate between the two reads, and this call would return nil without that fate.
            let isOver = isOver
            if let (number, fate) = lane.takeFate() { return (number, fate) }
            guard !isOver, !Task.isCancelled else { return nil }
            try? await waiting.wait(for: .acknowledgement, on: self) { lane.hasFate || self.isOver }
        }
    }
}

// What a connection does differently with a ``MessageLane``: its messages arrive exactly once.
extension PeerConnection {
    /// Queues a message if that is possible without waiting; otherwise returns nil. Most sends end
    /// here, without entering a further `async` function, which would cost a change of executors.
    func sendNow(
        _ message: [UInt8], noting note: [UInt8]?, _ whenDisconnected: WhenDisconnected
    ) throws(ChannelError) -> PendingDelivery? {
        guard let lane, turns.isEmpty, machine.canSend,
            current != nil || whenDisconnected == .wait, loop.mayContinue(),
            let queued = try lane.send(message, noting: note)
        else { return nil }
        if queued.mustTellChannel { tellChannel(hasMessage: true) }
        return PendingDelivery(number: queued.number, .connection(self))
    }

    func send(
        _ message: [UInt8], noting note: [UInt8]?, on lane: MessageLane,
        _ whenDisconnected: WhenDisconnected
    ) async throws(ChannelError) -> PendingDelivery {
        if !loop.mayContinue() { await loop.giveWay() }
        while true {
            if !machine.canSend { throw machine.closedError }
            if current == nil, whenDisconnected == .fail { throw .noLink }
            if let queued = try lane.send(message, noting: note) {
                if queued.mustTellChannel { tellChannel(hasMessage: true) }
                return PendingDelivery(number: queued.number, .connection(self))
            }
            guard lane.whenFull == .wait else {
                throw ChannelError(
                    .limitExceeded, "\(lane.pendingCount) messages wait for the peer to take them")
            }
            try await waiting.wait(for: .room, on: self) {
                lane.hasRoom(for: message.count) || !machine.canSend
                    || whenDisconnected == .fail && current == nil
            }
        }
    }

    func delivery(of number: UInt64) async -> Delivery {
        guard let lane else { return .unknown }
        try? await waiting.wait(for: .acknowledgement, number: number, on: self) {
            lane.fate(of: number) != nil || isOver
        }
        return lane.fate(of: number) ?? .unknown
    }

    /// Whether no further fate can be decided.
    private var isOver: Bool {
        guard machine.isClosed, !isLeaving else { return false }
        guard let lane else { return true }
        return lane.isCommitted || lane.failure != nil
    }

    /// What the program receives.
    enum Received {
        case message([UInt8])
        case end

        var message: [UInt8]? { if case .message(let message) = self { message } else { nil } }
    }

    /// The peer's next message, or `end` if the peer sends no more; nil if the program has to wait.
    func receiveNow(from lane: MessageLane) throws(ChannelError) -> Received? {
        switch lane.take() {
        case .message(let message, let mustTellChannel, let isLast):
            if mustTellChannel { tellChannel() }
            waiting.wake(.change)
            // After its end, the peer opens no more streams either.
            if isLast { waiting.wake(.stream) }
            return .message(message)
        case .end:
            waiting.wake(.stream)
            return .end
        case .nothing:
            guard machine.isClosed else { return nil }
            if let failure = machine.status.failure { throw failure }
            return .end
        }
    }

    func receive(from lane: MessageLane) async throws(ChannelError) -> [UInt8]? {
        while true {
            let isCancelled = await waiting.wait(for: .message, isolation: self) {
                lane.canTake || machine.isClosed
            }
            if isCancelled { throw .waitCancelled }
            if let received = try receiveNow(from: lane) { return received.message }
        }
    }

    func confirm(
        through number: UInt64, noting note: [UInt8]?, on lane: MessageLane
    ) throws(ChannelError) {
        try lane.confirm(through: number, noting: note)
        tellChannel()
        waiting.wake(.change)
    }

    func finish(_ lane: MessageLane) {
        lane.finish()
        tellChannel(hasMessage: true)
    }

    /// Tells the channel in use that its ``DeliveryPort`` may have records to send.
    func tellChannel(hasMessage: Bool = false) {
        guard let channel = current else { return }
        if channel.loop.isCurrent {
            // Closures without captures need no memory allocation.
            if hasMessage {
                channel.runOnItsLoop { $0.portDidGetRecords(hasMessage: true) }
            } else {
                channel.runOnItsLoop { $0.portDidGetRecords(hasMessage: false) }
            }
        } else {
            channel.loop.execute {
                channel.assumeIsolated { $0.portDidGetRecords(hasMessage: hasMessage) }
            }
        }
    }

    /// Handles what has changed in the lane.
    func heardFromLane() {
        guard let lane else { return }
        let news = lane.takeNews()
        waiting.wake(.message)
        waiting.wake(.change)
        wake(news.streams)
        if news.hasIncomingStream || news.hasReachedPeerEnd { waiting.wake(.stream) }
        if news.hasFate || machine.isClosed {
            waiting.wake(.acknowledgement, through: machine.isClosed ? .max : news.decided)
        }
        if news.hasFate || machine.isClosed || news.isStreamOver { waiting.wake(.room) }
        if let failure = news.failure { shut(failure) }
        releaseStore()
        // A channel may be in the middle of a call, so the calls below are made later.
        if news.hasCommitted {
            // Records that have waited for the commit can now be sent or, if they are the peer's,
            // processed.
            for channel in closingChannels + [current].compactMap({ $0 }) {
                channel.loop.execute { channel.assumeIsolated { $0.portDidResume() } }
            }
        }
        guard
            news.isWaitingForLinkEnd || news.mustEndLink || news.hasToldPeerOfCompletion
                || news.isRevoked, let channel = current
        else { return }
        Task(executorPreference: channel.loop) {
            if news.isRevoked {
                await channel.abort(.tooMuchUnderWay)
            } else if news.isWaitingForLinkEnd {
                try? await channel.loop.sleep(for: Self.timeToEnd)
                await channel.abort(ChannelError(.closed, "the peer uses an old state of its own"))
            } else if news.mustEndLink {
                await channel.abort(ChannelError(.closed, "this side continues in another epoch"))
            } else if news.hasToldPeerOfCompletion {
                try? await channel.finish()
            }
        }
    }

    /// How long a peer whose state is older than the state that it showed before may take to notice
    /// this, and to end the link.
    private static let timeToEnd: Duration = .seconds(2)

    // MARK: - Closing

    /// Lets the program take no more messages, and waits until all of the following is true. Returns
    /// false if there is no progress for `limit` before that, or if the task is cancelled.
    ///
    /// - The program has confirmed the messages that it has taken.
    /// - The peer has confirmed the queued messages and this side's end, or there is no link.
    /// - The store has committed everything.
    func settle(_ lane: MessageLane, within limit: Duration?) async -> Bool {
        lane.stopTaking()
        let idle = Idle(lane, limit: closeLimit(limit), from: loop.now)
        func isDone() -> Bool {
            if machine.isClosed { return true }
            guard !lane.hasUnconfirmed, lane.isCommitted else { return false }
            return current == nil || lane.pendingCount == 0 && !lane.isEndPending
        }
        while !isDone(), loop.now < idle.deadline {
            let isCancelled = await waiting.wait(
                for: .change, until: idle.deadline, isolation: self, unless: isDone)
            if isCancelled { break }
        }
        return isDone()
    }

    /// A wait that ends when there has been no progress for `limit`.
    private struct Idle {
        private let lane: MessageLane
        private let limit: Duration
        private let start: MonotonicTime

        init(_ lane: MessageLane, limit: Duration, from start: MonotonicTime) {
            (self.lane, self.limit, self.start) = (lane, limit, start)
            lane.measureProgress(from: start)
        }

        /// When the wait ends. Progress moves this time, and wakes no task.
        var deadline: MonotonicTime {
            max(start, lane.lastProgressTime ?? start).advanced(by: limit)
        }
    }

    /// The caller's limit or, without one, ``ChannelTimeouts/close``.
    private func closeLimit(_ limit: Duration?) -> Duration { limit ?? lastTimeouts.close }

    /// How long this side, once complete, waits without a link for the peer to come back. The peer
    /// may not know yet that both sides are complete.
    private static let timeToReconnect: Duration = .seconds(30)

    func close(_ lane: MessageLane, within limit: Duration?) async throws(ChannelError) {
        await finish()
        let limit = closeLimit(limit)
        let idle = Idle(lane, limit: limit, from: loop.now)
        while !lane.isSettled, !machine.isClosed {
            if loop.now >= idle.deadline {
                let error = incomplete(lane, limit)
                shut(nil)
                throw error
            }
            try await waitForChange(until: idle.deadline) { lane.isSettled || machine.isClosed }
        }
        guard lane.isSettled else {
            throw machine.status.failure ?? .endedTooEarly
        }
        try await waitForPeerToEnd()
        try await waiting.wait(for: .change, on: self) { lane.isCommitted || lane.failure != nil }
        shut(nil)
        let failure = lane.failure
        await lane.closeStore()
        if let failure { throw failure }
        for channel in closingChannels { try? await channel.waitUntilOver() }
    }

    /// Waits until the peer, which is complete too, has ended the last channel. The wait ends when
    /// there has been no link for ``timeToReconnect``, counted from the call or, if that is later,
    /// from the loss of the last link. A link that has died silently is noticed only after
    /// ``ChannelTimeouts/idle``, so the whole wait lasts at most for the sum of the last channel's
    /// idle time and ``timeToReconnect``, with or without a link.
    private func waitForPeerToEnd() async throws(ChannelError) {
        let start = loop.now
        // The sum of the two durations would trap if the idle time is the longest duration.
        let latest = start.advanced(by: lastTimeouts.idle).advanced(by: Self.timeToReconnect)
        func deadline() -> MonotonicTime {
            guard current == nil else { return latest }
            let lossTime = max(start, linkLossTime ?? start)
            return min(latest, lossTime.advanced(by: Self.timeToReconnect))
        }
        while !machine.isClosed {
            let end = deadline()
            guard loop.now < end else { return }
            let isCancelled = await waiting.wait(for: .change, until: end, isolation: self) {
                machine.isClosed || deadline() != end
            }
            guard isCancelled else { continue }
            // After the loop's shutdown, the peer can end no channel.
            if loop.isShutDown { return }
            throw .waitCancelled
        }
    }

    /// Whether the ends of both sides are confirmed, so that nothing is left to send or to receive.
    package var isSettled: Bool { lane?.isSettled ?? false }

    /// If the connection is closed and nothing is left to commit, closes the store, so that others
    /// can open it.
    func releaseStore() {
        guard machine.isClosed, let lane, isOver else { return }
        lane.release()
        Task(executorPreference: loop) { await lane.closeStore() }
    }

    /// Returns when the store has committed everything so far; throws if it has failed.
    package func waitUntilCommitted() async throws(ChannelError) {
        guard let lane else { return }
        try await waiting.wait(for: .change, on: self) { lane.isCommitted || lane.failure != nil }
        if let failure = lane.failure { throw failure }
    }

    private func waitForChange(
        until deadline: MonotonicTime, unless isTrue: () -> Bool
    ) async throws(ChannelError) {
        let isCancelled = await waiting.wait(
            for: .change, until: deadline, isolation: self, unless: isTrue)
        guard isCancelled else { return }
        if loop.isShutDown { throw .connectionLoopShutDown }
        throw .waitCancelled
    }

    /// The error of a call that has waited for `limit` without progress.
    func incomplete(_ lane: MessageLane, _ limit: Duration?) -> ChannelError {
        let limit = closeLimit(limit)
        let count = lane.pendingCount
        let streams = lane.changeStreams { $0.openCount }
        if count == 0, streams > 0 {
            return .late(
                "\(streams) streams are not over, and there was no progress within", limit,
                .unacknowledged)
        }
        if count > 0 || lane.isEndPending {
            return .late(
                "the peer has not confirmed everything (\(count) messages), and there was no "
                    + "progress within", limit, .unacknowledged)
        }
        return .late("the peer has not finished, and there was no progress within", limit)
    }
}

extension ChannelError {
    fileprivate static var endedTooEarly: ChannelError {
        ChannelError(
            .unacknowledged, "the connection was ended before both sides had confirmed everything")
    }

    static var noLink: ChannelError {
        ChannelError(.noSuchPeer, "there is no link to the peer now")
    }
}
