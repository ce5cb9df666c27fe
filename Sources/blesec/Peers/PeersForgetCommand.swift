internal import BLESec
internal import BLESecJSON
internal import BLESecStore
internal import BLESecToolKit

/// `blesec peers forget NAME`
enum PeersForgetCommand {
    private static let store = Option(
        name: "--store", value: "DIR", isRepeatable: true,
        help: "Also drop the messages that wait for the peer in DIR, the directory that --store of "
            + "the other commands named. No other process may use the stores in DIR. May be "
            + "repeated.")
    private static let yes = Option(
        name: "--yes", help: "Do not ask, for scripts and where there is no terminal.")

    static let command = Command(
        name: "blesec peers forget", summary: "forget a remembered peer", operands: ["NAME"],
        options: [store, yes, PeerMemory.state, .json],
        description: [
            "Removes the name of a peer with its comment, every unfinished pairing under this name, "
                + "and the last address of the peer's key. If another name has the same key, the "
                + "address stays. From then on, --remember NAME accepts another key, as for a new "
                + "name. NAME may also be a name that only an unfinished pairing has. The command "
                + "prints what it has removed, with the keys of all unfinished pairings.",
            "With --store DIR, the messages for the peer that wait in DIR are dropped, as by "
                + "`blesec outbox DIR drop`, if no byte of them has been sent: the peer never gets "
                + "them. A message that may have arrived cannot be dropped. It stays in DIR, and "
                + "the command says so. To remove such messages too, remove DIR.",
            "The command first asks at the terminal, and shows what will be removed. If the answer "
                + "is no, nothing is removed, and the status is 0. Without a terminal, --yes is "
                + "necessary.",
            "The messages are dropped first, and the name is removed last. If the command is "
                + "interrupted, start it again. A forgotten peer is not refused: --anyone and "
                + "--peer accept it as before.",
            "A command that is running with --remember NAME refuses the peer from its next link on, "
                + "with an error that says so, and does not remember the peer again. A command that "
                + "was started with peer:NAME goes on with the peer's key. A channel that is open "
                + "stays open. To change this, end the command, or start it again.",
        ],
        examples: [
            "blesec peers forget lamp": "Ask, and forget lamp.",
            "blesec peers forget lamp --yes --store ~/transfer":
                "Forget lamp and drop what waits for it, without a question.",
        ],
        statuses: [
            .success, .usage, .badData, .noInput, .noPeer, .cannotCreate, .inputOutput, .timedOut,
            .protocolError, .untrusted,
        ], run: run)

    /// The messages that wait for the peer in a directory. As long as this value exists, no other
    /// process can use the peer's stores there.
    private struct WaitingMessages {
        let directory: String
        let outboxes: [Outbox]

        /// The messages that can be dropped, and those that may have arrived.
        var sums: (queued: OutboxCommand.Sum, mayHaveArrived: OutboxCommand.Sum) {
            let sums = OutboxCommand.sums(outboxes.flatMap(\.messages))
            return (sums.queued, sums.mayHaveArrived)
        }
    }

    private static func run(_ arguments: Arguments) throws(ChannelError) {
        let remembered = try RememberedPeers(arguments)
        let (peer, folder) = try remembered.find(
            arguments.operands[0], arguments, orUnfinished: true)
        let others = remembered.peers.filter { $0.key == peer.key && $0.name != peer.name }
        // The stores are opened before anything is removed: a store in use stops the command.
        var waiting: [WaitingMessages] = []
        // A directory that is given twice is opened only once: the first opening locks its stores.
        for directory in arguments.values(store)
        where !waiting.contains(where: { $0.directory == directory }) {
            waiting.append(try open(directory, peer.key))
        }
        let unfinished = try keysOfUnfinishedPairings(peer, folder)
        if !arguments.has(yes) {
            let lines = description(of: peer, others, waiting, unfinished, in: folder)
            guard
                try TerminalQuestion.ask(
                    "Remove this?", after: lines, remedy: "use --yes to forget without a question")
            else { return Diagnostics.note("nothing was removed", "nothing-removed") }
        }
        let (dropped, kept) = try drop(waiting)
        let (isAddressRemoved, removedPairings) = try forget(peer, folder)
        for (directory, sum) in kept {
            Diagnostics.note(
                textOfKept(sum, in: directory), "not-dropped",
                [
                    ("store", .string(directory)), ("count", .number(sum.count)),
                    ("bytes", .number(sum.bytes)),
                ])
        }
        let address = isAddressRemoved ? " and its last address" : ""
        let pairings = removedPairings.map { " and its unfinished pairing with \($0)" }.joined()
        let messages = waiting.isEmpty ? "" : ", and dropped \(OutboxCommand.text(dropped))"
        try StandardOutput.print(
            line: "removed `\(peer.name)`\(address)\(pairings)\(messages)",
            or: [
                ("forgotten", .string(peer.name)), ("fingerprint", .string(peer.key.description)),
                ("address-removed", .bool(isAddressRemoved)),
                ("unfinished", .array(removedPairings.map { .string($0.description) })),
                ("dropped", .number(dropped.count)), ("bytes", .number(dropped.bytes)),
            ])
    }

