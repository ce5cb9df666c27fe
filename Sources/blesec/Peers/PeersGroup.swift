internal import BLESecToolKit

/// `blesec peers`, the group of commands about remembered peers.
enum PeersGroup {
    static let group = Program(
        name: "blesec peers", summary: "list, rename and forget the peers that are remembered",
        description: [
            "`blesec connect`, `blesec chat` and others remember a peer with --remember NAME: its "
                + "name, its fingerprint, and the address where it was reached last. The "
                + "commands of `blesec peers` show and change what is remembered. Nothing is sent "
                + "to a peer."
        ],
        commands: [
            "list": { PeersListCommand.command }, "show": { PeersShowCommand.command },
            "rename": { PeersRenameCommand.command }, "forget": { PeersForgetCommand.command },
        ])
}
