internal import BLESec
internal import BLESecToolKit

/// `blesec listen ENDPOINT`
enum ListenCommand {
    private static let keep = Option(
        name: "--keep",
        help: "Serve one peer after another, and report how each channel ended. Standard input "
            + "goes to the first peer. When that channel has ended, the rest goes to later peers. "
            + "What was on its way to a peer that is lost is not sent again.")

    static let command = Command(
        name: "blesec listen", summary: "wait for a peer and pipe standard input and output",
        operands: ["[ENDPOINT]"],
        options: ChannelOptions.all + NearbyArguments.accepting
            + [keep] + PeerMemory.all + PersistentArguments.all,
        description: [
            "Listens on ENDPOINT. When a peer dials, both sides prove their identities. Then "
                + "standard input goes to the peer, and what the peer sends goes to standard "
                + "output. ENDPOINT is l2cap:any or l2cap:any/0x85, unix:PATH or "
                + "unix-seqpacket:PATH.",
            "With --service and without ENDPOINT, peers find the listener over Bluetooth: "
                + "bluetoothd advertises the service, and a GATT characteristic of the service "
                + "tells where to dial. Anyone nearby can see where to dial, and a random tag "
                + "that changes every 15 minutes. Anyone nearby can also see the adapter's "
                + "address, which blesec does not change. The service is published again when "
                + "bluetoothd restarts, or when the adapter is switched off and on.",
            "As soon as peers can dial, a line on standard error says `listening on` and the real "
                + "address, in the form that `blesec connect` takes. When a channel is ready, "
                + "another line names the protocol, the peer's fingerprint and, if an authority "
                + "has certified the peer, the URI in the peer's certificate. Refused peers are "
                + "reported on standard error too, and do not end the wait.",
            "With --remember NAME, the peer is remembered once it has proven its key; if NAME is "
                + "known already, only that peer is accepted, and no other option has to name it.",
            "When standard input ends, the peer is told so, and what the peer still sends is "
                + "written. The exit status is 0 only when both sides have said that they "
                + "have sent everything, and each side has confirmed that it has received "
                + "everything.",
            "With --persist on both sides, a lost link is replaced, and what each side sends "
                + "arrives exactly once, while both processes live. If one of the processes is "
                + "replaced, the exit status of a side is 76 if the side may not have received "
                + "everything, or if pieces that it sent may not have arrived. With --anyone, only "
                + "the first peer that connects is accepted. When everything is sent and confirmed, "
                + "blesec waits up to 30 seconds for a peer that may not know that yet.",
            "If standard error is a terminal and standard output is not, a line shows the bytes in "
                + "each direction and their rates, unless --json is given.",
            "SIGINT and SIGTERM end the channel. The peer is told that not everything was sent.",
        ],
        examples: [
            "blesec listen l2cap:any --identity key --peer SHA256:...":
                "Wait for one peer at all Bluetooth adapters.",
            "blesec listen --service UUID --identity key --peer SHA256:...":
                "Wait for one peer that looks for the service.",
            "blesec listen l2cap:any --identity key --peer SHA256:... --remember anna":
                "Wait for the holder of that key, and remember the holder as anna.",
            "blesec listen unix:/run/peer --identity key --anyone --keep > log":
                "Collect what anyone sends, one peer after another.",
            "blesec listen l2cap:any --certificate a.pem --key a.key --authority c.pem":
                "Wait for any device of an authority, over TLS.",
        ],
        statuses: ChannelOptions.statuses, run: run)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        let memory = try PeerMemory(arguments)
        let rememberedKey = memory.rememberedKey
        var options = try ChannelOptions(arguments, rememberedKey: rememberedKey, memory)
        let failures = FailureLog()
        let notes = ConnectionNotes(memory, failures)
        let limit = options.timeLimit?.begun
        guard arguments.has(PersistentArguments.persist) else {
            try PersistentArguments.refuseWithoutPersist(arguments)
            let interruption = Interruption()
            // A signal ends the wait for bluetoothd.
            let source = try await interruption.cancelling {
                [options] () async throws(ChannelError) in
                try await Self.source(arguments, options, options.configuration, limit, failures)
            }
            return try await source.use { () async throws(ChannelError) in
                try await serve(
                    source, options, limit, notes, interruption,
                    servesFurtherPeers: arguments.has(keep))
            }
        }
        try arguments.refuse([keep], "cannot be used with \(PersistentArguments.persist.name)")
        var configuration = try PersistentArguments.configuration(options, arguments)
        if !options.acceptsOnlyCertainPeers { configuration.trust = notes.onlyFirstPeer }
        options.timeLimit = limit
        let interruption = Interruption()
        let source = try await interruption.cancelling {
            [options, configuration] () async throws(ChannelError) in
            try await Self.source(arguments, options, configuration, limit, failures)
        }
        try await source.use { () async throws(ChannelError) in
            try await PersistentArguments.pipe(
                over: source.route, to: rememberedKey, arguments, options, notes, interruption)
        }
    }

    /// What accepts the channels: a listener at an endpoint, or a service nearby.
    private enum ChannelSource: Sendable {
        case listener(SecureListener)
        case service(NearbyService)

        func accept() async throws(ChannelError) -> SecureChannel {
            switch self {
            case .listener(let listener): try await listener.accept()
            case .service(let service): try await service.next()
            }
        }

        var route: PeerRoute {
            switch self {
            case .listener(let listener): .accepting(from: listener)
            case .service(let service): .nearby(service)
            }
        }

        func close() async {
            switch self {
            case .listener(let listener): await listener.close()
            case .service(let service): await service.close()
            }
        }

        /// Runs `body`, and then closes the source, also if `body` throws.
        func use(_ body: () async throws(ChannelError) -> Void) async throws(ChannelError) {
            do throws(ChannelError) {
                try await body()
            } catch {
                await close()
                throw error
            }
            await close()
        }
    }

    private static func source(
        _ arguments: Arguments, _ options: ChannelOptions, _ configuration: ChannelConfiguration,
        _ limit: TimeLimit?, _ failures: FailureLog
    ) async throws(ChannelError) -> ChannelSource {
        guard arguments.operands.isEmpty else {
            try arguments.refuse(NearbyArguments.accepting, "cannot be used with an ENDPOINT")
            let listener = try await SecureListener.listen(
                on: ChannelOptions.endpoint(arguments.operands[0], arguments, for: .listening),
                configuration: configuration)
            await failures.follow(listener)
            ChannelNotes.listening(listener.localEndpoint)
            return .listener(listener)
        }
        guard arguments.has(NearbyArguments.service) else {
            throw arguments.usage("give an ENDPOINT, or --service UUID")
        }
        var settings = try NearbyArguments(
            arguments, service: NearbyArguments.service(arguments),
            dialsWhenHeardOnce: options.acceptsOnlyCertainPeers)
        settings.options.dials = false
        let service = try await settings.start(
            configuration, within: limit, onEvent: NearbyNotes(failures: failures).onEvent)
        await NearbyNotes.advertising(service)
        return .service(service)
    }

    /// Serves one peer or, if `servesFurtherPeers` is true, one peer after another. `firstLimit` is the
    /// time limit for the first channel.
    private static func serve(
        _ source: ChannelSource, _ options: ChannelOptions, _ firstLimit: TimeLimit?,
        _ notes: ConnectionNotes, _ interruption: Interruption, servesFurtherPeers: Bool
    ) async throws(ChannelError) {
        var nextLimit = firstLimit
        repeat {
            let limit = nextLimit
            nextLimit = options.timeLimit
            let channel = try await interruption.cancelling { () async throws(ChannelError) in
                guard let limit else { return try await source.accept() }
                return try await limit.run(orFail: TimeLimit.noChannel) {
                    () async throws(ChannelError) in
                    try await source.accept()
                }
            }
            if !servesFurtherPeers { await source.close() }
            do throws(ChannelError) {
                // If the peer cannot be remembered, its channel is aborted, as in `connect`.
                try notes.remember(await channel.peer, linkDescription: nil)
            } catch {
                await channel.abort()
                guard servesFurtherPeers else { throw error }
                Diagnostics.print(error)
                continue
            }
            await ChannelNotes.ready(channel)
            let session = ChannelSession(
                channel: channel, isDirect: options.configuration.mode == .direct,
                keepsOutput: servesFurtherPeers, interruption: interruption)
            do throws(ChannelError) {
                try await session.run()
                if servesFurtherPeers || Diagnostics.isJSON { await ChannelNotes.complete(channel) }
            } catch {
                // After a signal, or an error of standard input or output, no further peer is
                // served.
                let endsTool = error.code == .inputOutput || interruption.error != nil
                guard servesFurtherPeers, !endsTool else { throw error }
                Diagnostics.print(error)
            }
        } while servesFurtherPeers
    }
}
