/// This side's messages that the peer has not confirmed, and how much of them has been sent.
///
/// Message numbers belong to an epoch: one numbering of this side's messages (`docs/delivery.md`).
/// The positions that the peer reports are checked against this state.
struct OutgoingMessages: Sendable {
    private(set) var epoch: Identifier
    /// The number of the first message that is kept; without messages, the next number.
    private(set) var first: UInt64
    private(set) var messages: Queue<StoredEndpoint.Message>
    /// How many messages are kept, and their bytes in total. This side's end, which is kept among
    /// ``messages`` without bytes, does not count.
    private(set) var pending: (count: Int, bytes: Int) = (0, 0)
    /// The highest number, in the present epoch, of a message that may have left whole. The message
    /// may have left in an earlier epoch, under another number.
    private(set) var sent: UInt64
    /// The highest number of a message that may have left at least in part.
    private var begun: UInt64
    /// The position of the next byte to send on this link.
    private var next: (number: UInt64, offset: Int)
    /// The position at which sending began on the newest link.
    private var linkStart: (number: UInt64, offset: Int)
    /// The furthest position that sending to the peer's present instance has reached in the present
    /// epoch, since the peer last dropped a part. What is sent again after a lost link lies before
    /// it.
    private var furthest: (number: UInt64, offset: Int) = (0, 0)
    /// How many chunks and ends have moved ``furthest``.
    private(set) var progressCount: UInt64 = 0
    /// The cost of all messages that this side has begun on this link.
    private var cost: UInt64 = 0
    /// The peer's credit: a message may be begun while `cost` is less.
    private(set) var credit: UInt64 = 0
    /// Whether a message was begun on this link and has not been sent whole.
    private var isMidMessage = false

    init(_ stored: StoredEndpoint) {
        epoch = stored.epoch
        first = stored.first
        messages = Queue(stored.messages)
        sent = stored.lastThatMayHaveLeft
        begun = stored.lastThatMayHaveLeft
        next = (stored.first, 0)
        linkStart = next
        for message in stored.messages { count(message, 1) }
    }

    /// The highest number of a message; one less than ``first`` without messages.
    var last: UInt64 { first + UInt64(messages.count) - 1 }

    /// What a message costs in addition to its bytes.
    static let overhead = 64

    mutating func append(_ message: StoredEndpoint.Message) {
        messages.append(message)
        count(message, 1)
    }

    /// Adds the message to ``pending`` if `sign` is 1, and subtracts it if `sign` is -1.
    private mutating func count(_ message: StoredEndpoint.Message, _ sign: Int) {
        guard let bytes = message.bytes else { return }
        pending.count += sign
        pending.bytes += sign * bytes.count
    }

    // MARK: - A link

    /// Sends nothing until the next ``resume(at:credit:)``.
    mutating func linkEnded() {
        (cost, credit) = (0, 0)
        isMidMessage = false
    }

    /// Whether the peer can have reached these positions in this epoch.
    func peerCanHaveReached(_ positions: Positions) -> Bool {
        guard positions.confirmed <= positions.held, positions.held <= max(sent, first - 1),
            positions.offset >= 0
        else { return false }
        guard positions.offset > 0 else { return true }
        let number = positions.held + 1
        return number <= begun && positions.offset < (message(number)?.bytes?.count ?? 0)
    }

    /// Begins a link: sending continues after what the peer has. Returns whether the peer has more
    /// now than at the beginning of the previous link. If it has less, it has dropped a part for lack
    /// of memory, and what is sent again counts towards ``progressCount``.
    mutating func resume(at positions: Positions, credit: UInt64) -> Bool {
        self.credit = credit
        next = (positions.held + 1, positions.offset)
        defer { linkStart = next }
        if next < linkStart { furthest = next }
        return next > linkStart
    }

    /// From now on, what is sent again counts towards ``progressCount``, because the peer has begun a
    /// new instance, which may not have it.
    mutating func peerBeganInstance() { furthest = (0, 0) }

    /// Takes a new credit of the peer; false if it is less than the last one on this link.
    mutating func raiseCredit(to credit: UInt64) -> Bool {
        guard credit >= self.credit else { return false }
        self.credit = credit
        return true
    }

