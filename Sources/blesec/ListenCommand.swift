internal import BLESec
internal import BLESecToolKit

/// `blesec listen ENDPOINT`
enum ListenCommand {
    private static let keep = Option(
        name: "--keep",
        help: "Serve one peer after another, and report how each channel ended. The first peer "
            + "gets standard input, and later peers get what is left of standard input.")

    static let command = Command(
        name: "blesec listen", summary: "wait for a peer and pipe standard input and output",
        operands: ["[ENDPOINT]"],
        options: ChannelOptions.all + NearbyArguments.accepting + [keep],
        description: [
            "Listens on ENDPOINT. When a peer dials, both sides prove their identities. Then "
                + "standard input goes to the peer, and what the peer sends goes to standard "
                + "output. ENDPOINT is l2cap:any or l2cap:any/0x85, unix:PATH or "
                + "unix-seqpacket:PATH.",
            "With --service and without ENDPOINT, peers find the listener over Bluetooth: "
                + "bluetoothd advertises the service, and a GATT characteristic of the service "
                + "tells where to dial. Anyone nearby can see where to dial, under a random tag "
                + "that changes every 15 minutes. Anyone nearby can also see the adapter's "
                + "address, which blesec does not change. The service is published again when "
                + "bluetoothd restarts, or when the adapter is switched off and on.",
            "As soon as peers can dial, a line on standard error says `listening on` and the real "
                + "address, in the form that `blesec connect` takes. When a channel is ready, "
                + "another line names the protocol, the peer's fingerprint and, if an authority "
                + "has certified the peer, the URI in the peer's certificate. Refused peers are "
                + "reported on standard error too, and do not end the wait.",
            "The peer is told when standard input ends, and what the peer sends after that is "
                + "still written. The exit status is 0 only when both sides have said that they "
                + "have sent everything, and each side has confirmed that it has received "
                + "everything.",
            "SIGINT and SIGTERM end the channel. The peer is told that not everything was sent.",
        ],
        examples: [
            "blesec listen l2cap:any --identity key --peer SHA256:...":
                "Wait for one peer on the first Bluetooth adapter.",
            "blesec listen --service UUID --identity key --peer SHA256:...":
                "Wait for one peer that looks for the service.",
            "blesec listen unix:/run/peer --identity key --anyone --keep > log":
                "Collect what anyone sends, one peer after another.",
            "blesec listen l2cap:any --certificate a.pem --key a.key --authority c.pem":
                "Wait for any device of an authority, over TLS.",
        ],
        statuses: ChannelOptions.statuses, run: run)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        let options = try ChannelOptions(arguments)
        let interruption = Interruption()
        let failures = FailureLog()
        let source: ChannelSource
        if arguments.operands.isEmpty {
            guard arguments.has(NearbyArguments.service) else {
                throw arguments.usage("ENDPOINT is missing, or --service UUID instead of it")
            }
            source = try await nearby(arguments, options, failures)
        } else {
            try arguments.refuse(NearbyArguments.accepting, "goes without an ENDPOINT")
            let endpoint = try ChannelOptions.endpoint(arguments)
            source = try await listen(on: endpoint, options, failures)
        }
        do throws(ChannelError) {
            try await serve(source, options, interruption, keeps: arguments.has(keep))
        } catch {
            await source.close()
            throw error
        }
        await source.close()
    }

    /// A source of accepted channels: a listener or a service.
    private struct ChannelSource: Sendable {
        let accept: @Sendable () async throws(ChannelError) -> SecureChannel
        let close: @Sendable () async -> Void
    }

    private static func listen(
        on endpoint: Endpoint, _ options: ChannelOptions, _ failures: FailureLog
    ) async throws(ChannelError) -> ChannelSource {
        let listener = try await SecureListener.listen(
            on: endpoint, configuration: options.configuration)
        await failures.follow(listener)
        ChannelNotes.listening(listener.localEndpoint)
        return ChannelSource(
            accept: { () throws(ChannelError) in try await listener.accept() },
            close: { await listener.close() })
    }

    private static func nearby(
        _ arguments: Arguments, _ options: ChannelOptions, _ failures: FailureLog
    ) async throws(ChannelError) -> ChannelSource {
        var settings = try NearbyArguments(
            arguments, service: NearbyArguments.service(arguments), isPinned: options.isPinned)
        settings.options.dials = false
        let service = try await NearbyService.start(
            settings.service, configuration: options.configuration, options: settings.options,
            onEvent: NearbyNotes(failures: failures).onEvent)
        await NearbyNotes.advertising(service)
        return ChannelSource(
            accept: { () throws(ChannelError) in try await service.next() },
            close: { await service.close() })
    }

    private static func serve(
        _ source: ChannelSource, _ options: ChannelOptions, _ interruption: Interruption,
        keeps: Bool
    ) async throws(ChannelError) {
        let limit = options.timeLimit
        repeat {
            let channel = try await interruption.cancelling { () async throws(ChannelError) in
                guard let limit else { return try await source.accept() }
                return try await limit.run("channel") { () async throws(ChannelError) in
                    try await source.accept()
                }
            }
            if !keeps { await source.close() }
            await ChannelNotes.ready(channel)
            let session = ChannelSession(
                channel: channel, isDirect: options.configuration.mode == .direct,
                keepsOutput: keeps, interruption: interruption)
            do throws(ChannelError) {
                try await session.run()
                if keeps || Diagnostics.isJSON { await ChannelNotes.complete(channel) }
            } catch {
                // After a signal, or without its input or output, the tool serves no further peer.
                let endsTool = error.code == .inputOutput || interruption.error != nil
                guard keeps, !endsTool else { throw error }
                Diagnostics.print(error)
            }
        } while keeps
    }
}
