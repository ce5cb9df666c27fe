/// Messages that wait to be sealed, first in, first out.
struct Outbox {
    private struct Waiting {
        var bytes: [UInt8]
        var sent = 0
    }

    private var waiting: [Waiting] = []
    private var first = 0
    /// Bytes of messages that are not sealed yet, each message with ``Inbox/overhead``.
    private(set) var byteCount = 0

    var isEmpty: Bool { first == waiting.count }

    mutating func append(_ message: [UInt8]) {
        waiting.append(Waiting(bytes: message))
        byteCount += message.count + Inbox.overhead
    }

    /// Shows `body` at most `limit` bytes of the first message, and whether they are its last.
    mutating func take<Failure: Error>(
        atMost limit: Int, _ body: (Span<UInt8>, _ isLast: Bool) throws(Failure) -> Void
    ) throws(Failure) -> Bool {
        let bytes = waiting[first].bytes
        let start = waiting[first].sent
        let end = min(start + limit, bytes.count)
        let isLast = end == bytes.count
        try body(bytes.span.extracting(start..<end), isLast)
        byteCount -= end - start
        if isLast {
            byteCount -= Inbox.overhead
            waiting[first].bytes = []
            first += 1
            compact()
        } else {
            waiting[first].sent = end
        }
        return isLast
    }

    mutating func removeAll() { self = Outbox() }

    private mutating func compact() {
        if first == waiting.count {
            waiting.removeAll(keepingCapacity: waiting.capacity <= 256)
            first = 0
        } else if first >= 64, first * 2 >= waiting.count {
            waiting.removeFirst(first)
            first = 0
        }
    }
}
