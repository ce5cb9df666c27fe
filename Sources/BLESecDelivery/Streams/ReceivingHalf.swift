/// The direction of a stream in which the peer sends. Bytes are kept until the program reads them.
struct ReceivingHalf: Sendable {
    /// The bytes that wait for the program, after ``head`` bytes that the program has read.
    private var kept: [UInt8] = []
    /// How many bytes at the start of `kept` the program has read.
    private var head = 0
    /// How many bytes have arrived.
    private(set) var received: UInt64 = 0
    /// How many of these bytes the program has read or this side has dropped.
    private var consumed: UInt64 = 0
    /// The limit that the peer was told last: the offset up to which it may send.
    private var toldLimit: UInt64
    /// How many bytes the direction has, once that is known.
    private var size: UInt64?
    /// The code of the peer's `reset`, if it came before the program had taken everything.
    private(set) var resetCode: UInt32?
    /// Whether a `reset` has come on the current link.
    private var isResetOnLink = false
    /// The code with which the program has stopped the direction; nil if it has not, or only after
    /// this side was done with the direction.
    private(set) var stopCode: UInt32?
    /// Whether `stop` has been sent on the current link.
    private var hasSentStop = false
    /// Whether the peer has been told that this side is done with the direction.
    private(set) var hasToldDone = false
    /// Whether bytes that the program had not read were dropped.
    private var hasDropped = false
    /// Whether the program has opened or accepted the stream.
    var isAccepted: Bool
    /// How many bytes beyond those that were consumed the peer may send.
    private let window: UInt64
    /// How many bytes the program reads before the peer is told a new limit.
    private var step: UInt64

    init(window: Int, isAccepted: Bool) {
        self.window = UInt64(window)
        self.isAccepted = isAccepted
        toldLimit = self.window
        step = max(1, self.window / 2)
    }

    /// Sets ``step`` to half of the smaller of the two sides' windows. The peer sends at most
    /// `peerWindow` bytes beyond those that this side has acknowledged in a `limit` record. With a
    /// larger step, the peer could wait for such a record while this side waits for more bytes.
    mutating func adaptStep(toPeerWindow peerWindow: UInt64) {
        step = max(1, min(window, peerWindow) / 2)
    }

    var keptCount: Int { kept.count - head }
    var hasBytes: Bool { keptCount > 0 }
    /// Whether the program has read everything up to the end or up to the peer's `reset`.
    var isDone: Bool { resetCode != nil && !hasBytes || hasTakenAll }
    /// Whether the program has read to the regular end.
    var isAtEnd: Bool { resetCode == nil && hasTakenAll }
    private var hasTakenAll: Bool { size == consumed && !hasDropped && isAccepted }

    /// Takes at most `most` bytes for the program.
    mutating func take(_ most: Int) -> [UInt8] {
        let count = min(most, keptCount)
        let bytes = Array(kept[head..<head + count])
        head += count
        consumed += UInt64(count)
        if head == kept.count {
            kept.removeAll(keepingCapacity: true)
            head = 0
        } else if head > kept.count / 2 {
            kept.removeFirst(head)
            head = 0
        }
        return bytes
    }

    /// The program wants no more bytes: bytes that wait, and bytes that arrive later, are dropped.
    mutating func stop(_ code: UInt32) {
        guard stopCode == nil, !isDone else { return }
        stopCode = code
        discard()
    }

    /// Lets `stop` be sent again: a peer that does not know the stream has not received the `stop`.
    mutating func forgetStop() { hasSentStop = false }

    private mutating func discard() {
        if hasBytes { hasDropped = true }
        (kept, head) = ([], 0)
        consumed = received
    }

    // MARK: - The link

    /// What `resume` tells the peer about this direction.
    mutating func summary() -> StreamSummary.Progress {
        (hasSentStop, isResetOnLink) = (false, false)
        if isDone {
            hasToldDone = true
            return .done
        }
        if size != nil { return .complete }
        toldLimit = max(toldLimit, consumed + window)
        return .receiving(count: received, limit: toldLimit)
    }

    mutating func append(
        _ bytes: ArraySlice<UInt8>, at offset: UInt64
    ) throws(DeliveryError) {
        guard offset == received, !bytes.isEmpty, UInt64(bytes.count) <= toldLimit - received,
            size == nil, resetCode == nil
        else { throw .violation("bytes of a stream that do not continue it, or exceed its limit") }
        received += UInt64(bytes.count)
        if stopCode == nil {
            kept += bytes
        } else {
            consumed = received
            hasDropped = true
        }
    }

    mutating func finish(_ size: UInt64) throws(DeliveryError) {
        guard size == received, self.size == nil, resetCode == nil else {
            throw .violation("an end of a stream that does not follow its last byte")
        }
        self.size = size
    }

    /// Handles the peer's `reset`. Returns whether the `reset` has an effect.
    mutating func reset(_ code: UInt32) throws(DeliveryError) -> Bool {
        guard !isResetOnLink else { throw .violation("a second reset of a stream on a link") }
        isResetOnLink = true
        // If the program has everything already, the reset has no effect.
        guard resetCode == nil, !hasTakenAll else { return false }
        resetCode = code
        // The program can still read what has arrived, unless it does not have the stream yet.
        if !isAccepted { discard() }
        return true
    }

    private var owesStop: Bool { stopCode != nil && !hasSentStop && !isDone }
    private var owesDone: Bool { isDone && !hasToldDone }
    /// Whether the limit has moved so far that the peer should know.
    private var owesLimit: Bool {
        !isDone && size == nil && stopCode == nil && consumed + window >= toldLimit + step
    }
    var owesRecord: Bool { owesStop || owesDone || owesLimit }

    mutating func takeRecord(id: UInt64) -> StreamRecord? {
        if owesDone {
            hasToldDone = true
            return .done(id: id)
        }
        if owesStop, let stopCode {
            hasSentStop = true
            return .stop(id: id, code: stopCode)
        }
        guard owesLimit else { return nil }
        toldLimit = consumed + window
        return .limit(id: id, received: received, limit: toldLimit)
    }
}
