internal import BLESec
internal import BLESecToolKit

/// The options of connections that reconnect.
enum PersistentArguments {
    static let persist = Option(
        name: "--persist",
        help: "Whenever the link is lost, get a new one, until both sides have sent everything. "
            + "What each side sends arrives exactly once. The peer needs --persist, too.")

    static let idle = Option(
        name: "--idle", value: "SECONDS",
        help: "Treat the peer as lost after it has sent nothing for this time. The peer is pinged "
            + "after half of this time. The default is 20 seconds.")

    /// The configuration of a channel that detects a lost peer quickly.
    static func configuration(
        _ options: ChannelOptions, _ arguments: Arguments
    ) throws(ChannelError) -> ChannelConfiguration {
        var configuration = options.configuration
        guard configuration.mode == .negotiated else {
            throw arguments.usage(
                "a connection that reconnects needs acknowledgements, which "
                    + "\(ChannelOptions.direct.name) does not have")
        }
        configuration.timeouts.idle = try Seconds.read(arguments, idle) ?? .seconds(20)
        configuration.carriesDelivery = true
        return configuration
    }

    /// The messages arrive exactly once, and count as taken once they are written.
    static var delivery: PeerConnection.Guarantee {
        var options = PeerConnection.DeliveryOptions()
        options.acknowledgement = .manual
        return .exactlyOnce(options)
    }

    /// Moves standard input and output over links of this route until both sides have sent and
    /// written everything.
    static func pipe(
        over route: PeerRoute, to peer: PeerKey?, _ options: ChannelOptions,
        _ notes: ConnectionNotes
    ) async throws(ChannelError) {
        let connection = await PeerConnection.start(route, to: peer, delivery: delivery)
        let session = ConnectionSession(
            connection: connection, interruption: Interruption(), timeLimit: options.timeLimit,
            input: { () throws(ChannelError) in try await StandardInput.shared.next() },
            output: { message throws(ChannelError) in try await StandardOutput.send(message) },
            onStatus: { status throws(ChannelError) in try notes.report(status) },
            waitsForPeer: true)
        let unknown = try await session.run()
        try await StandardOutput.finish()
        guard unknown > 0 else { return }
        throw ChannelError(
            .unacknowledged,
            "the peer's process was replaced; of what was sent, \(unknown) pieces may be missing")
    }
}
