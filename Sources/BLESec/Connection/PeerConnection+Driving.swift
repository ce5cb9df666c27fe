internal import BLESecChannelCore
internal import BLESecDiscovery
internal import BLESecLinks

// Carries out what the machine decides.
extension PeerConnection {
    func begin() {
        timer = LoopTimer(loop: loop, handler: self)
        if case .nearby(let service) = route.kind {
            Task(executorPreference: loop) { [weak self] in
                await service.observe { event in
                    guard let state = event.connectionState else { return }
                    self?.loop.execute { self?.assumeIsolated { $0.heard(state) } }
                }
            }
        }
        if let next = route.next {
            arrivals = Task(executorPreference: loop) { [weak self] in
                var failure: ChannelError?
                while failure == nil {
                    do throws(ChannelError) {
                        try await self?.waitForRoom()
                        let channel = try await next()
                        guard let self else { return await channel.abort() }
                        await self.arrived(channel)
                    } catch {
                        failure = error
                    }
                }
                if failure?.code != .cancelled { await self?.shut(failure) }
            }
        }
        tell(since: machine.status)
        perform(.attempt)
    }

    func deadlineCame() {
        let before = machine.status
        if loop.isShutDown {
            return shut(ChannelError(.closed, "the connection's event loop was shut down"))
        }
        let step = machine.timeout(at: loop.now, using: &generator)
        tell(since: before)
        if before.state == .outOfRange, step == .attempt, case .nearby(let service) = route.kind {
            Task(executorPreference: loop) { await service.searchAnew() }
        }
        perform(step)
    }

    private func perform(_ step: ConnectionMachine.Step) {
        switch (step, route.kind) {
        case (.attempt, .dial(let dial, _)): begin(dial)
        case (.abandon, .dial): dropAttempt()
        // The other routes search or wait all the time.
        default: break
        }
    }

    // MARK: - Attempts

    private func begin(_ dial: @escaping PeerRoute.Dial) {
        // The previous attempt has failed, though its task may not know yet.
        dropAttempt()
        guard hasRoom else {
            return failed(
                ChannelError(
                    .limitExceeded, "the messages of \(Self.mostUnread) links wait to be read"))
        }
        let number = attempts
        attempt = Task(executorPreference: loop) { [weak self, loop] in
            let result: Result<SecureChannel, ChannelError>
            do throws(ChannelError) {
                result = .success(
                    try await dial { state in
                        loop.execute { self?.assumeIsolated { $0.reached(state, number) } }
                    })
            } catch {
                result = .failure(error)
            }
            await self?.finish(number, result)
        }
    }

    /// Cancels the current attempt, if any, and ignores its later reports.
    private func dropAttempt() {
        attempt?.cancel()
        attempt = nil
        attempts += 1
    }

    private func reached(_ state: ConnectionState, _ number: Int) {
        guard number == attempts, state.isUnderWay else { return }
        let before = machine.status
        machine.reached(state, at: loop.now)
        tell(since: before)
    }

    private func finish(_ number: Int, _ result: Result<SecureChannel, ChannelError>) async {
        switch result {
        case .success(let channel): await arrived(channel)
        case .failure(let error) where number == attempts: failed(error)
        case .failure: break
        }
    }

    private func failed(_ error: ChannelError) {
        // Waiting does not resolve these errors.
        if error.code == .configuration || loop.isShutDown { return shut(error) }
        let before = machine.status
        machine.failed(error, at: loop.now, using: &generator)
        tell(since: before)
    }

    /// Handles a service's report about a candidate; whether the candidate is the peer becomes
    /// known later.
    private func heard(_ report: NearbyEvent.ConnectionReport) {
        switch report {
        case .reached(let state):
            let before = machine.status
            machine.reached(state, at: loop.now)
            tell(since: before)
        case .failed(let error): failed(error)
        }
    }

    // MARK: - Channels

    /// Gives the connection a channel that the program has made or accepted. Ends the channel, and
    /// returns false, if it leads to another peer, if the channel in use stays instead, or if too
    /// many links have unread messages.
    @discardableResult
    public func offer(_ channel: SecureChannel) async -> Bool { await arrived(channel) }

    @discardableResult
    func arrived(_ channel: SecureChannel) async -> Bool {
        let peer = await channel.peer
        let protocolName = await channel.protocolName
        let history = await ChannelHistory(of: channel, readyAt: loop.now)
        let isEnding = await channel.isEnding
        let isCurrentOver = await isCurrentOver
        if let refusal = refusal(of: peer) {
            await channel.abort(refusal)
            if !machine.isConnected { failed(refusal) }
            return false
        }
        if isEnding { return await keepMessages(of: channel) }
        if !isCurrentOver, !route.settlesDuplicates, let current,
            !history.stays(insteadOf: current.history)
        {
            await end(channel)
            return await keepMessages(of: channel)
        }
        expected = expected ?? peer.fingerprint
        let older = current?.channel
        current = Current(channel: channel, history: history)
        unread.append(channel)
        dropAttempt()
        let before = machine.status
        machine.connected(
            peer, by: protocolName, over: channel.linkDescription, at: loop.now)
        tell(since: before)
        waiting.wake(.link)
        waiting.wake(.message)
        watch(channel)
        if let older { await end(older) }
        if hasFinished { try? await channel.finish() }
        return true
    }

    private func refusal(of peer: PeerIdentity) -> ChannelError? {
        if machine.isClosed { return closedError }
        if let expected, peer.fingerprint != expected {
            return ChannelError(.untrusted, "the channel leads to \(peer), and not to \(expected)")
        }
        guard hasRoom else {
            return ChannelError(
                .limitExceeded, "the messages of \(Self.mostUnread) links wait to be read")
        }
        return nil
    }

