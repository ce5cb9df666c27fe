internal import BLESecToolKit

/// The tool; each command has its own file.
@main enum Blesec {
    private static let program = Program(
        name: "blesec", summary: "encrypted, authenticated channels over Bluetooth LE",
        description: [
            "Opens a channel between two devices over Bluetooth LE, without an internet connection "
                + "and without Bluetooth's own pairing. Both devices prove their keys, and nobody else "
                + "can read or change what they send. `blesec help COMMAND` shows the page of a "
                + "command, and `blesec help concepts` explains endpoints, keys and exit statuses."
        ],
        commands: [
            "keygen": { KeygenCommand.command }, "pubkey": { PubkeyCommand.command },
            "listen": { ListenCommand.command }, "connect": { ConnectCommand.command },
            "pair": { PairCommand.command }, "send": { SendCommand.command },
            "receive": { ReceiveCommand.command },
            "chat": { ChatCommand.command }, "forward": { ForwardCommand.command },
            "outbox": { OutboxCommand.command }, "scan": { ScanCommand.command },
            "doctor": { DoctorCommand.command }, "vectors": { VectorsCommand.command },
        ], groups: ["ca": { AuthorityOptions.group }, "peers": { PeersGroup.group }],
        guide: Concepts.page)

    static func main() { program.main() }
}
