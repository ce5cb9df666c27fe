public import BLESecChannelCore
internal import BLESecDelivery
internal import BLESecDiscovery
public import BLESecLinks

/// A lasting connection to one peer identity, which makes a new channel when a link is lost.
///
/// The connection dials, searches or waits for the peer again, as its ``PeerRoute`` defines, and
/// returns the messages of all links as one sequence. The peer is the expected peer or, if none is
/// expected, the first peer that connects; channels to other peers are ended.
///
/// By default each message belongs to one link. A message from
/// ``send(_:whenDisconnected:)-([UInt8],_)`` whose fate is `delivered` has been acknowledged. If a
/// link is lost, the fate of the messages under way is unknown, and the connection never sends them
/// again, so that no message arrives twice. ``close(_:within:)`` throws an error if the fate of a
/// message is unknown, on whichever link. With ``Guarantee/exactlyOnce(_:)`` messages outlive links.
///
/// A silent peer is detected within the ``ChannelTimeouts/idle`` time of the channel, which sends a
/// ping after half of this time. Dropping the last reference ends the link and may lose messages.
/// With a store, if both sides have sent everything, the link ends only once the store has
/// committed what the peer has confirmed.
///
/// If ``close(_:within:)`` throws nothing, no message is lost, except with
/// ``Guarantee/exactlyOnce(_:)`` if the peer has lost its state.
public actor PeerConnection {
    /// The loop on which the connection runs.
    public nonisolated let loop: EventLoop
    let route: PeerRoute
    let machine: ConnectionMachine
    var generator = SystemRandomNumberGenerator()

    /// The channel in use; nil without a link.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    var current: SecureChannel?
    /// The time limits of the channel that came into use last; the default ones before the first.
    var lastTimeouts = ChannelTimeouts()
    /// When the open connection last stopped using a channel without having another; nil before the
    /// first time.
    var linkLossTime: MonotonicTime?
    /// Channels that the connection does not use any more, and that may not be over yet; oldest
    /// first. Once the connection is closed, channels that are over stay here, too.
    var closingChannels: [SecureChannel] = []
    /// The channel that was in use when ``close(_:within:)`` or ``leave(within:)`` was first called;
    /// nil if there was none. Each call throws the error of this channel.
    private var lastChannel: SecureChannel?
    /// Whether a channel has ended before the peer had acknowledged all messages of this side.
    var hasLostMessages = false
    /// Channels that have messages or may get messages, oldest first; the last may be the channel in
    /// use.
    var unreadChannels: [SecureChannel] = []
    /// Increases when another channel is put before the channel in use in ``unreadChannels``. Calls that
    /// wait for messages of the channel in use then look again.
    var readingTurn: UInt64 = 1
    /// Which messages ``receive()`` has returned, and from which channels.
    var receipts = Receipts()
    var attemptTask: Task<Void, Never>?
    /// The candidate in the service's latest report about a dial. A cancelled dial changes the status
    /// only if it was this candidate's; otherwise a later dial is under way.
    var lastCandidate: Candidate?
    /// Takes the channels that arrive without an attempt.
    var arrivalTask: Task<Void, Never>?
    var timer: LoopTimer?
    private var observers = Observers<ConnectionStatus>()
    /// The order in which the waiting tasks send: the order of their calls.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    var turns = Turns()

    let waiting: LoopCondition

    /// The messages that outlive links, if they are to arrive exactly once.
    let lane: MessageLane?
    /// The streams that the program holds.
    var streams: [Streams.Handle: StreamReference] = [:]
    /// The labels of the streams that ``acceptStream(labelled:)`` takes.
    var reservedLabels: Set<String> = []
    /// Whether the connection is closed, and its last channel may still decide fates of messages.
    var isLeaving = false

    /// The loop's executor: the actor runs on the loop's thread only.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// Starts to look for the peer.
    ///
    /// - Parameters:
    ///   - route: how the connection gets its channels.
    ///   - peer: the expected peer, in addition to the channels' trust policy; `nil` for the first
    ///     peer that connects. With a store, the store's peer is expected instead.
    ///   - rules: the time limits and the backoff.
    ///   - delivery: what the connection promises about its messages.
    ///   - loop: the loop to run on; by default the route's own loop, or the shared loop.
    public static func start(
        _ route: PeerRoute, to peer: PeerKey? = nil, rules: ReconnectPolicy = ReconnectPolicy(),
        delivery: Guarantee = .atMostOnce, loop: EventLoop? = nil
    ) async -> PeerConnection {
        var expected = peer?.fingerprint
        if case .exactlyOnce(let options) = delivery, let store = options.store {
            expected = store.peer
        }
        var lane: MessageLane?
        var isClaimed = true
        if case .exactlyOnce(let options) = delivery {
            let stored: StoredEndpoint? =
                if let store = options.store { store.endpoint.claim() } else { StoredEndpoint() }
            lane = stored.map { MessageLane(options, $0) }
            isClaimed = lane != nil
        }
        let connection = PeerConnection(
            route, expected, rules, lane, loop ?? route.loop ?? .shared)
        guard isClaimed else {
            await connection.shut(
                ChannelError(.store, "the store was used by another connection; open it again"))
            return connection
        }
        await connection.begin()
        return connection
    }

    private init(
        _ route: PeerRoute, _ peer: Fingerprint?, _ rules: ReconnectPolicy,
        _ lane: MessageLane?, _ loop: EventLoop
    ) {
        self.route = route
        self.lane = lane
        self.loop = loop
        machine = ConnectionMachine(
            rules: rules, expectedPeer: peer,
            routeSettlesDuplicates: route.settlesDuplicates, now: loop.now)
        waiting = LoopCondition(loop: loop)
        if lane?.hasFinished == true { machine.finish() }
    }

    /// Handles the lane's news from now on.
    func observeLane() {
        let handler = MessageLane.NewsHandler(loop: loop, waiting: waiting) { [weak self, loop] in
            // A call on another loop is passed on to the connection's loop.
            if loop.isCurrent {
                self?.runOnItsLoop { $0.heardFromLane() }
            } else {
                loop.execute { self?.assumeIsolated { $0.heardFromLane() } }
            }
        }
        lane?.setNewsHandler(handler)
        heardFromLane()
    }

    isolated deinit {
        attemptTask?.cancel()
        arrivalTask?.cancel()
        timer?.disarm()
        // The lane ends last, because a channel can send messages from the lane until the channel ends.
        Task { [lane, channels = closingChannels + [current].compactMap { $0 }] in
            for channel in channels { await channel.abort() }
            lane?.end()
        }
    }

    // MARK: - States

    /// The status of the connection.
    public var status: ConnectionStatus { machine.status }
    /// The status now, and the newest status after each change, until the connection is closed.
    public func states() -> Observation<ConnectionStatus> { states(keeping: 1) }

    /// The same observation with a buffer of `count` values, for a consumer that needs them all.
    package func states(keeping count: Int) -> Observation<ConnectionStatus> {
        observers.add(beginningWith: machine.status, capacity: count, isOver: machine.isClosed)
    }

    /// Reports the status if a state was entered since `before`, and arms the timer for the
    /// status's deadline. The timer of an open connection is always armed, because it also fires
    /// when the loop is shut down.
    func reportStatus(since before: ConnectionStatus) {
        let status = machine.status
        if machine.isClosed {
            timer?.disarm()
        } else {
            timer?.arm(at: min(status.deadline ?? .distantFuture, LoopTimer.latestTime))
        }
        guard status.state != before.state || status.since != before.since else { return }
        observers.tell(status)
        if machine.isClosed { observers.finish() }
    }

    // MARK: - Sending

    /// Sends a message, and returns its fate once the peer has acknowledged it or the link is lost;
    /// with ``Guarantee/exactlyOnce(_:)``, a lost link does not end the wait. If the task is
    /// cancelled after the message was queued, the call returns `unknown`, and the message may
    /// still arrive.
    ///
    /// Keep receiving meanwhile: the acknowledgement may arrive behind messages of the peer, and then
    /// has no effect before the program has received them. The only deadlines are those of the link:
    /// while the peer's program hangs but its device responds, this call waits.
    ///
    /// - Throws: `noSuchPeer` without a link if `whenDisconnected` is `fail`; `closed`, or the error
    ///   that closed the connection; `limitExceeded` for a message above the limit; `configuration`
    ///   in direct mode, which has no acknowledgements; `cancelled`. If this call throws,
    ///   nothing was sent.
    public func deliver(
        _ message: [UInt8], whenDisconnected: WhenDisconnected = .wait
    ) async throws(ChannelError) -> Delivery {
        let pending = try await send(message, whenDisconnected: whenDisconnected)
        return await pending.delivery()
    }

    /// Queues a message after the messages queued before, and returns when a channel has it or,
    /// with ``Guarantee/exactlyOnce(_:)``, when the connection has it. The link and the peer may
    /// not have the message yet. Throws as ``deliver(_:whenDisconnected:)-([UInt8],_)`` does.
    public func send(
        _ message: [UInt8], whenDisconnected: WhenDisconnected = .wait
    ) async throws(ChannelError) -> PendingDelivery {
        if let pending = try sendNow(message, noting: nil, whenDisconnected) { return pending }
        return try await sendInTurn(message, noting: nil, whenDisconnected)
    }

    /// Queues a message, and has the store commit `note` together with the message. A note may say, for
    /// example, how far the program has read its input. A restarted program continues to read its
    /// input at the position in ``notes``, and so sends nothing twice. Without a store, notes are lost
    /// with the process.
    public func send(
        _ message: [UInt8], noting note: [UInt8]?, whenDisconnected: WhenDisconnected = .wait
    ) async throws(ChannelError) -> PendingDelivery {
        if let pending = try sendNow(message, noting: note, whenDisconnected) { return pending }
        return try await sendInTurn(message, noting: note, whenDisconnected)
    }

    /// Sends the message after the messages of the calls that already wait.
    private func sendInTurn(
        _ message: [UInt8], noting note: [UInt8]?, _ whenDisconnected: WhenDisconnected
    ) async throws(ChannelError) -> PendingDelivery {
        let ticket = turns.take()
        defer {
            turns.give(back: ticket)
            waiting.wake(.nextSender, through: turns.next)
        }
        while !turns.isNext(ticket), machine.canSend,
            whenDisconnected == .wait || current != nil
        {
            try await waiting.wait(for: .nextSender, number: ticket, on: self) {
                turns.isNext(ticket) || !machine.canSend
                    || whenDisconnected == .fail && current == nil
            }
        }
        if let lane { return try await send(message, noting: note, on: lane, whenDisconnected) }
        while true {
            if !machine.canSend { throw machine.closedError }
            guard let channel = current else {
                guard whenDisconnected == .wait else { throw .noLink }
                try await waiting.wait(for: .link, on: self) {
                    current != nil || !machine.canSend
                }
                continue
            }
            do throws(ChannelError) {
                let number = try await channel.enqueue(message)
                return PendingDelivery(number: number, .link(channel))
            } catch {
                if machine.hasFinished { throw machine.closedError }
                // If the channel is ending, nothing was sent, and the message waits for the next
                // channel. Otherwise the error concerns the message.
                guard await channel.isEnding else { throw error }
                let hasCarriedMessage = await channel.hasCarriedMessage
                // Messages that were queued earlier may still leave on this channel, or be lost.
                if current === channel { closingChannels.append(channel) }
                lose(channel, because: error, hasCarriedMessage: hasCarriedMessage)
            }
        }
    }

    // MARK: - Receiving

    /// Returns the next message from any link. Returns `nil` when everything that arrived is read,
    /// and either the connection is closed or the peer has ended for good
    /// (``ReconnectPolicy/endsWithPeer``).
    ///
    /// With a store on disk, a closed connection returns no more messages, because the closed store
    /// could not commit that they were taken. Messages that have arrived, and that the program has not
    /// taken, arrive again after a restart.
    ///
    /// - Throws: the error that closed the connection, unless ``close(_:within:)`` or the
    ///   peer's end closed it; `cancelled`.
    public func receive() async throws(ChannelError) -> [UInt8]? {
        if let lane {
            if !loop.mayContinue() { await loop.giveWay() }
            // Most calls end here, without entering a further `async` function, which would cost a
            // change of executors.
            if let received = try receiveNow(from: lane) { return received.message }
            return try await receive(from: lane)
        }
        while true {
            guard let channel = unreadChannels.first else {
                if machine.isClosed {
                    if let failure = machine.status.failure { throw failure }
                    return nil
                }
                if machine.hasPeerEnded { return nil }
                try await waiting.wait(for: .message, on: self) {
                    !unreadChannels.isEmpty || machine.isClosed || machine.hasPeerEnded
                }
                continue
            }
            do throws(ChannelError) {
                switch try await channel.receive(inTurn: readingTurn) {
                case .message(let message, number: let number):
                    receipts.add(channel, number)
                    return message
                case .turnHasEnded: continue
                case .end: break
                }
            } catch {
                // The error that ended the channel does not end the connection.
                if error.code == .cancelled { throw error }
            }
            didReadAll(of: channel)
            if await channel.isOver { receipts.forget(channel) }
        }
    }

    /// The number of the message that ``receive()`` returned last, counted from 1 over all links.
    public var lastReceived: UInt64 { lane?.takenCount ?? receipts.count }

    /// Confirms the messages 1 to `number`; see ``SecureChannel/confirm(through:)``. Has an effect
    /// only on channels with manual acknowledgement.
    ///
    /// Messages from a lost link can no longer be confirmed, and their fate is unknown to the peer,
    /// except with ``Guarantee/exactlyOnce(_:)``.
    ///
    /// - Throws: `configuration` when the message has not been received yet; `closed`, or the
    ///   store's error, when the connection's store is closed: the message is not confirmed, and
    ///   arrives again after a restart.
    public func confirm(through number: UInt64) async throws(ChannelError) {
        try await confirm(through: number, noting: nil)
    }

    /// Confirms the messages 1 to `number`, and has the store commit `note` together with this
    /// confirmation. A note may say, for example, how far the program has written its output.
    ///
    /// A message has its effect exactly once if the program makes the effect durable before it
    /// confirms the message, and after a restart undoes the effects that ``notes`` does not cover.
    public func confirm(
        through number: UInt64, noting note: [UInt8]?
    ) async throws(ChannelError) {
        try require(
            number <= lastReceived,
            "message \(number) cannot be confirmed: \(lastReceived) have been received")
        if let lane { return try confirm(through: number, noting: note, on: lane) }
        for (channel, last) in receipts.take(through: number) {
            try await channel.confirm(through: last)
        }
    }

    /// The messages that ``receive()`` returns, one after another. The sequence ends or throws as
    /// ``receive()`` does.
    public nonisolated var messages: Arrivals {
        Arrivals { () async throws(ChannelError) in try await self.receive() }
    }

    // MARK: - Closing

    /// Tells the peer that this side sends nothing more on any link. This side can still receive.
    /// Has no effect once the connection is closed.
    public func finish() async {
        guard !machine.isClosed else { return }
        machine.finish()
        for event in [LoopEvent.link, .nextSender, .room] { waiting.wake(event) }
        if let lane { return finish(lane) }
        guard let channel = current else { return }
        try? await channel.finish()
        guard machine.haveBothEnded, let last = current else { return }
        stopUsing(last)
        shut(nil)
        try? await channel.close()
    }

    /// Ends the connection for good, without losing messages under way on the current link, or on an
    /// earlier link that is still being closed.
    ///
    /// With ``Guarantee/exactlyOnce(_:)`` and the reason `done`, the call waits for new links too,
    /// until each program has taken everything up to the other side's end, and every stream is
    /// over. Then it waits until the peer knows that both sides are done. This second wait ends after
    /// 30 seconds without a link; each new link that is lost begins these 30 seconds again. In all,
    /// the second wait takes at most ``ChannelTimeouts/idle`` of the last link plus 30 seconds, and
    /// then ends a link that exists. At last the call waits until the channels that are still being
    /// closed are over. If the peer has lost its state, the call does not wait for the messages and
    /// streams that were lost with it; ``unknownCount`` and ``lostStreamCount`` count them.
    ///
    /// With ``Guarantee/exactlyOnce(_:)``, there is progress when a part of a message or stream
    /// leaves or arrives for the first time, when the peer confirms something or shows that more has
    /// arrived, and when this side's program takes or confirms a message, or reads from a stream.
    /// What is sent again over another link is no progress, except to a new connection of the peer,
    /// or if the peer has reported a part of a message and then dropped it.
    ///
    /// - Parameters:
    ///   - reason: tells the peer whether it has received everything.
    ///   - limit: how long there may be no progress; `nil` means ``ChannelTimeouts/close`` of the
    ///     last link.
    /// - Throws: with ``Guarantee/exactlyOnce(_:)`` and the reason `done`, `unacknowledged` or
    ///   `timedOut` after `limit` without progress, or the error that closed the connection.
    ///   Otherwise as ``SecureChannel/close(within:)`` does for the link that was in use at the first
    ///   call of `close` or ``leave(within:)``; later calls throw that link's error again. Without
    ///   ``Guarantee/exactlyOnce(_:)`` also `unacknowledged` if the peer did not acknowledge a message
    ///   of this side on an earlier link, or had not acknowledged a message when the connection was
    ///   closed in another way. This holds even if the program knows the message's fate. `cancelled`
    ///   when the task is cancelled: this side has then finished, and sends nothing more; call `close`
    ///   again, ``leave(within:)`` or ``abort()``.
    public func close(
        _ reason: EndReason = .done, within limit: Duration? = nil
    ) async throws(ChannelError) {
        if let lane, reason == .done { return try await close(lane, within: limit) }
        try await leave(reason, within: limit)
    }

    /// With ``Guarantee/exactlyOnce(_:)``, ends this connection and its link without telling the
    /// peer that this side has sent everything, so the peer waits for a new link. With another
    /// guarantee, this is the same as ``close(_:within:)`` with the reason `done`.
    ///
    /// With ``Guarantee/exactlyOnce(_:)``, ``receive()`` returns nothing more. The call first waits
    /// until the program has confirmed what it has received and, while there is a link, the peer
    /// has confirmed what was sent. The wait ends earlier if there is no progress for `limit`. A
    /// message that has no fate when the call returns may have arrived or not.
    ///
    /// - Throws: as ``close(_:within:)`` does with a reason other than `done`; for example `timedOut`
    ///   after `limit`.
    public func leave(within limit: Duration? = nil) async throws(ChannelError) {
        try await leave(.done, within: limit)
    }

    private func leave(
        _ reason: EndReason, within limit: Duration?
    ) async throws(ChannelError) {
        var limit = limit
        var noProgressError: ChannelError?
        if let lane, reason == .done, await !settle(lane, within: limit), !Task.isCancelled,
            !loop.isShutDown, lane.pendingCount > 0 || lane.isEndPending
        {
            // For the whole time there was no progress, so the channel gets no further time.
            noProgressError = incomplete(lane, limit)
            limit = .zero
        }
        if let last = current.take() {
            closingChannels.append(last)
            lastChannel = last
        }
        let channels = closingChannels
        isLeaving = true
        shut(nil)
        // Messages that still arrive can be read afterwards.
        for channel in channels { try? await channel.finish(reason) }
        var failure: ChannelError?
        for channel in channels.reversed() {
            do throws(ChannelError) {
                try await channel.close(within: limit)
            } catch {
                // Of an earlier channel, only the loss of this side's messages is an error.
                let isLast = channel === lastChannel
                if error.code == .cancelled { failure = failure ?? error }
                if isLast { failure = failure ?? noProgressError ?? error }
            }
            if await channel.hasLostMessages { hasLostMessages = true }
        }
        isLeaving = false
        waiting.wake(.acknowledgement)
        await lane?.closeStore()
        if let failure { throw failure }
        if hasLostMessages { throw .lostMessages }
    }

    /// Ends the connection and its link at once.
    public func abort() async {
        shut(ChannelError(.closed, "the connection was aborted on this side"))
        for channel in closingChannels { await channel.abort() }
    }
}

extension PeerConnection: TimerHandler {
    package nonisolated func timerFired(_ timer: LoopTimer) { assumeIsolated { $0.deadlineCame() } }
}

extension ChannelError {
    fileprivate static var lostMessages: ChannelError {
        ChannelError(
            .unacknowledged,
            "the peer has not acknowledged all messages of this side; whether the others have "
                + "arrived is unknown")
    }
}
