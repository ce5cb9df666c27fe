public import BLESecChannelCore
public import BLESecLinks

/// How a ``PeerConnection`` gets its channels.
public struct PeerRoute: Sendable {
    /// Reports the state of an attempt: searching, dialing, opening or handshaking.
    public typealias Progress = @Sendable (ConnectionState) -> Void
    /// Makes one attempt to get a channel; the attempt is cancelled when it takes too long.
    public typealias Dial =
        @Sendable (_ progress: @escaping Progress) async throws(ChannelError) -> SecureChannel

    enum Kind: Sendable {
        case dial(Dial, on: EventLoop?)
        case listener(SecureListener)
        case nearby(NearbyService)
        case offers
    }

    let kind: Kind

    /// This side dials an endpoint whenever the connection has no channel.
    public static func dialing(
        _ endpoint: Endpoint, configuration: ChannelConfiguration, loop: EventLoop = .shared
    ) -> PeerRoute {
        PeerRoute(
            kind: .dial(
                { progress throws(ChannelError) in
                    try await dial(endpoint, configuration, progress, loop: loop)
                }, on: loop))
    }

    /// Makes one attempt to dial an endpoint. If the peer is busy, the attempt fails, and the
    /// connection backs off. If `isOnlyAttempt` is true, there is no later attempt, so this
    /// attempt dials a busy peer a second time before it fails.
    package static func dial(
        _ endpoint: Endpoint, _ configuration: ChannelConfiguration, _ progress: Progress,
        isOnlyAttempt: Bool = false, loop: EventLoop = .shared
    ) async throws(ChannelError) -> SecureChannel {
        progress(.dialing)
        let dial = isOnlyAttempt ? SecureChannel.dialAgainIfBusy : SecureChannel.dial
        return try await dial(endpoint, configuration, loop) { progress(.handshaking) }
    }

    /// Whenever the connection has no channel, this side calls `dial` to make a channel.
    public static func dialing(_ dial: @escaping Dial) -> PeerRoute {
        PeerRoute(kind: .dial(dial, on: nil))
    }

    /// The peer dials the listener. No other connection may use the listener, and this connection
    /// closes it.
    public static func accepting(from listener: SecureListener) -> PeerRoute {
        PeerRoute(kind: .listener(listener))
    }

    /// The service finds the peer. No other connection may use the service, and this connection
    /// closes it.
    public static func nearby(_ service: NearbyService) -> PeerRoute {
        PeerRoute(kind: .nearby(service))
    }

    /// The program accepts channels for several peers, and passes each connection its channels
    /// (``PeerConnection/offer(_:)``).
    public static let offered = PeerRoute(kind: .offers)

    /// The call that returns the next channel of the listener or service; `nil` on a route on which
    /// the connection dials, or the program offers channels.
    var next: (@Sendable () async throws(ChannelError) -> SecureChannel)? {
        switch kind {
        case .dial, .offers: nil
        case .listener(let listener): { () throws(ChannelError) in try await listener.accept() }
        case .nearby(let service): { () throws(ChannelError) in try await service.next() }
        }
    }

    /// Whether the route itself decides which of two channels to one peer stays.
    var settlesDuplicates: Bool { if case .nearby = kind { true } else { false } }

    /// The loop of the route's channels; `nil` if it is not known yet.
    var loop: EventLoop? {
        switch kind {
        case .dial(_, let loop): loop
        case .offers: nil
        case .listener(let listener): listener.loop
        case .nearby(let service): service.loop
        }
    }
}
