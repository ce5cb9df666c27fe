internal import BLESec
internal import BLESecToolKit

/// `blesec peers show NAME`
enum PeersShowCommand {
    static let command = Command(
        name: "blesec peers show", summary: "show what is remembered of a peer",
        operands: ["NAME"], options: [PeerMemory.state, .json],
        description: [
            "Prints the peer's name, its fingerprint, the address where it was reached last, and "
                + "the comment in the peer's line of the file known_peers. If there is no "
                + "address or no comment, its line is left out. With --json, one object has all of this, as "
                + "`blesec peers list` prints it."
        ],
        examples: [
            "blesec peers show lamp": "Show what is remembered of lamp.",
            "blesec peers show 'desk lamp' --json": "Describe a peer for a script.",
        ],
        statuses: [
            .success, .usage, .badData, .noInput, .noPeer, .inputOutput, .protocolError, .untrusted,
        ], run: run)

    private static func run(_ arguments: Arguments) throws(ChannelError) {
        let peer = try RememberedPeers(arguments).find(arguments.operands[0], arguments).peer
        guard !Diagnostics.isJSON else {
            return try StandardOutput.print(line: "", or: peer.members)
        }
        var fields = [("name", peer.name), ("fingerprint", peer.key.description)]
        if let address = peer.addressText { fields.append(("address", address)) }
        if !peer.comment.isEmpty { fields.append(("comment", peer.comment)) }
        try StandardOutput.print(fields)
    }
}
