public import BLESecChannelCore
public import BLESecLinks

/// How the channels of a ``PeerConnection`` come about.
public struct PeerRoute: Sendable {
    /// Tells how far an attempt has come: searching, dialing, opening or handshaking.
    public typealias Progress = @Sendable (ConnectionState) -> Void
    /// One attempt to make a channel; it is cancelled when it takes too long.
    public typealias Dial =
        @Sendable (_ progress: @escaping Progress) async throws(ChannelError) -> SecureChannel

    enum Kind: Sendable {
        case dial(Dial, on: EventLoop?)
        case listener(SecureListener)
        case nearby(NearbyService)
        case offers
    }

    let kind: Kind

    /// This side dials an endpoint whenever there is no channel.
    public static func dialing(
        _ endpoint: Endpoint, configuration: ChannelConfiguration, loop: EventLoop = .shared
    ) -> PeerRoute {
        PeerRoute(
            kind: .dial(
                { progress throws(ChannelError) in
                    try await dial(endpoint, configuration, progress, loop: loop)
                }, on: loop))
    }

    /// One attempt at an endpoint. A peer that is busy is an attempt that failed, after which the
    /// connection backs off; `isOnly` says that none would follow, so that it is dialed once more.
    package static func dial(
        _ endpoint: Endpoint, _ configuration: ChannelConfiguration, _ progress: Progress,
        isOnly: Bool = false, loop: EventLoop = .shared
    ) async throws(ChannelError) -> SecureChannel {
        progress(.dialing)
        let dial = isOnly ? SecureChannel.dialTwice : SecureChannel.dial
        return try await dial(endpoint, configuration, loop) { progress(.handshaking) }
    }

    /// This side makes channels in a way of its own whenever there is none.
    public static func dialing(_ dial: @escaping Dial) -> PeerRoute {
        PeerRoute(kind: .dial(dial, on: nil))
    }

    /// The peer dials a listener, which this connection has to itself, and closes with itself.
    public static func accepting(from listener: SecureListener) -> PeerRoute {
        PeerRoute(kind: .listener(listener))
    }

    /// The two find each other by a service, which this connection has to itself, and closes with
    /// itself.
    public static func nearby(_ service: NearbyService) -> PeerRoute {
        PeerRoute(kind: .nearby(service))
    }

    /// Somebody else accepts, for several peers, and offers each its channels
    /// (``PeerConnection/offer(_:)``).
    public static let offered = PeerRoute(kind: .offers)

    /// The next channel that comes without an attempt; nil where none does.
    var next: (@Sendable () async throws(ChannelError) -> SecureChannel)? {
        switch kind {
        case .dial, .offers: nil
        case .listener(let listener): { () throws(ChannelError) in try await listener.accept() }
        case .nearby(let service): { () throws(ChannelError) in try await service.next() }
        }
    }

    /// Whether of two channels to one peer it has chosen already.
    var settlesDuplicates: Bool { if case .nearby = kind { true } else { false } }

    /// Where its channels live; nil where that is not known yet.
    var loop: EventLoop? {
        switch kind {
        case .dial(_, let loop): loop
        case .offers: nil
        case .listener(let listener): listener.loop
        case .nearby(let service): service.loop
        }
    }
}
