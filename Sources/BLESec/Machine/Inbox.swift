internal import BLESecChannelCore

/// The whole messages that wait for the application, and the incomplete message.
struct Inbox: ~Copyable {
    private var whole = MessageQueue()
    private var partial: [UInt8] = []
    /// The length in bytes of the last message of several pieces. The next such message is likely
    /// to have the same length, so ``partial`` gets this much room at its first piece.
    private var lastReassembledLength = 0
    /// The most room in bytes that a message gets before its pieces have arrived. The memory budget
    /// does not count this room.
    private static let largestReserve = 64 << 10
    /// This channel's part of the memory budget, for the incomplete message. Set it before the first
    /// piece of a message of several pieces is appended.
    var part: ReassemblyBudget.Part?
    private let maximumMessageLength: Int
    /// The bytes of whole messages, plus ``overhead`` for each message.
    private(set) var byteCount = 0

    /// How many bytes a message counts in addition to its length: for an array's header, rounding to
    /// the allocator's sizes, and the entry in a list. So the number of empty messages is limited,
    /// too.
    static let overhead = 64
    init(maximumMessageLength: Int) { self.maximumMessageLength = maximumMessageLength }
    /// Whether no whole message waits.
    var isEmpty: Bool { whole.isEmpty }
    /// The number of whole messages that wait.
    var count: Int { whole.count }
    /// Whether a message has arrived in part.
    var isMidMessage: Bool { !partial.isEmpty }

    /// Appends the next piece of a message.
    mutating func append(_ piece: Span<UInt8>, isLast: Bool) throws(ChannelError) {
        guard partial.count + piece.count <= maximumMessageLength else {
            throw ChannelError(
                .limitExceeded,
                "the peer's message is longer than the \(maximumMessageLength) bytes allowed")
        }
        if isLast, partial.isEmpty {
            // A message in one piece is always whole, and the budget counts only incomplete messages.
            return appendWhole(piece.array)
        }
        guard part?.take(piece.count, maximumMessageLength: maximumMessageLength) == true else {
            throw .tooMuchUnderWay
        }
        if partial.isEmpty {
            partial.reserveCapacity(min(lastReassembledLength, Self.largestReserve))
        }
        partial.append(piece, in: 0..<piece.count)
        guard isLast else { return }
        lastReassembledLength = partial.count
        // A short message is copied, so that it does not keep the room reserved for a long one.
        let hasMuchRoom = partial.capacity > 2 * partial.count + Self.overhead
        appendWhole(hasMuchRoom ? partial.span.array : partial)
        removePartial()
    }

    private mutating func appendWhole(_ message: consuming [UInt8]) {
        byteCount += message.count + Self.overhead
        whole.append(message)
    }

    mutating func removePartial() {
        part?.giveBackAll()
        partial = []
    }

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
            "the peer's incomplete messages take too much of the memory that this process allows")
    }
}