    /// Opens the peer's stores in a directory.
    ///
    /// - Throws: when any store there cannot be opened, since it may be the peer's.
    private static func open(
        _ directory: String, _ key: Fingerprint
    ) throws(ChannelError) -> WaitingMessages {
        let (outboxes, failures) = try Outbox.open(in: directory)
        if let failure = failures.first { throw failure }
        return WaitingMessages(
            directory: directory, outboxes: outboxes.filter { $0.peer == key })
    }

    /// The lines that say what will be removed and dropped, and what stays.
    private static func description(
        of peer: RememberedPeer, _ others: [RememberedPeer], _ waiting: [WaitingMessages],
        _ unfinished: [Fingerprint], in folder: StateFolder
    ) -> [String] {
        var lines = ["This will be removed from \(folder.path):"]
        if peer.isKnown { lines.append("  the name `\(peer.name)` of the key \(peer.key)") }
        if !peer.comment.isEmpty { lines.append("  its comment `\(peer.comment)`") }
        for key in unfinished {
            lines.append("  the unfinished pairing as `\(peer.name)` with the key \(key)")
        }
        if let other = others.first {
            let address = peer.address == nil ? "" : ", and its last address stays"
            lines.append("The key stays known as `\(other.name)`\(address).")
        } else if let address = peer.addressText {
            lines.append("  the last address of the key, \(address)")
        }
        for messages in waiting {
            let (queued, mayHaveArrived) = messages.sums
            if queued.count > 0 {
                lines.append("This will be dropped from \(messages.directory):")
                lines.append("  \(OutboxCommand.text(queued)), which the peer will not get")
            }
            if mayHaveArrived.count > 0 {
                lines.append(textOfKept(mayHaveArrived, in: messages.directory))
            }
            if queued.count + mayHaveArrived.count == 0 {
                lines.append("Nothing waits for the key in \(messages.directory).")
            }
        }
        return lines
    }

    /// The line for messages that stay in `directory`, because they may have arrived.
    private static func textOfKept(_ sum: OutboxCommand.Sum, in directory: String) -> String {
        "\(OutboxCommand.text(sum)) may have arrived, and cannot be dropped from \(directory)"
    }

    /// Drops all messages that can be dropped. Returns their sum, and for each directory the sum of
    /// the messages that stay.
    private static func drop(
        _ waiting: [WaitingMessages]
    ) throws(ChannelError) -> (
        dropped: OutboxCommand.Sum, kept: [(directory: String, sum: OutboxCommand.Sum)]
    ) {
        var dropped: OutboxCommand.Sum = (0, 0)
        var kept: [(directory: String, sum: OutboxCommand.Sum)] = []
        for messages in waiting {
            for outbox in messages.outboxes {
                let queued = outbox.messages.filter { !$0.mayHaveBeenSent }
                if !queued.isEmpty { try outbox.drop(Set(queued.map(\.number))) }
            }
            let sums = messages.sums
            dropped = (dropped.count + sums.queued.count, dropped.bytes + sums.queued.bytes)
            if sums.mayHaveArrived.count > 0 {
                kept.append((messages.directory, sums.mayHaveArrived))
            }
        }
        return (dropped, kept)
    }

    /// The keys of the unfinished pairings under the peer's name. Each of these pairings, with the
    /// peer's key or with another key, could bind the name again.
    private static func keysOfUnfinishedPairings(
        _ peer: RememberedPeer, _ folder: StateFolder
    ) throws(ChannelError) -> [Fingerprint] {
        try folder.knownPeers.pendingPeers().filter { $0.name == peer.name }.map(\.key)
    }

    /// Removes the address, and last the name with its unfinished pairings, so that an interrupted
    /// command can be started again with the name. Returns whether an address was removed, and the
    /// keys of the unfinished pairings.
    private static func forget(
        _ peer: RememberedPeer, _ folder: StateFolder
    ) throws(ChannelError) -> (isAddressRemoved: Bool, unfinished: [Fingerprint]) {
        // The files are read again, since another process may have changed them during the question.
        let unfinished = try keysOfUnfinishedPairings(peer, folder)
        let names = try folder.knownPeers.peers().filter { $0.key == peer.key }.map(\.name)
        let hasOtherName = names.contains { $0 != peer.name }
        let isAddressRemoved = hasOtherName ? false : try folder.lastAddresses.remove(peer.key)
        let isRemoved = try folder.knownPeers.remove(peer.name, boundTo: peer.key)
        if !isRemoved, let other = try folder.knownPeers.key(named: peer.name) {
            throw ChannelError(
                .untrusted,
                "`\(peer.name)` has got another key meanwhile, \(other), and is not removed")
        }
        return (isAddressRemoved, unfinished)
    }
}
