internal import BLESec
internal import BLESecJSON
internal import BLESecStore
internal import BLESecToolKit

/// `blesec outbox DIR list` and `blesec outbox DIR drop NUMBER...`
enum OutboxCommand {
    private static let peer = Option(
        name: "--peer", value: "KEY",
        help: "Use the store for the peer with this key. KEY is the peer's public key in base64, "
            + "or the peer's fingerprint, as `list` prints it.")
    private static let own = Option(
        name: "--own", value: "KEY",
        help:
            "Use the store of this side's key KEY. This is needed if several of this side's keys "
            + "have a store for the same peer.")

    static let command = Command(
        name: "blesec outbox", summary: "show or drop messages that wait in a store",
        operands: ["DIR", "list|drop", "[NUMBER]..."], options: [peer, own, .json],
        description: [
            "Works on the stores in DIR, the directory that --store named, while no other process "
                + "uses them.",
            "`list` prints the messages that are neither confirmed nor dropped. For each store, "
                + "a line names this side's key and the peer's key. A line for each message has "
                + "the message's number, its length in bytes, and its state. `queued` means that "
                + "no byte of the message has been sent. `may have arrived` means that bytes of "
                + "it may have been sent, and that the peer has not confirmed it. The last line "
                + "has the sums. With --json, one object has all of this.",
            "`drop` removes messages that are queued, and prints how many. The peer never gets "
                + "them, and the program that sent them learns that they were `dropped`. Later "
                + "messages keep their numbers. A message that may have arrived cannot be dropped: "
                + "connect to the peer to find out whether it has arrived. Either all messages "
                + "that the command names are dropped, or none.",
            "What `blesec listen` and `blesec connect` send is a stream of bytes in messages of up "
                + "to 64 KiB. Without one of these messages, the stream that the peer gets has a "
                + "gap, and the sender ends with an error that says so.",
            "Do not drop messages in a store that was restored from an older copy. Messages that "
                + "are queued in the copy may have been sent after the copy was made, and the copy "
                + "does not show this.",
        ],
        examples: [
            "blesec outbox ~/transfer list": "Show what waits.",
            "blesec outbox ~/transfer drop 7 8": "Do not send the messages 7 and 8.",
            "blesec outbox ~/transfer list --json --peer SHA256:...":
                "Describe the store for one peer, for a script.",
        ],
        statuses: [
            .success, .usage, .badData, .noInput, .inputOutput, .untrusted,
        ], run: run)

    private static func run(_ arguments: Arguments) throws(ChannelError) {
        let word = arguments.operands[1]
        let numbers = arguments.operands.dropFirst(2)
        switch word {
        case "list":
            guard let first = numbers.first else { return try list(arguments) }
            throw arguments.usage("unexpected argument `\(first)`: list shows all messages")
        case "drop":
            guard !numbers.isEmpty else { throw arguments.usage("NUMBER is missing") }
            var parsed: Set<UInt64> = []
            for text in numbers { parsed.insert(try number(text, arguments)) }
            try drop(parsed, arguments)
        default: throw arguments.usage("the second operand is list or drop, and not `\(word)`")
        }
    }

    private static func number(
        _ text: String, _ arguments: Arguments
    ) throws(ChannelError) -> UInt64 {
        let isDigits = text.utf8.allSatisfy { UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }
        guard isDigits, let number = Int64(text), number > 0 else {
            throw arguments.usage(
                "NUMBER is a number from 1 to \(Int64.max), and not `\(text)`")
        }
        return UInt64(number)
    }

    /// The stores that the arguments choose, and an error for each store that cannot be opened. If
    /// `--peer` or `--own` finds a store, `failures` is empty: a store that cannot be opened is
    /// assumed to belong to other keys.
    private static func stores(
        _ arguments: Arguments
    ) throws(ChannelError) -> (outboxes: [Outbox], failures: [ChannelError]) {
        let peerKey = try arguments.value(peer).map(PeerKey.init(parsing:))?.fingerprint
        let ownKey = try arguments.value(own).map(PeerKey.init(parsing:))?.fingerprint
        let (all, failures) = try Outbox.open(in: arguments.operands[0])
        guard peerKey != nil || ownKey != nil else { return (all, failures) }
        let outboxes = all.filter { outbox in
            (peerKey == nil || outbox.peer == peerKey) && (ownKey == nil || outbox.own == ownKey)
        }
        if outboxes.isEmpty {
            throw failures.first
                ?? ChannelError(
                    .noSuchFile,
                    "no store in \(arguments.operands[0]) is for that key; `blesec outbox DIR list` "
                        + "names the keys")
        }
        return (outboxes, [])
    }

