internal import BLESecChannelCore
internal import BLESecDelivery
internal import BLESecDiscovery
internal import BLESecLinks

// Carries out what the machine decides.
extension PeerConnection {
    func begin() {
        timer = LoopTimer(loop: loop, handler: self)
        observeLane()
        // The store may have failed already.
        guard !machine.isClosed else { return }
        if loop.isShutDown { return shut(.connectionLoopShutDown) }
        if case .nearby(let service) = route.kind {
            Task(executorPreference: loop) { [weak self] in
                guard let self else { return }
                await service.observe(for: self) { [weak self] event in
                    self?.loop.execute { self?.assumeIsolated { $0.heard(event) } }
                }
            }
        }
        awaitArrival()
        // The state has not changed, so this only arms the timer.
        reportStatus(since: machine.status)
        perform(.attempt)
    }

    /// Waits for the next channel of a listener or service, if there is room for a channel. The waiting
    /// task does not keep the connection alive.
    private func awaitArrival() {
        guard let next = route.next, arrivalTask == nil, hasRoom, !machine.isClosed else { return }
        arrivalTask = Task(executorPreference: loop) { [weak self] in
            do throws(ChannelError) {
                let channel = try await next()
                guard let self else { return await channel.abort() }
                await self.offer(channel)
                await self.didOfferArrival()
            } catch {
                if error.code != .cancelled { await self?.shut(error) }
            }
        }
    }

    private func didOfferArrival() {
        arrivalTask = nil
        awaitArrival()
    }

    func deadlineCame() {
        if loop.isShutDown { return shut(.connectionLoopShutDown) }
        let wasOutOfRange = machine.status.state == .outOfRange
        let step = change { $0.timeout(at: loop.now, using: &generator) }
        if wasOutOfRange, step == .attempt, case .nearby(let service) = route.kind {
            Task(executorPreference: loop) { await service.searchAnew() }
        }
        perform(step)
    }

    /// Changes the machine, and reports its status if it has entered another state, or the same
    /// state anew.
    private func change<Result>(_ body: (ConnectionMachine) -> Result) -> Result {
        let before = machine.status
        let result = body(machine)
        reportStatus(since: before)
        return result
    }

    private func perform(_ step: ConnectionMachine.Step) {
        switch (step, route.kind) {
        case (.attempt, .dial(let dial, _)): beginAttempt(dial)
        case (.abandon, .dial): attemptTask?.cancel()
        case (.close(let error), _): shut(error)
        // The other routes search or wait all the time, so there is nothing to begin or to cancel.
        default: break
        }
    }

    // MARK: - Attempts

    private func beginAttempt(_ dial: @escaping PeerRoute.Dial) {
        attemptTask?.cancel()
        let begunAttempt = change { $0.begin(hasRoom: hasRoom, at: loop.now, using: &generator) }
        guard let attempt = begunAttempt else { return }
        attemptTask = Task(executorPreference: loop) { [weak self, loop] in
            do throws(ChannelError) {
                let channel = try await dial { state in
                    loop.execute { self?.assumeIsolated { $0.reached(state, attempt) } }
                }
                await self?.offer(channel, attempt)
            } catch {
                await self?.failed(error, attempt)
            }
        }
    }

    private func reached(_ state: ConnectionState, _ attempt: Int?) {
        change { $0.reached(state, in: attempt, at: loop.now) }
    }

    private func failed(_ error: ChannelError, _ attempt: Int? = nil) {
        let step = change {
            $0.failed(error, in: attempt, isFinal: loop.isShutDown, at: loop.now, using: &generator)
        }
        perform(step)
    }

    /// Handles a service's report about a candidate, which may turn out not to be the peer.
    func heard(_ event: NearbyEvent) {
        switch event {
        case .dialing(let candidate): heard(.dialing, candidate)
        case .opening(let candidate): heard(.opening, candidate)
        case .handshaking(let candidate, _): heard(.handshaking, candidate)
        case .dialCancelled(let candidate):
            // If the service has reported another dial since, that dial goes on.
            if candidate == lastCandidate { change { $0.dialCancelled(at: loop.now) } }
        case .dialFailed(_, let error): failed(error)
        case .adapter, .advertising, .acceptFailed, .duplicate: break
        }
    }

