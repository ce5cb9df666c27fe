internal import BLESec
internal import BLESecJSON
internal import BLESecToolKit

/// `blesec peers rename OLD NEW`
enum PeersRenameCommand {
    static let command = Command(
        name: "blesec peers rename", summary: "give a remembered peer another name",
        operands: ["OLD", "NEW"], options: [PeerMemory.state, .json],
        description: [
            "Gives the peer OLD the name NEW, in one step. Its key, its last address and its "
                + "comment stay. NEW is used as it is written, has 1 to "
                + "\(KnownPeersFile.maximumNameLength) bytes, and must not be a key.",
            "If NEW is the name of another key, the command changes nothing, and fails with status "
                + "77. If the same key is already remembered as NEW too, the entries of OLD are added "
                + "to those of NEW.",
            "A command that is running with --remember OLD refuses the peer from its next link on, "
                + "with an error that says so. Start it again with --remember NEW.",
        ],
        examples: [
            "blesec peers rename lamp 'desk lamp'": "Give lamp the name `desk lamp`.",
            "blesec peers rename desk%20lamp lamp":
                "Give `desk lamp` the name lamp. `blesec peers list` prints the old name as "
                + "desk%20lamp.",
        ],
        statuses: [
            .success, .usage, .badData, .noInput, .noPeer, .cannotCreate, .inputOutput, .timedOut,
            .protocolError, .untrusted,
        ], run: run)

    private static func run(_ arguments: Arguments) throws(ChannelError) {
        let name = arguments.operands[1]
        try PeerMemory.requireName(name, arguments)
        let (peer, folder) = try RememberedPeers(arguments).find(arguments.operands[0], arguments)
        guard try folder.knownPeers.rename(peer.name, to: name) else {
            throw ChannelError(
                .noSuchPeer, "`\(peer.name)` was removed by another process meanwhile")
        }
        try StandardOutput.print(
            line: "`\(peer.name)` is now `\(name)`",
            or: [
                ("renamed", .string(peer.name)), ("name", .string(name)),
                ("fingerprint", .string(peer.key.description)),
            ])
    }
}
