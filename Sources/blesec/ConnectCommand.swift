internal import BLESec
internal import ToolKit

/// `blesec connect ENDPOINT`
enum ConnectCommand {
    static let command = Command(manual: manual) { arguments throws(ChannelError) in
        try await run(arguments)
    }

    private static let manual = Manual(
        name: "blesec connect",
        summary: "open a channel to a listener and pipe standard input and output",
        operands: ["ENDPOINT"],
        options: ChannelOptions.all + [NearbyArguments.service] + NearbyArguments.dialing,
        description: [
            "Dials ENDPOINT, proves both sides, and then sends standard input to the peer and "
                + "writes what the peer sends to standard output. ENDPOINT is "
                + "l2cap:AA:BB:CC:DD:EE:FF/0x80, unix:PATH or unix-seqpacket:PATH, as `blesec "
                + "listen` prints it.",
            "ENDPOINT may also be service:UUID, for whoever advertises that service nearby and is "
                + "accepted, or peer:KEY, for who has that key, whatever the address. Then "
                + "bluetoothd scans, candidates are dialed one after another, the strongest "
                + "signal first, and the first one that proves itself is taken.",
            "Once the channel is ready a line on standard error says so, with the protocol, the "
                + "peer's fingerprint and, where an authority vouches for one, its URI. The end of "
                + "standard input is told to the peer, and what the "
                + "peer sends is still written. The exit status is 0 only when both sides have "
                + "said that they have sent everything, and each has confirmed that it has all of "
                + "it.",
            "SIGINT and SIGTERM end the channel; the peer is told that not everything was sent.",
        ],
        examples: [
            (
                "blesec connect unix:/run/peer --identity key --peer SHA256:...",
                "Both sides prove a key that the other one knows."
            ),
            (
                "blesec connect l2cap:AA:BB:CC:DD:EE:FF/0x80 --peer KEY < file",
                "Send a file over Bluetooth, to whoever has the private key of KEY."
            ),
            (
                "blesec connect peer:SHA256:... --identity key",
                "Find who has that key, wherever it is nearby."
            ),
            (
                "blesec connect unix:p --certificate b.pem --key b.key "
                    + "--authority c.pem",
                "Over TLS, to any device of an authority."
            ),
        ],
        statuses: ChannelOptions.statuses)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        let target = try Target(arguments)
        let options = try ChannelOptions(arguments, expecting: target.peer)
        let configuration = options.configuration
        let way: Way
        switch target {
        case .endpoint(let endpoint):
            for option in [NearbyArguments.service] + NearbyArguments.dialing
            where arguments.has(option) {
                throw arguments.usage("\(option.name) goes with service:UUID or peer:KEY")
            }
            way = Way { () throws(ChannelError) in
                try await SecureChannel.dial(endpoint, configuration: configuration)
            }
        case .service(let service), .peer(_, let service):
            let settings = try NearbyArguments(
                arguments, service: service, isPinned: options.isPinned)
            way = try await look(settings, configuration)
        }
        do throws(ChannelError) {
            try await run(arguments, options, way)
        } catch {
            await way.end()
            throw error
        }
        await way.end()
    }

    /// How a channel comes about.
    private struct Way: Sendable {
        let dial: @Sendable () async throws(ChannelError) -> SecureChannel
        /// Leaves nothing behind.
        var end: @Sendable () async -> Void = {}
    }

    private static func run(
        _ arguments: Arguments, _ options: ChannelOptions, _ way: Way
    ) async throws(ChannelError) {
        let interruption = Interruption()
        let limit = options.timeLimit
        let channel = try await interruption.cancelling { () async throws(ChannelError) in
            guard let limit else { return try await way.dial() }
            return try await limit.run("channel to \(arguments.operands[0])", way.dial)
        }
        await ChannelNotes.ready(channel)
        let session = Session(
            channel: channel, isDirect: options.configuration.mode == .direct,
            keepsOutput: false, interruption: interruption)
        try await session.run()
        if arguments.has(.json) { await ChannelNotes.complete(channel) }
    }

    /// Whom to dial.
    private enum Target {
        case endpoint(Endpoint)
        case service(BluetoothUUID)
        case peer(PeerKey, BluetoothUUID)

        init(_ arguments: Arguments) throws(ChannelError) {
            let text = arguments.operands[0]
            if text.hasPrefix("service:") {
                guard !arguments.has(NearbyArguments.service) else {
                    throw arguments.usage("--service goes with peer:KEY")
                }
                self = .service(try NearbyArguments.uuid(text.dropFirst(8), arguments))
            } else if text.hasPrefix("peer:") {
                self = .peer(
                    try PeerKey(String(text.dropFirst(5))), try NearbyArguments.service(arguments))
            } else {
                self = .endpoint(try ChannelOptions.endpoint(arguments))
            }
        }

        /// The key that the target names.
        var peer: PeerKey? {
            if case .peer(let key, _) = self { key } else { nil }
        }
    }

    /// Looks for someone who is accepted, and for nobody else once there is a channel.
    private static func look(
        _ settings: NearbyArguments, _ configuration: ChannelConfiguration
    ) async throws(ChannelError) -> Way {
        var options = settings.options
        options.accepts = false
        options.rules.links = 1
        let service = try await NearbyService.start(
            settings.service, configuration: configuration, options: options,
            onEvent: NearbyNotes(FailureLog()).take)
        NearbyNotes.looking(service)
        return Way(
            dial: { () throws(ChannelError) in try await service.next() },
            end: { await service.close() })
    }
}