    private var hasRoom: Bool { unread.count < Self.mostUnread }

    private func waitForRoom() async throws(ChannelError) {
        while !hasRoom, !machine.isClosed {
            try await wait(for: .room) { hasRoom || machine.isClosed }
        }
    }

    /// Whether no channel is in use, or the one in use is over; valid for the channel in use on
    /// return.
    private var isCurrentOver: Bool {
        get async {
            while true {
                guard let channel = current?.channel else { return true }
                let isOver = await channel.isOver
                if current?.channel === channel { return isOver }
            }
        }
    }

    /// Queues the unread messages of an ended channel before those of the channel in use, because
    /// the peer knows that they arrived.
    private func keepMessages(of channel: SecureChannel) async -> Bool {
        guard await channel.hasUnread else { return false }
        let inUse = current.flatMap { current in unread.firstIndex { $0 === current.channel } }
        unread.insert(channel, at: inUse ?? unread.count)
        waiting.wake(.message)
        return false
    }

    /// Ends one of two channels to the peer. Its messages can still be read.
    private func end(_ channel: SecureChannel) async {
        try? await channel.finish(.duplicate)
        await channel.abort()
    }

    private func watch(_ channel: SecureChannel) {
        Task(executorPreference: loop) { [weak self] in
            let reason = await channel.waitUntilEnding()
            await self?.ending(channel, reason)
        }
    }

    /// Handles a channel that is over, or whose peer has sent its end.
    private func ending(_ channel: SecureChannel, _ reason: EndReason?) async {
        guard let reason else { return await ended(channel) }
        let hasCarried = await channel.hasCarried
        if reason.error == nil, machine.rules.endsWithPeer, current?.channel === channel {
            hasPeerEnded = true
            waiting.wake(.message)
            if !closeIfBothEnded() {
                try? await channel.waitUntilOver()
                return await ended(channel)
            }
        } else {
            // A call that closes the connection meanwhile waits for this channel.
            if current?.channel === channel { leaving = channel }
            forget(
                channel, because: reason.explanation,
                hasCarried: hasCarried && reason != .duplicate)
        }
        // Each side learns that the other has everything, and that this side continues over another
        // link.
        if reason.error != nil, !hasFinished { try? await channel.finish(reason) }
        try? await channel.close()
        if !machine.isClosed, leaving === channel { leaving = nil }
        await ended(channel)
    }

    /// Closes the connection when neither side has anything more to send; returns whether it did.
    func closeIfBothEnded() -> Bool {
        guard hasFinished, hasPeerEnded, let channel = current?.channel else { return false }
        leaving = channel
        current = nil
        shut(nil)
        return true
    }

    private func ended(_ channel: SecureChannel) async {
        let failure = await channel.endError
        receipts.forget(channel)
        forget(channel, because: failure, hasCarried: await channel.hasCarried)
        // Only channels with unread messages are kept.
        if await !channel.hasUnread { wasRead(channel) }
    }

    /// Stops using the channel.
    func forget(
        _ channel: SecureChannel, because error: ChannelError?, hasCarried: Bool
    ) {
        guard current?.channel === channel else { return }
        current = nil
        let before = machine.status
        let step = machine.lost(
            error, hasCarried: hasCarried, at: loop.now, using: &generator)
        tell(since: before)
        // A task that does not wait for a link must learn that the link is lost.
        waiting.wake(.turn)
        perform(step)
    }

    /// Removes a channel whose messages are all read and that brings no more.
    func wasRead(_ channel: SecureChannel) {
        unread.removeAll { $0 === channel }
        waiting.wake(.message)
        waiting.wake(.room)
    }

    /// Closes the connection for good, and ends the channel in use; messages that have arrived can
    /// still be read.
    func shut(_ error: ChannelError?) {
        let before = machine.status
        machine.close(error, at: loop.now)
        if let channel = current.take()?.channel {
            Task(executorPreference: loop) { await channel.abort() }
        }
        dropAttempt()
        arrivals?.cancel()
        closeRoute()
        tell(since: before)
        for event in Event.allCases { waiting.wake(event) }
    }

    /// Closes the route, so that peers that still connect are refused.
    private func closeRoute() {
        switch route.kind {
        case .listener(let listener):
            Task(executorPreference: loop) { await listener.close() }
        case .nearby(let service):
            Task(executorPreference: loop) { await service.close() }
        case .dial, .offers: break
        }
    }
}

extension ConnectionState {
    /// Whether an attempt can report this state.
    fileprivate var isUnderWay: Bool {
        switch self {
        case .searching, .dialing, .opening, .handshaking: true
        case .connected, .outOfRange, .backingOff, .closed: false
        }
    }
}

extension NearbyEvent {
    /// What a connection needs to know of a service's event.
    fileprivate enum ConnectionReport: Sendable {
        case reached(ConnectionState)
        case failed(ChannelError)
    }

    fileprivate var connectionState: ConnectionReport? {
        switch self {
        case .dialing: .reached(.dialing)
        case .opening: .reached(.opening)
        case .handshaking: .reached(.handshaking)
        case .dialFailed(_, let error): .failed(error)
        case .adapter, .advertising, .acceptFailed, .duplicate: nil
        }
    }
}

extension EndReason {
    /// Why a channel has ended, as an error for the side that lost it.
    fileprivate var explanation: ChannelError {
        switch self {
        case .duplicate: ChannelError(.closed, "the peer kept another channel instead")
        case .interrupted: ChannelError(.truncated, "the peer was interrupted")
        case .untrusted: ChannelError(.refused, "the peer does not trust this side any more")
        case .expired: ChannelError(.closed, "the session reached its maximum age")
        default: ChannelError(.closed, "the peer has left")
        }
    }
}
