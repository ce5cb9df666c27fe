internal import BLESecToolKit

/// The tool; each command has its own file.
@main enum Blesec {
    private static let program = Program(
        name: "blesec", summary: "encrypted, authenticated channels over Bluetooth LE",
        description: [
            "Opens a channel between two devices over Bluetooth LE, without an internet connection "
                + "and without pairing: both prove their keys, and nobody else reads or changes "
                + "what they say. Each command has a page of its own."
        ],
        commands: [
            KeygenCommand.command, PubkeyCommand.command, ListenCommand.command,
            ConnectCommand.command, ChatCommand.command, ScanCommand.command,
            DoctorCommand.command, VectorsCommand.command,
        ], groups: [AuthorityOptions.group])

    static func main() { program.main() }
}
