/// Messages that wait to be sealed, first in, first out.
struct Outbox {
    private var waiting = MessageQueue()
    /// How much of the first message is sealed already.
    private var sealed = 0
    /// Bytes of messages that are not sealed yet, each message with ``Inbox/overhead``.
    private(set) var byteCount = 0

    var isEmpty: Bool { waiting.isEmpty }

    mutating func append(_ message: [UInt8]) {
        waiting.append(message)
        byteCount += message.count + Inbox.overhead
    }

    /// Shows `body` at most `limit` bytes of the first message, and whether they are its last.
    mutating func take<Failure: Error>(
        atMost limit: Int, _ body: (Span<UInt8>, _ isLast: Bool) throws(Failure) -> Void
    ) throws(Failure) -> Bool {
        guard let bytes = waiting.first else { preconditionFailure("no message waits") }
        let end = min(sealed + limit, bytes.count)
        let isLast = end == bytes.count
        try body(bytes.span.extracting(sealed..<end), isLast)
        byteCount -= end - sealed
        sealed = end
        if isLast {
            byteCount -= Inbox.overhead
            sealed = 0
            _ = waiting.popFirst()
        }
        return isLast
    }

    mutating func removeAll() { self = Outbox() }
}
