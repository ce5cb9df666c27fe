public import BLESecChannelCore
public import BLESecLinks

extension SecureChannel {
    /// Dials an endpoint, proves both sides, and returns the channel.
    ///
    /// The peer has been judged by the configuration's trust policy, has proven its identity and has
    /// said that it is ready; before that this does not return. A peer that is busy is dialed once
    /// more, 100 to 500 ms later. Cancelling the task ends the attempt at once.
    ///
    /// - Throws: ``ChannelError``: `noSuchPeer`, `timedOut`, `untrusted` when the policy refused,
    ///   `refused` when the peer did, `busy` when it was so twice, `noCommonProtocol`, `unproven` in
    ///   direct mode, and others.
    public static func dial(
        _ endpoint: Endpoint, configuration: ChannelConfiguration, loop: EventLoop = .shared
    ) async throws(ChannelError) -> SecureChannel {
        try await dialTwice(endpoint, configuration: configuration, loop: loop, whenLinked: {})
    }

    /// Dials, and once more if the peer is busy: for those who have no backoff of their own.
    static func dialTwice(
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
            // At random, since others were turned away in the same moment.
            try await loop.sleep(for: .milliseconds(Int.random(in: 100...500)))
        } catch {
            throw ChannelError(.cancelled, "the dial was cancelled", phase: .connecting)
        }
        return try await dial(
            endpoint, configuration: configuration, loop: loop, whenLinked: whenLinked)
    }

    /// Dials once; `whenLinked` is called once there is a link, before the handshake.
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

    /// Makes a channel over a link that is open already; the link is the channel's from now on.
    ///
    /// `role` says which side this is: the two sides of a link have different ones.
    public static func open(
        over link: any Link, role: ChannelRole, configuration: ChannelConfiguration
    ) async throws(ChannelError) -> SecureChannel {
        let channel = SecureChannel(over: link, role: role, configuration: configuration)
        try await channel.start()
        try await channel.becomeReady()
        return channel
    }
}
