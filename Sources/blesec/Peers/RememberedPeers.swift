internal import BLESec
internal import BLESecToolKit

/// The peers in the folder of `--state`, for the commands of `blesec peers`.
struct RememberedPeers: Sendable {
    /// The folder; nil if it is the default one, and does not exist.
    private let folder: StateFolder?
    /// One peer for each name, in the order of the file.
    let peers: [RememberedPeer]
    private let addresses: [Fingerprint: String]

    /// Opens the folder, and reads its files of known peers and of last addresses.
    ///
    /// - Throws: `usage` when neither --state nor the environment names a folder; the errors of
    ///   ``StateFolder`` and of its files.
    init(_ arguments: Arguments) throws(ChannelError) {
        guard let path = try PeerMemory.path(arguments) else {
            throw arguments.usage("neither --state nor a home directory says where peers are")
        }
        do throws(ChannelError) {
            folder = try StateFolder(path)
        } catch {
            guard error.code == .noSuchFile, !arguments.has(PeerMemory.state) else { throw error }
            folder = nil
        }
        addresses = try folder?.lastAddresses.addresses() ?? [:]
        var peers: [RememberedPeer] = []
        var indexes: [String: Int] = [:]
        for line in try folder?.knownPeers.peers() ?? [] {
            guard let index = indexes[line.name] else {
                indexes[line.name] = peers.count
                peers.append(RememberedPeer(line, address: addresses[line.key]))
                continue
            }
            let comments = [peers[index].comment, line.comment]
            peers[index].comment = comments.filter { !$0.isEmpty }.joined(separator: "; ")
        }
        self.peers = peers
    }

    /// The peer that an operand names, and the folder. The operand is the peer's name, or what
    /// `blesec peers list` prints for that name. With `orUnfinished`, the operand may also be the
    /// name of an unfinished pairing.
    ///
    /// - Throws: `noSuchPeer`, which suggests a similar name; `usage` when the operand is the name
    ///   of one peer and the printed name of another.
    func find(
        _ operand: String, _ arguments: Arguments, orUnfinished: Bool = false
    ) throws(ChannelError) -> (peer: RememberedPeer, folder: StateFolder) {
        let peers = try orUnfinished ? peers + unfinishedPairings() : peers
        let found = peers.filter { $0.name == operand || $0.listedName == operand }
        guard let folder, let peer = found.first else {
            throw ChannelError(
                .noSuchPeer,
                "nobody called `\(operand)` is remembered"
                    + (folder.map { " in \($0.path)" } ?? "")
                    + Suggestion.text(for: operand, among: peers.map(\.listedName)))
        }
        guard found.count == 1 else {
            let ways = found.map { "`\($0.listedName == operand ? $0.name : $0.listedName)`" }
            throw arguments.usage(
                "`\(operand)` is the name of one peer, and what `blesec peers list` prints for "
                    + "another; write \(ways.alternatives)")
        }
        return (peer, folder)
    }

    /// The unfinished pairings whose names no remembered peer has: of each name, the newest pairing.
    private func unfinishedPairings() throws(ChannelError) -> [RememberedPeer] {
        var names = Set(peers.map(\.name))
        let pending = try folder?.knownPeers.pendingPeers() ?? []
        return pending.reversed().filter { names.insert($0.name).inserted }
            .map { RememberedPeer($0, address: addresses[$0.key]) }
    }
}
