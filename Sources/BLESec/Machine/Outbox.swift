/// Messages that wait to be sealed, first in, first out.
struct Outbox {
    private var messages = MessageQueue()
    /// How many bytes of the first message are already sealed.
    private var sealedBytes = 0
    /// The bytes that are not sealed yet, plus ``Inbox/overhead`` for each message.
    private(set) var byteCount = 0

    var isEmpty: Bool { messages.isEmpty }

    mutating func append(_ message: consuming [UInt8]) {
        byteCount += message.count + Inbox.overhead
        messages.append(message)
    }

    /// Passes at most `limit` bytes of the first message to `body`, and removes them if `body` does
    /// not throw; returns whether these bytes were the message's last.
    mutating func take<Failure: Error>(
        atMost limit: Int, _ body: (Span<UInt8>, _ isLast: Bool) throws(Failure) -> Void
    ) throws(Failure) -> Bool {
        guard let bytes = messages.first else { preconditionFailure("no message waits") }
        let end = min(sealedBytes + limit, bytes.count)
        let isLast = end == bytes.count
        try body(bytes.span.extracting(sealedBytes..<end), isLast)
        byteCount -= end - sealedBytes
        sealedBytes = end
        if isLast {
            byteCount -= Inbox.overhead
            sealedBytes = 0
            _ = messages.popFirst()
        }
        return isLast
    }

    mutating func removeAll() { self = Outbox() }
}
