internal import BLESecChannelCore

/// Whole messages that wait for the application, and the one that is still coming.
struct Inbox: ~Copyable {
    private var whole = MessageQueue()
    private var partial: [UInt8] = []
    /// What the message that is still coming is charged to; there before its first piece.
    var part: ReassemblyBudget.Part?
    private let maximumMessageLength: Int
    /// Bytes of whole messages, each with ``overhead``.
    private(set) var byteCount = 0

    /// What a message takes beside its bytes, so that even empty ones do not pile up: an array's
    /// header, its rounding to the allocator's sizes, and the place in a list.
    static let overhead = 64

    init(maximumMessageLength: Int) { self.maximumMessageLength = maximumMessageLength }

    /// Whether a whole message waits.
    var isEmpty: Bool { whole.isEmpty }
    /// Whether a message has begun and not ended.
    var isMidMessage: Bool { !partial.isEmpty }

    /// Takes the next piece of a message.
    mutating func append(_ piece: Span<UInt8>, isLast: Bool) throws(ChannelError) {
        guard partial.count + piece.count <= maximumMessageLength else {
            throw ChannelError(
                .limitExceeded,
                "the peer's message is longer than the \(maximumMessageLength) bytes allowed")
        }
        if isLast, partial.isEmpty {
            // It is never incomplete, so it does not count as such.
            return keep(piece.array)
        }
        guard part?.take(piece.count, limit: maximumMessageLength) == true else {
            throw .tooMuchUnderWay
        }
        partial.append(piece, in: 0..<piece.count)
        guard isLast else { return }
        keep(partial)
        removePartial()
    }

    private mutating func keep(_ message: [UInt8]) {
        byteCount += message.count + Self.overhead
        whole.append(message)
    }

    /// Forgets the message that is still coming.
    mutating func removePartial() {
        part?.giveAll()
        partial = []
    }

    /// The oldest whole message.
    mutating func next() -> [UInt8]? {
        guard let message = whole.popFirst() else { return nil }
        byteCount -= message.count + Self.overhead
        return message
    }
}

extension ChannelError {
    static var tooMuchUnderWay: ChannelError {
        ChannelError(
            .limitExceeded,
            "the messages that are under way in this process reached their memory bound, and this "
                + "peer's take most of it")
    }
}