    // MARK: - Listing

    private static func list(_ arguments: Arguments) throws(ChannelError) {
        let (outboxes, failures) = try stores(arguments)
        if Diagnostics.isJSON {
            try StandardOutput.print(
                line: "", or: [("stores", .array(outboxes.map(object)))])
        } else {
            try StandardOutput.print(outboxes.map(text).joined(separator: "\n"))
        }
        // The stores that could be opened are shown, and every error is reported.
        for failure in failures.dropLast() { Diagnostics.print(failure) }
        if let last = failures.last { throw last }
    }

    private static func text(_ outbox: Outbox) -> String {
        let sums = sums(outbox.messages)
        var lines = ["store of \(outbox.own) for \(outbox.peer)"]
        for message in outbox.messages {
            lines.append(
                "\(message.number): \(count(message.byteCount, "byte")), \(state(message))")
        }
        lines.append(
            outbox.messages.isEmpty
                ? "nothing waits"
                : "\(text(sums.all)) in all: \(text(sums.queued)) queued, \(text(sums.mayHaveArrived)) "
                    + "that may have arrived")
        return lines.map { $0 + "\n" }.joined()
    }

    private static func object(_ outbox: Outbox) -> JSONValue {
        func sum(_ sum: Sum) -> JSONValue {
            .object([("count", .number(sum.count)), ("bytes", .number(sum.bytes))])
        }
        let sums = sums(outbox.messages)
        return .object([
            ("own", .string(outbox.own.description)), ("peer", .string(outbox.peer.description)),
            (
                "messages",
                .array(
                    outbox.messages.map { message in
                        .object([
                            ("number", .number(Int(message.number))),
                            ("bytes", .number(message.byteCount)),
                            ("state", .string(state(message))),
                        ])
                    })
            ), ("all", sum(sums.all)), ("queued", sum(sums.queued)),
            ("may-have-arrived", sum(sums.mayHaveArrived)),
        ])
    }

    private static func state(_ message: Outbox.Message) -> String {
        message.mayHaveBeenSent ? "may have arrived" : "queued"
    }

    /// The number of messages, and the sum of their lengths in bytes.
    typealias Sum = (count: Int, bytes: Int)

    static func text(_ sum: Sum) -> String {
        "\(count(sum.count, "message")) with \(count(sum.bytes, "byte"))"
    }

    private static func count(_ count: Int, _ noun: String) -> String {
        "\(count) \(noun)\(count == 1 ? "" : "s")"
    }

    static func sums(
        _ messages: [Outbox.Message]
    ) -> (all: Sum, queued: Sum, mayHaveArrived: Sum) {
        func sum(_ messages: [Outbox.Message]) -> Sum {
            (messages.count, messages.reduce(0) { $0 + $1.byteCount })
        }
        return (
            sum(messages), sum(messages.filter { !$0.mayHaveBeenSent }),
            sum(messages.filter(\.mayHaveBeenSent))
        )
    }

    // MARK: - Dropping

    private static func drop(
        _ numbers: Set<UInt64>, _ arguments: Arguments
    ) throws(ChannelError) {
        let (outboxes, failures) = try stores(arguments)
        if let failure = failures.first { throw failure }
        guard outboxes.count == 1, let outbox = outboxes.first else {
            let isForOnePeer = Set(outboxes.map(\.peer)).count == 1
            throw arguments.usage(
                "\(arguments.operands[0]) has \(outboxes.count) stores; choose one with "
                    + (isForOnePeer ? "\(own.name) KEY" : "\(peer.name) KEY"))
        }
        for number in numbers.sorted() {
            guard let message = outbox.messages.first(where: { $0.number == number }) else {
                throw ChannelError(
                    .badData,
                    "message \(number) does not wait in the store; `blesec outbox DIR list` shows "
                        + "what does")
            }
            guard !message.mayHaveBeenSent else {
                throw ChannelError(
                    .badData,
                    "message \(number) may have arrived, so it cannot be dropped; connect to the "
                        + "peer to find out whether it has arrived")
            }
        }
        try outbox.drop(numbers)
        let sum = sums(outbox.messages.filter { numbers.contains($0.number) }).all
        try StandardOutput.print(
            line: "dropped \(text(sum))",
            or: [
                ("dropped", .array(numbers.sorted().map { .number(Int($0)) })),
                ("bytes", .number(sum.bytes)),
            ])
    }
}
