internal import BLESec
internal import BLESecToolKit

/// How a connection gets its channels, according to a command's arguments: this side dials an
/// endpoint, or waits there, or both sides look for each other nearby.
struct RouteArguments {
    static let listen = Option(
        name: "--listen", help: "Wait for the peer at the endpoint, instead of dialing it.")

    let route: PeerRoute
    /// The time limit for the first channel. The time began before bluetoothd was asked.
    let timeLimit: TimeLimit?
    /// Closes the service or the listener, if there is one.
    let end: @Sendable () async -> Void

    /// Starts the service or the listener that the arguments ask for, if any. Without `endpoint`,
    /// both sides look for each other. A signal or the time limit ends the wait for bluetoothd.
    init(
        _ arguments: Arguments, endpoint: String?, _ options: ChannelOptions,
        _ configuration: ChannelConfiguration, _ notes: ConnectionNotes, _ failures: FailureLog,
        _ interruption: Interruption
    ) async throws(ChannelError) {
        let limit = options.timeLimit?.begun
        timeLimit = limit
        guard let endpoint else {
            try arguments.refuse([Self.listen], "goes with an ENDPOINT")
            let settings = try NearbyArguments(
                arguments, service: NearbyArguments.service(arguments),
                dialsWhenHeardOnce: options.acceptsOnlyCertainPeers)
            let service = try await interruption.cancelling { () async throws(ChannelError) in
                try await settings.start(configuration, within: limit, onEvent: notes.onEvent)
            }
            await NearbyNotes.advertising(service)
            route = .nearby(service)
            end = { await service.close() }
            return
        }
        try arguments.refuse(NearbyArguments.all, "cannot be used with an ENDPOINT")
        let parsed = try ChannelOptions.endpoint(
            endpoint, arguments, for: arguments.has(Self.listen) ? .listening : .dialing,
            otherForms: arguments.has(Self.listen) ? [] : ["peer:NAME", "peer:KEY"])
        guard arguments.has(Self.listen) else {
            route = .dialing { progress throws(ChannelError) in
                try await notes.dial(parsed, configuration, progress)
            }
            end = {}
            return
        }
        let listener = try await SecureListener.listen(on: parsed, configuration: configuration)
        await failures.follow(listener)
        ChannelNotes.listening(listener.localEndpoint)
        route = .accepting(from: listener)
        end = { await listener.close() }
    }
}
