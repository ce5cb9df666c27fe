internal import BLESec
internal import BLESecToolKit

/// `blesec chat`
enum ChatCommand {
    static let command = Command(
        name: "blesec chat", summary: "send typed lines to a peer, and show the peer's lines",
        operands: ["[ENDPOINT]"],
        options: ChannelOptions.all.filter { $0 != ChannelOptions.direct } + NearbyArguments.all
            + PeerMemory.all + [RouteArguments.listen, PersistentArguments.idle],
        description: [
            "Without ENDPOINT, both sides advertise the service and look for it. Both sides are "
                + "started in the same way, and either side may find the other. With ENDPOINT, one "
                + "side dials the endpoint, and the other side waits there with --listen.",
            "Each line of standard input goes to the peer, and each line from the peer goes to "
                + "standard output, exactly once. A line is delivered when the peer's side has "
                + "written it. While the peer is out of reach, blesec looks for it, and lines "
                + "wait. If the peer's blesec is started anew, nobody can know whether lines that "
                + "were under way have arrived: they are unknown, and are not sent again. If any line "
                + "is unknown when the input ends, the exit status is 76. A line of more than 16,384 "
                + "bytes is sent in pieces of at most 16,384 bytes, and each piece counts as a line.",
            "On a terminal, the fate of a line is shown below the line. Elsewhere, standard error "
                + "says `sent N` for line N, and later `delivered N` or `unknown N`. With --json, "
                + "these reports, the states of the connection and the peer's lines are JSON "
                + "objects. Characters that a terminal would act on are shown as \\u{...}; the "
                + "objects use the escapes of JSON.",
            "The chat ends at the end of standard input, after everything that was sent is "
                + "delivered. If standard output then does not take a line from the peer within 5 "
                + "seconds, the exit status is 76. Exit status 0 means that each line of this side "
                + "was delivered; it says nothing about further lines of the peer, whose side reports "
                + "the fate of each.",
            "After Ctrl-C, the chat waits only while there is a link, or while standard output has "
                + "not taken a line, and for at most 5 seconds without progress; a line that is not "
                + "delivered by then is unknown. The chat does not end when the peer leaves. --peer "
                + "names the peer to accept, and so does --remember with a name that is known. With "
                + "--anyone, the first peer that connects is the only peer until the chat ends.",
        ],
        examples: [
            "blesec chat --service UUID --identity key --peer SHA256:...":
                "Chat with the holder of that key, whenever the holder is nearby.",
            "blesec chat --identity key --anyone --remember anna":
                "Chat with any peer that is there. Later, accept only that peer as anna.",
            "blesec chat unix:/run/chat --listen --identity key --peer SHA256:...":
                "Chat without Bluetooth, with another program of the same user on this machine.",
        ],
        statuses: ChannelOptions.statuses, run: run)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        let memory = try PeerMemory(arguments)
        let operand = arguments.operands.first
        let operandKey = try memory.key(ofOperand: operand)
        let rememberedKey = memory.rememberedKey
        let expected = operandKey ?? rememberedKey
        let options = try ChannelOptions(
            arguments, operandKey: operandKey, rememberedKey: rememberedKey, memory)
        var configuration = try PersistentArguments.configuration(options, arguments)
        let interruption = Interruption()
        let failures = FailureLog()
        let notes = ConnectionNotes(memory, failures)
        if !options.acceptsOnlyCertainPeers { configuration.trust = notes.onlyFirstPeer }
        let routing = try await RouteArguments(
            arguments, endpoint: operandKey == nil ? operand : nil, options, configuration, notes,
            failures, interruption)
        let connection = await PeerConnection.start(
            routing.route, to: expected, delivery: PersistentArguments.delivery())
        let screen = ChatScreen()
        let lines = LineReader { () throws(ChannelError) in try await StandardInput.shared.next() }
        let session = ConnectionSession(
            connection: connection, interruption: interruption, timeLimit: routing.timeLimit,
            input: { () throws(ChannelError) in try await lines.next().map { ($0, nil) } },
            output: { message throws(ChannelError) in try await screen.show(message) },
            onDelivery: { screen.showFate($0, $1, $2) },
            onStatus: { status throws(ChannelError) in try notes.report(status) },
            waitsForPeerEnd: false)
        let unknown: Int
        do throws(ChannelError) {
            unknown = try await session.run()
        } catch {
            await routing.end()
            throw error
        }
        await routing.end()
        guard unknown > 0 else { return }
        throw ChannelError(
            .unacknowledged, "\(unknown) line\(unknown == 1 ? "" : "s") may not have arrived")
    }
}