    private func heard(_ state: ConnectionState, _ candidate: Candidate) {
        lastCandidate = candidate
        reached(state, nil)
    }

    // MARK: - Channels

    /// Gives the connection a channel that the program has made or accepted, and returns whether
    /// the connection uses it now. The channel is ended if it leads to another peer, if the channel
    /// in use stays instead, if too many channels have unread messages, or if the connection is
    /// closed. If the channel is over, or this side is ending it, only its messages are kept.
    /// Offering the channel in use again has no effect.
    @discardableResult
    public func offer(_ channel: SecureChannel) async -> Bool { await offer(channel, nil) }

    /// Does what ``offer(_:)`` does. `attempt` is the number of the attempt that has made the
    /// channel; nil if no attempt of this connection has made it.
    @discardableResult
    private func offer(_ channel: SecureChannel, _ attempt: Int?) async -> Bool {
        if channel === current { return true }
        if let error = machine.refusal(of: await channel.peer) {
            await refuse(channel, error, attempt)
            return false
        }
        guard await channel.carriesDelivery == (lane != nil) else {
            let error = ChannelError(
                .configuration,
                lane == nil
                    ? "the channel carries messages that arrive exactly once, and the connection "
                        + "does not (PeerConnection.Guarantee)"
                    : "messages arrive exactly once only over channels that are configured for it "
                        + "(ChannelConfiguration.carriesDelivery)")
            await channel.abort(error)
            shut(error)
            return false
        }
        if lane != nil, await channel.peer.fingerprint == nil {
            let error = ChannelError(
                .untrusted, "messages arrive exactly once only to a peer with a key")
            await refuse(channel, error, attempt)
            return false
        }
        if let own = lane?.ownKey, await channel.ownKey != own {
            let error = ChannelError(
                .configuration,
                "the store belongs to this side's key \(own), and the channel has another one")
            await channel.abort(error)
            shut(error)
            return false
        }
        let new = ConnectionMachine.NewChannel(
            peer: await channel.peer,
            history: await ChannelHistory(of: channel),
            protocolName: await channel.protocolName, linkDescription: channel.linkDescription,
            isEnding: await channel.isEnding)
        let order = await order(to: new.peer, over: channel)
        let isCurrentOver = await isCurrentOver
        // Again, since another offer of the channel may have been faster.
        if channel === current { return true }
        let admission = change {
            $0.admit(new, isCurrentOver: isCurrentOver, hasRoom: hasRoom, at: loop.now)
        }
        switch admission {
        case .use: await use(channel, of: new.peer, order)
        case .keepMessages:
            await keepMessages(of: channel)
            close(channel)
            // This attempt to connect is over as well.
            let error = await channel.endError
            offerFailed(error ?? ChannelError(.closed, "the channel has ended"), attempt)
        case .endAsDuplicate:
            await endDuplicate(channel)
            await keepMessages(of: channel)
        case .refuse(let error): await refuse(channel, error, attempt)
        }
        if case .use = admission { return true } else { return false }
    }

    private func refuse(
        _ channel: SecureChannel, _ error: ChannelError, _ attempt: Int?
    ) async {
        await channel.abort(error)
        offerFailed(error, attempt)
    }

    /// Records that a channel is not used. If the connection dials, and the channel comes from none of
    /// its attempts, nothing changes: the attempt under way, or the wait for the next attempt, goes
    /// on.
    private func offerFailed(_ error: ChannelError, _ attempt: Int?) {
        if attempt == nil, case .dial = route.kind { return }
        failed(error, attempt)
    }

    /// Whether this side's key is lower or higher than the peer's; nil if a side has no key.
    private func order(
        to peer: PeerIdentity, over channel: SecureChannel
    ) async -> Streams.Order? {
        guard let own = await channel.ownKey?.digest, let peer = peer.fingerprint?.digest else {
            return nil
        }
        return own.lexicographicallyPrecedes(peer) ? .lower : .higher
    }

