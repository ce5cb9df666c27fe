internal import BLESec
internal import BLESecToolKit

/// `blesec chat`
enum ChatCommand {
    private static let listen = Option(
        name: "--listen", help: "Wait on ENDPOINT for the peer instead of dialing it.")

    static let command = Command(
        name: "blesec chat", summary: "type lines to a peer, and read what it types",
        operands: ["[ENDPOINT]"],
        options: ChannelOptions.all.filter { $0 != ChannelOptions.direct } + NearbyArguments.all
            + PeerMemory.all + [listen, PersistentArguments.idle],
        description: [
            "Both sides advertise the service and look for it, so that both are started alike and it "
                + "does not matter who finds whom. With ENDPOINT one side dials it, and the other "
                + "one waits there with --listen.",
            "Each line of standard input goes to the peer, and each line of the peer's to standard "
                + "output. A line is delivered when the peer's side has written it. When the link "
                + "goes while a line is under way nobody can know whether it has arrived: it is "
                + "unknown, and is not sent again. A peer that was out of reach is found again, and "
                + "lines typed meanwhile wait.",
            "On a terminal the fate of a line is shown below it. Elsewhere standard error says "
                + "`sent N`, and later `delivered N` or `unknown N`, of line N (`received N` where the "
                + "peer's side is older and tells only that it has it); with --json these, "
                + "the states of the connection and the peer's lines are objects. Characters that "
                + "a terminal would act on are shown as \\u{...}, and in an object as JSON "
                + "escapes them.",
            "The chat ends with standard input or with Ctrl-C, once what was sent is delivered; it "
                + "does not end when the peer leaves. Whom to accept is said by --peer, or by "
                + "--remember with a name that is known; with --anyone the first one that comes is "
                + "the peer until the chat ends.",
        ],
        examples: [
            "blesec chat --service UUID --identity key --peer SHA256:...":
                "Talk to the holder of that key, whenever it is nearby.",
            "blesec chat --identity key --anyone --remember anna":
                "Talk to whoever is there now, and from then on to nobody else as anna.",
            "blesec chat unix:/run/chat --listen --identity key --peer SHA256:...":
                "The same without Bluetooth, between two users of one machine.",
        ],
        statuses: ChannelOptions.statuses, run: run)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        let memory = try PeerMemory(arguments)
        let expected = try memory.expected
        let options = try ChannelOptions(arguments, known: expected)
        var configuration = try PersistentArguments.configuration(options, arguments)
        let interruption = Interruption()
        let failures = FailureLog()
        let notes = ConnectionNotes(memory, failures)
        if !options.isPinned { configuration.trust = notes.firstComer }
        let (route, end) = try await makeRoute(arguments, options, configuration, notes, failures)
        let connection = await PeerConnection.start(route, to: expected)
        let screen = ChatScreen()
        let lines = LineReader { () throws(ChannelError) in try await StandardInput.shared.next() }
        let session = ConnectionSession(
            connection: connection, interruption: interruption, timeLimit: options.timeLimit,
            input: { () throws(ChannelError) in try await lines.next() },
            output: { message throws(ChannelError) in try await screen.show(message) },
            tell: { screen.tell($0, $1, $2) },
            onStatus: { status throws(ChannelError) in try notes.report(status) },
            waitsForPeer: false)
        do throws(ChannelError) {
            _ = try await session.run()
        } catch {
            await end()
            throw error
        }
        await end()
    }

    /// How the two peers connect, and the function that ends the service or the listener.
    private static func makeRoute(
        _ arguments: Arguments, _ options: ChannelOptions, _ configuration: ChannelConfiguration,
        _ notes: ConnectionNotes, _ failures: FailureLog
    ) async throws(ChannelError) -> (PeerRoute, @Sendable () async -> Void) {
        guard !arguments.operands.isEmpty else {
            try arguments.refuse([listen], "goes with an ENDPOINT")
            let settings = try NearbyArguments(
                arguments, service: NearbyArguments.service(arguments), isPinned: options.isPinned)
            let service = try await NearbyService.start(
                settings.service, configuration: configuration, options: settings.options,
                onEvent: notes.take)
            await NearbyNotes.advertising(service)
            return (.nearby(service), { await service.close() })
        }
        try arguments.refuse(NearbyArguments.all, "goes without an ENDPOINT")
        let endpoint = try ChannelOptions.endpoint(arguments)
        guard arguments.has(listen) else {
            return (.dialing(endpoint, configuration: configuration), {})
        }
        let listener = try await SecureListener.listen(on: endpoint, configuration: configuration)
        await failures.follow(listener)
        ChannelNotes.listening(listener.localEndpoint)
        return (.accepting(from: listener), { await listener.close() })
    }
}
