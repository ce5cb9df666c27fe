public import BLESecChannelCore
public import BLESecLinks

extension SecureChannel {
    /// Dials an endpoint, authenticates both sides, and returns the channel.
    ///
    /// The call returns only after the peer has proven its identity, and the configuration's trust
    /// policy has accepted the peer. In negotiated mode, the peer has then also sent `ready`. A
    /// busy peer is dialed once more, 100 to 500 ms later. Cancelling the task ends the attempt at
    /// once.
    ///
    /// - Throws: ``ChannelError``: `noSuchPeer`, `timedOut`, `untrusted` when this side's policy
    ///   refused the peer, `refused` when the peer refused this side, `busy` when the peer was busy
    ///   twice, `noCommonProtocol`, `unproven` in direct mode, and others.
    public static func dial(
        _ endpoint: Endpoint, configuration: ChannelConfiguration, loop: EventLoop = .shared
    ) async throws(ChannelError) -> SecureChannel {
        try await dialAgainIfBusy(
            endpoint, configuration: configuration, loop: loop, whenLinked: {})
    }

    /// Dials, and dials once more if the peer is busy; for callers without a backoff of their own.
    static func dialAgainIfBusy(
        _ endpoint: Endpoint, configuration: ChannelConfiguration, loop: EventLoop,
        whenLinked: () -> Void
    ) async throws(ChannelError) -> SecureChannel {
        do throws(ChannelError) {
            return try await dial(
                endpoint, configuration: configuration, loop: loop, whenLinked: whenLinked)
        } catch {
            guard error.code == .busy else { throw error }
        }
        do {
            // A random delay, so that dialers that were turned away together return one by one.
            try await loop.sleep(for: .milliseconds(Int.random(in: 100...500)))
        } catch {
            throw Task.isCancelled
                ? ChannelError(.cancelled, "the dial was cancelled", phase: .connecting)
                : ChannelError(
                    .closed, "the channel's event loop was shut down", phase: .connecting)
        }
        return try await dial(
            endpoint, configuration: configuration, loop: loop, whenLinked: whenLinked)
    }

    /// Dials once; calls `whenLinked` when the link is open, before the handshake.
    static func dial(
        _ endpoint: Endpoint, configuration: ChannelConfiguration, loop: EventLoop,
        whenLinked: () -> Void
    ) async throws(ChannelError) -> SecureChannel {
        try configuration.validate(for: .dialer)
        let deadline = loop.now.advanced(by: configuration.timeouts.connect)
        let link: any Link
        do throws(LinkError) {
            link = try await endpoint.dial(deadline: deadline, loop: loop)
        } catch {
            throw ChannelError(link: error).during(.connecting)
        }
        whenLinked()
        return try await open(over: link, role: .dialer, configuration: configuration)
    }

    /// Makes a channel over an open link, and returns it when it is ready.
    ///
    /// The channel owns the link from the beginning of the call. The two sides of a link have
    /// different roles; `role` is this side's.
    public static func open(
        over link: any Link, role: ChannelRole, configuration: ChannelConfiguration
    ) async throws(ChannelError) -> SecureChannel {
        let channel = SecureChannel(over: link, role: role, configuration: configuration)
        try await channel.start()
        try await channel.becomeReady()
        return channel
    }
}
