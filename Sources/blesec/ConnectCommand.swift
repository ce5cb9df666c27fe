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
        options: ChannelOptions.all,
        description: [
            "Dials ENDPOINT, proves both sides, and then sends standard input to the peer and "
                + "writes what the peer sends to standard output. ENDPOINT is "
                + "l2cap:AA:BB:CC:DD:EE:FF/0x80, unix:PATH or unix-seqpacket:PATH, as `blesec "
                + "listen` prints it.",
            "Once the channel is ready a line on standard error says so, with the protocol, the "
                + "peer's fingerprint and, where an authority vouches for one, its URI. The end of standard input is told to the peer, and what the "
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
                "blesec connect unix:p --certificate b.pem --key b.key "
                    + "--authority c.pem",
                "Over TLS, to any device of an authority."
            ),
        ],
        statuses: ChannelOptions.statuses)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        let options = try ChannelOptions(arguments)
        let endpoint = try ChannelOptions.endpoint(arguments)
        let interruption = Interruption()
        let configuration = options.configuration
        let limit = options.timeLimit
        let channel = try await interruption.cancelling { () async throws(ChannelError) in
            guard let limit else {
                return try await SecureChannel.dial(endpoint, configuration: configuration)
            }
            return try await limit.run("channel to \(endpoint)") { () async throws(ChannelError) in
                try await SecureChannel.dial(endpoint, configuration: configuration)
            }
        }
        await ChannelNotes.ready(channel)
        let session = Session(
            channel: channel, isDirect: configuration.mode == .direct, keepsOutput: false,
            interruption: interruption)
        try await session.run()
        if arguments.has(.json) { await ChannelNotes.complete(channel) }
    }
}