    /// Uses a new channel from now on, and ends the channel that was in use before.
    private func use(
        _ channel: SecureChannel, of peer: PeerIdentity, _ order: Streams.Order?
    ) async {
        let older = current
        current = channel
        lastTimeouts = channel.configuration.timeouts
        // A call that closes the connection asks the older channel whether it has lost messages.
        if let older { closingChannels.append(older) }
        limitClosingChannels()
        if let lane {
            let port = lane.beginLink(to: peer, order)
            channel.loop.execute { channel.assumeIsolated { $0.carry(port) } }
        } else {
            unreadChannels.append(channel)
        }
        attemptTask?.cancel()
        waiting.wake(.link)
        waiting.wake(.message)
        // While the task waits for the channel, it does not keep the connection alive.
        Task(executorPreference: loop) { [weak self] in
            if let reason = await channel.waitUntilEnding() {
                if await self?.handleEnd(of: channel, reason) == true {
                    // The channel's `close` returns when each side knows that the other side has
                    // everything.
                    try? await channel.close()
                } else {
                    try? await channel.waitUntilOver()
                }
            }
            await self?.ended(channel)
        }
        if let older { await endDuplicate(older) }
        if machine.hasFinished, lane == nil { try? await channel.finish() }
    }

    private var hasRoom: Bool { unreadChannels.count < ConnectionMachine.mostUnreadChannels }

    /// Whether no channel is in use, or the channel in use is over. If another channel has come into
    /// use during the question to a channel, asks that other channel too.
    private var isCurrentOver: Bool {
        get async {
            while true {
                guard let channel = current else { return true }
                let isOver = await channel.isOver
                if current === channel { return isOver }
            }
        }
    }

    /// Queues a channel that is over or ending, so that its messages are read before those of the
    /// channel in use. These messages must not be lost, because the peer may know that they
    /// arrived.
    private func keepMessages(of channel: SecureChannel) async {
        let hasMessages = await channel.hasWaitingMessages
        let isOver = await channel.isOver
        guard hasMessages || !isOver else { return }
        let index = unreadChannels.firstIndex { $0 === current }
        unreadChannels.insert(channel, at: index ?? unreadChannels.count)
        waiting.wake(.message)
        guard index != nil, let current else { return }
        // Calls that wait for a message of the channel in use have to read this channel first.
        let endedTurn = readingTurn
        readingTurn += 1
        await current.endTurn(endedTurn)
    }

    /// Ends the oldest of the closing channels at once if there are too many. A closing channel waits
    /// for its peer until there has been no progress for ``ChannelTimeouts/close``. So a peer that
    /// makes one link after another, and keeps them open, could use up this side's file descriptors.
    private func limitClosingChannels() {
        for channel in closingChannels.dropLast(Self.mostClosingChannels) {
            channel.loop.execute { channel.assumeIsolated { $0.abort() } }
        }
    }

    private static let mostClosingChannels = 8

    /// Closes a channel that the connection does not use. While the task waits for the channel, it
    /// does not keep the connection alive.
    private func close(_ channel: SecureChannel) {
        closingChannels.append(channel)
        Task(executorPreference: loop) { [weak self] in
            try? await channel.close()
            await self?.ended(channel)
        }
    }

    /// Ends a channel because another channel to the peer stays. The messages that have arrived
    /// over the ended channel can still be read.
    private func endDuplicate(_ channel: SecureChannel) async {
        try? await channel.finish(.duplicate)
        await channel.abort()
    }

