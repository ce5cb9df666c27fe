internal import BLESec
internal import BLESecToolKit

/// A peer as an operand names it: ENDPOINT, service:UUID, peer:NAME or peer:KEY.
enum Target {
    case endpoint(Endpoint)
    case service(BluetoothUUID)
    case peer(PeerKey, service: BluetoothUUID)

    init(_ text: String, _ arguments: Arguments, _ memory: PeerMemory) throws(ChannelError) {
        if text.hasPrefix("service:") {
            guard !arguments.has(NearbyArguments.service) else {
                throw arguments.usage("--service goes with peer:KEY")
            }
            self = .service(try NearbyArguments.uuid(text.dropFirst(8), arguments))
        } else if let nameOrKey = PeerMemory.nameOrKey(text) {
            self = .peer(
                try memory.key(nameOrKey), service: try NearbyArguments.service(arguments))
        } else {
            self = .endpoint(
                try ChannelOptions.endpoint(
                    text, arguments, for: .dialing,
                    otherForms: ["service:UUID", "peer:NAME", "peer:KEY"]))
        }
    }

    /// The key that the operand names.
    var peer: PeerKey? { if case .peer(let key, _) = self { key } else { nil } }
}

/// Dials a target, or searches for it and dials it.
struct TargetDialer: Sendable {
    let dial: PeerRoute.Dial
    /// Maps the error that ended the search or the channel to the error to report.
    private(set) var explained: @Sendable (ChannelError) -> ChannelError = { $0 }
    /// Ends the search for the peer, if there is one. Channels that the search has made stay open.
    private(set) var end: @Sendable () async -> Void = {}

    init(
        _ target: Target, _ arguments: Arguments, _ options: ChannelOptions,
        _ configuration: ChannelConfiguration, isOnlyAttempt: Bool, rememberedKey: PeerKey?,
        _ memory: PeerMemory, _ notes: ConnectionNotes
    ) throws(ChannelError) {
        switch target {
        case .endpoint(let endpoint):
            try arguments.refuse(NearbyArguments.dialing, "goes with service:UUID or peer:KEY")
            dial = { progress throws(ChannelError) in
                do throws(ChannelError) {
                    return try await notes.dial(
                        endpoint, configuration, progress, isOnlyAttempt: isOnlyAttempt)
                } catch {
                    throw rememberedKey.flatMap {
                        memory.changedKeyError(error, of: $0, at: endpoint)
                    } ?? error
                }
            }
        case .service(let service), .peer(_, let service):
            let settings = try NearbyArguments(
                arguments, service: service,
                dialsWhenHeardOnce: options.acceptsOnlyCertainPeers)
            let last = try target.peer.flatMap { peer throws(ChannelError) in
                try memory.lastEndpoint(of: peer).map { (endpoint: $0, peer: peer) }
            }
            let search = PeerSearch(settings, configuration, last: last, memory, notes)
            dial = { progress throws(ChannelError) in try await search.dial(progress) }
            explained = { search.explained($0) }
            end = { await search.end() }
        }
    }
}
