internal import BLESec
internal import BLESecJSON
internal import BLESecToolKit

/// `blesec peers list`
enum PeersListCommand {
    static let command = Command(
        name: "blesec peers list", summary: "show all remembered peers",
        options: [PeerMemory.state, .json],
        description: [
            "Prints a line for each remembered peer: its name, its fingerprint, and the address "
                + "where it was reached last, if there is one. A Bluetooth address that is not "
                + "public has `random` after it. If nobody is remembered, the command says so on "
                + "standard error.",
            "The name is one word: a space, a % and a character that a terminal does not show are "
                + "written as % and two hexadecimal digits for each byte. The other commands of "
                + "`blesec peers`, and peer:NAME, take the name in this form, too.",
            "With --json, one object for each peer has `name`, `fingerprint`, `address`, "
                + "`address-type` and `comment`. A missing value is null.",
        ],
        examples: [
            "blesec peers list": "List all peers.",
            "blesec peers list --json | jq -r .name": "Print only the names.",
        ],
        statuses: [.success, .usage, .badData, .noInput, .inputOutput, .protocolError, .untrusted],
        run: run)

    private static func run(_ arguments: Arguments) throws(ChannelError) {
        let peers = try RememberedPeers(arguments).peers
        if peers.isEmpty { Diagnostics.note("nobody is remembered", "nobody") }
        // A name longer than 24 characters moves only the columns of its own line.
        let width = min(peers.map(\.listedName.count).max() ?? 0, 24)
        var text = ""
        for peer in peers {
            text +=
                arguments.has(.json) ? JSONWriter.line(.object(peer.members)) : line(peer, width)
            text += "\n"
        }
        try StandardOutput.print(text)
    }

    private static func line(_ peer: RememberedPeer, _ width: Int) -> String {
        let padding = String(repeating: " ", count: max(0, width - peer.listedName.count))
        let name = peer.listedName + padding
        let columns = [name, peer.key.description, peer.addressText]
        return Diagnostics.oneLine(columns.compactMap { $0 }.joined(separator: " "))
    }
}