    /// Handles the peer's end of a channel. Returns true if the caller must close the channel, and
    /// false if the channel stays in use until it is over. Does not wait for the peer, because this
    /// call keeps the connection alive.
    private func handleEnd(of channel: SecureChannel, _ reason: EndReason) async -> Bool {
        let hasCarriedMessage = await channel.hasCarriedMessage
        let isCurrent = current === channel
        let isFinal = lane?.hasToldPeerOfSettling ?? machine.rules.endsWithPeer
        let ending = change {
            $0.peerEnded(
                reason, isFinal: isFinal, hasCarriedMessage: hasCarriedMessage,
                isCurrent: isCurrent, at: loop.now, using: &generator)
        }
        switch ending {
        case .keepChannel:
            waiting.wake(.message)
            return false
        case .closeConnection:
            stopUsing(channel)
            shut(nil)
            // Once the channel is closed, the peer may be out of reach. So everything that the peer
            // has confirmed is committed first. Until then, this call keeps the connection alive,
            // because the connection's deinitializer aborts the channel.
            if (try? await waitUntilCommitted()) == nil { await channel.abort() }
        case .dropChannel(then: let step):
            // From now on, a call that closes the connection waits for this channel, too.
            if isCurrent { stopUsing(channel) }
            perform(step)
        }
        // If the reason is not `done`, and this side has not finished, this side sends the same
        // reason back, and continues over another link.
        if reason.error != nil, !machine.hasFinished { try? await channel.finish(reason) }
        return true
    }

    /// Called when the machine has decided that a channel is not used any more. The channel is still
    /// being closed.
    func stopUsing(_ channel: SecureChannel) {
        closingChannels.append(channel)
        current = nil
        linkLossTime = loop.now
        // Calls that fail without a link (`WhenDisconnected.fail`), and calls that are closing the
        // connection, must learn of the loss.
        for event in [LoopEvent.nextSender, .room, .change] { waiting.wake(event) }
    }

    /// Called when a channel of this connection is over.
    private func ended(_ channel: SecureChannel) async {
        let failure = await channel.endError
        receipts.forget(channel)
        let hasCarriedMessage = await channel.hasCarriedMessage
        if await channel.hasLostMessages { hasLostMessages = true }
        // Once the connection is closed, the channels stay: a later call of `close` or `leave` can
        // then still throw their errors.
        if !machine.isClosed { closingChannels.removeAll { $0 === channel } }
        lose(channel, because: failure, hasCarriedMessage: hasCarriedMessage)
        // A channel that ends may not have reported the last records that it has processed
        // (``DeliveryPort/didReceiveAll(_:)``).
        heardFromLane()
        // Only channels with unread messages are kept.
        if await !channel.hasWaitingMessages { didReadAll(of: channel) }
    }

    /// Stops using a channel that has ended, or that this side is ending, and does what the machine
    /// then decides.
    func lose(_ channel: SecureChannel, because error: ChannelError?, hasCarriedMessage: Bool) {
        guard current === channel else { return }
        current = nil
        linkLossTime = loop.now
        let step = change {
            $0.lost(error, hasCarriedMessage: hasCarriedMessage, at: loop.now, using: &generator)
        }
        for event in [LoopEvent.nextSender, .room, .change] { waiting.wake(event) }
        perform(step)
    }

    /// Removes a channel whose messages are all read and that brings no more.
    func didReadAll(of channel: SecureChannel) {
        unreadChannels.removeAll { $0 === channel }
        waiting.wake(.message)
        awaitArrival()
    }

    /// Closes the connection and ends its channel. Messages that have arrived can still be read,
    /// except with a store, which is closed.
    func shut(_ error: ChannelError?) {
        let before = machine.status
        machine.close(error, at: loop.now)
        if let channel = current.take() {
            // A later call of `close` or `leave` reports the messages that are lost now.
            closingChannels.append(channel)
            Task(executorPreference: loop) { await channel.abort() }
        }
        attemptTask?.cancel()
        arrivalTask?.cancel()
        // Peers that still connect are refused.
        switch route.kind {
        case .listener(let listener): Task(executorPreference: loop) { await listener.close() }
        case .nearby(let service): Task(executorPreference: loop) { await service.close() }
        case .dial, .offers: break
        }
        reportStatus(since: before)
        waiting.wakeAll()
        wakeAllStreams()
        releaseStore()
    }
}

extension ChannelError {
    static var connectionLoopShutDown: ChannelError {
        ChannelError(.closed, "the connection's event loop was shut down")
    }
}