    /// The number of the message whose chunk is next; nil if there is none, or no credit for it.
    var nextNumber: UInt64? {
        guard next.number <= last, isMidMessage || cost < credit else { return nil }
        return next.number
    }

    /// Whether this is the number of this side's end.
    func isEnd(_ number: UInt64) -> Bool { message(number).map { $0.bytes == nil } ?? false }

    /// How many bytes of the message whose chunk is next are still to be sent; 0 for an end.
    var nextLength: Int { (message(next.number)?.bytes?.count ?? 0) - next.offset }

    /// Takes the next chunk or end, which leaves now.
    mutating func takeRecord(atMost limit: Int) -> DeliveryRecord? {
        guard let number = nextNumber, let message = message(number) else { return nil }
        guard let bytes = message.bytes else {
            cost += UInt64(Self.overhead)
            begun = max(begun, number)
            didSend(number)
            return .finish(number: number)
        }
        let length = bytes.count
        if !isMidMessage { cost += UInt64(length - next.offset + Self.overhead) }
        let chunkEnd = min(length, next.offset + limit)
        let chunk = Chunk(number: number, next.offset..<chunkEnd, of: bytes)
        begun = max(begun, number)
        isMidMessage = chunkEnd < length
        if isMidMessage { advance(to: (number, chunkEnd)) } else { didSend(number) }
        return .chunk(chunk)
    }

    private mutating func didSend(_ number: UInt64) {
        sent = max(sent, number)
        advance(to: (number + 1, 0))
    }

    /// Records that everything before this position has left.
    private mutating func advance(to position: (number: UInt64, offset: Int)) {
        next = position
        guard position > furthest else { return }
        furthest = position
        progressCount += 1
    }

    // MARK: - Fates

    /// Removes the first message if its number is not above `number`, and returns it.
    mutating func retireFirst(through number: UInt64) -> StoredEndpoint.Message? {
        guard number >= first, let message = messages.popFirst() else { return nil }
        first += 1
        count(message, -1)
        return message
    }

    /// Whether this side's end waits to be confirmed.
    var hasUnconfirmedEnd: Bool { messages.count > pending.count }

    /// Whether a message that is kept may have left whole. An end does not count: taking it twice
    /// is the same as taking it once.
    var hasMessageThatMayHaveLeft: Bool {
        guard sent >= first else { return false }
        return messages.elements.prefix(Int(sent - first + 1)).contains { $0.bytes != nil }
    }

    /// Begins an epoch. A message for which `mayHaveArrived` returns true is lost. But if `keepsAll`
    /// is true, the message is kept, is sent again, and still counts as one that may have left.
    /// All other messages are kept, with this side's end. Returns the ids of the messages that are
    /// lost, and the ids of everything that is kept.
    mutating func begin(
        _ epoch: Identifier, keepsAll: Bool,
        _ mayHaveArrived: (_ id: UInt64, _ mayHaveLeft: Bool) -> Bool
    ) -> (lost: [UInt64], kept: Set<UInt64>) {
        var lost: [UInt64] = []
        var kept: [StoredEndpoint.Message] = []
        var lastDoubtfulNumber: UInt64 = 0
        for (offset, message) in messages.elements.enumerated() {
            let isDoubtful =
                message.bytes != nil
                && mayHaveArrived(message.id, first + UInt64(offset) <= sent)
            if isDoubtful, !keepsAll {
                lost.append(message.id)
                count(message, -1)
            } else {
                kept.append(message)
                if isDoubtful { lastDoubtfulNumber = UInt64(kept.count) }
            }
        }
        self.epoch = epoch
        messages = Queue(kept)
        (first, sent, begun) = (1, lastDoubtfulNumber, lastDoubtfulNumber)
        next = (1, 0)
        linkStart = next
        furthest = (0, 0)
        isMidMessage = false
        return (lost, Set(kept.map(\.id)))
    }

    private func message(_ number: UInt64) -> StoredEndpoint.Message? {
        guard number >= first, number <= last else { return nil }
        return messages[Int(number - first)]
    }
}
