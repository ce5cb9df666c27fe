internal import BLESec
internal import BLESecToolKit

/// `blesec connect ENDPOINT`
enum ConnectCommand {
    static let command = Command(
        name: "blesec connect",
        summary: "open a channel to a listener and pipe standard input and output",
        operands: ["ENDPOINT"],
        options: ChannelOptions.all + NearbyArguments.dialing
            + PeerMemory.all + PersistentArguments.all,
        description: [
            "Dials ENDPOINT, and both sides prove their identities. Then standard input goes to "
                + "the peer, and what the peer sends goes to standard output. ENDPOINT is "
                + "l2cap:AA:BB:CC:DD:EE:FF/0x80, unix:PATH or unix-seqpacket:PATH, as `blesec "
                + "listen` prints it.",
            "ENDPOINT may also be service:UUID, peer:NAME or peer:KEY, without an address. "
                + "service:UUID means any accepted peer that advertises the service nearby. "
                + "peer:NAME means the peer that was remembered by that name, and peer:KEY means "
                + "the peer with that key. A remembered peer is first dialed at its last address. "
                + "If the peer is not there, or has no last address, bluetoothd scans, blesec "
                + "dials the candidates one after another, and uses the first candidate that "
                + "proves itself.",
            "When the channel is ready, a line on standard error names the protocol, the peer's "
                + "fingerprint and, if an authority has certified the peer, the URI in the peer's "
                + "certificate. The peer is told when standard input ends, and what the peer sends "
                + "after that is still written. The exit status is 0 only when both sides have "
                + "said that they have sent everything, and each side has confirmed that it has "
                + "received everything.",
            "With --persist on both sides, blesec replaces a lost link, and what each side sends "
                + "arrives exactly once, while both processes live. If the peer's process is "
                + "replaced, pieces that may have arrived are not sent again. The exit status of a "
                + "side is then 76 if the side may not have received everything, or if pieces that "
                + "it sent may not have arrived. "
                + "When everything is sent and confirmed, blesec waits up to 30 seconds for "
                + "a peer that may not know that yet.",
            "If standard error is a terminal and standard output is not, a line shows the bytes in "
                + "each direction and their rates; not with --json.",
            "SIGINT and SIGTERM end the channel. The peer is told that not everything was sent.",
        ],
        examples: [
            "blesec connect unix:/run/peer --identity key --peer SHA256:...":
                "Connect two sides that know each other's keys.",
            "blesec connect l2cap:AA:BB:CC:DD:EE:FF/0x80 --peer KEY < file":
                "Send a file over Bluetooth to the holder of the private key of KEY.",
            "blesec connect peer:SHA256:... --identity key --remember lamp":
                "Find the holder of that key nearby, and remember the holder as lamp.",
            "blesec connect peer:lamp --identity key --persist":
                "Stay connected to the peer that was remembered as lamp.",
            "blesec connect unix:p --certificate b.pem --key b.key --authority c.pem":
                "Connect over TLS to any device of an authority.",
        ],
        statuses: ChannelOptions.statuses, run: run)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        let isPersistent = arguments.has(PersistentArguments.persist)
        let memory = try PeerMemory(arguments)
        let target = try Target(arguments.operands[0], arguments, memory)
        let options = try ChannelOptions(
            arguments, operandKey: target.peer, rememberedKey: memory.rememberedKey, memory)
        // Reports the connection, and stores its peer in `memory`.
        let notes = ConnectionNotes(memory, FailureLog())
        var configuration = options.configuration
        if isPersistent {
            configuration = try PersistentArguments.configuration(options, arguments)
        } else {
            try PersistentArguments.refuseWithoutPersist(arguments)
        }
        let dialer = try TargetDialer(
            target, arguments, options, configuration, isOnlyAttempt: !isPersistent,
            rememberedKey: memory.rememberedKey, memory, notes)
        do throws(ChannelError) {
            if isPersistent {
                try await persist(arguments, options, dialer, to: target.peer, notes)
            } else {
                try await run(arguments, options, dialer, notes)
            }
        } catch {
            await dialer.end()
            throw error
        }
        await dialer.end()
    }

    private static func run(
        _ arguments: Arguments, _ options: ChannelOptions, _ dialer: TargetDialer,
        _ notes: ConnectionNotes
    ) async throws(ChannelError) {
        let interruption = Interruption()
        let limit = options.timeLimit
        let dial = { @Sendable () async throws(ChannelError) in
            try await dialer.dial(ConnectionNotes.attemptProgress)
        }
        let channel: SecureChannel
        do throws(ChannelError) {
            channel = try await interruption.cancelling { () async throws(ChannelError) in
                guard let limit else { return try await dial() }
                return try await limit.run(
                    orFail: "no channel to \(arguments.operands[0]) was ready", dial)
            }
        } catch {
            throw dialer.explained(error)
        }
        do throws(ChannelError) {
            // If the name from `--remember` cannot be stored, the channel is aborted.
            try notes.remember(
                await channel.peer, linkDescription: channel.linkDescription)
        } catch {
            await channel.abort()
            throw error
        }
        await ChannelNotes.ready(channel)
        let session = ChannelSession(
            channel: channel, isDirect: options.configuration.mode == .direct,
            keepsOutput: false, interruption: interruption)
        try await session.run()
        if arguments.has(.json) { await ChannelNotes.complete(channel) }
    }

    private static func persist(
        _ arguments: Arguments, _ options: ChannelOptions, _ dialer: TargetDialer,
        to peer: PeerKey?, _ notes: ConnectionNotes
    ) async throws(ChannelError) {
        do throws(ChannelError) {
            try await PersistentArguments.pipe(
                over: .dialing(dialer.dial), to: peer, arguments, options, notes, Interruption())
        } catch {
            throw dialer.explained(error)
        }
    }
}
