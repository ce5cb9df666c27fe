/// The direction of a stream in which this side sends. Bytes are kept until the peer has them.
struct SendingHalf: Sendable {
    /// The written bytes that the peer has not acknowledged, after ``head`` acknowledged bytes.
    private var kept: [UInt8] = []
    /// How many bytes at the start of `kept` the peer has acknowledged.
    private var head = 0
    /// The offset of the first byte that the peer has not acknowledged.
    private(set) var acknowledged: UInt64 = 0
    /// The offset of the next byte to send on the current link.
    private(set) var next: UInt64 = 0
    /// The offset of the first byte that was never sent on any link.
    private(set) var sentMost: UInt64 = 0
    /// The peer takes bytes up to this offset.
    private(set) var limit: UInt64 = 0
    /// Whether the program has finished the direction.
    private(set) var isFinished = false
    /// The code of this side's `reset`, which may answer a `stop` of the peer.
    private(set) var resetCode: UInt32?
    /// The code of a `reset` that follows everything that was written.
    private(set) var endCode: UInt32?
    /// The code of the peer's first `stop`, if it came before the peer was done with this
    /// direction.
    private(set) var stopCode: UInt32?
    /// Whether `fin` has been sent on the current link, or `reset` if the direction was reset.
    private var hasSentEnd = false
    /// Whether any link has carried `fin` or `reset`, so that the peer may be done with this
    /// direction.
    private(set) var mayBeDone = false
    /// Whether the peer is done with this direction.
    private(set) var isDone = false
    /// Whether the peer has sent `stop` on the current link.
    private var isStopped = false
    /// The most bytes that are kept here at a time.
    private let capacity: Int

    init(capacity: Int) { self.capacity = capacity }

    /// Whether a `resume` of the peer has shown that everything up to the `fin` has arrived.
    private var isReportedComplete = false
    /// A number that grows when the peer reports that more has arrived, or that it is done.
    var reportedProgress: UInt64 { acknowledged + (isReportedComplete ? 1 : 0) + (isDone ? 1 : 0) }
    /// How many bytes the program has written.
    private var written: UInt64 { acknowledged + UInt64(keptCount) }
    var keptCount: Int { kept.count - head }
    var room: Int { capacity - keptCount }
    var isOpen: Bool { !isFinished && !isReset && !isDone }
    /// Whether the direction ends with a `reset`.
    var isReset: Bool { resetCode != nil || endCode != nil }

    /// Appends as many bytes as there is room for, and returns the rest.
    mutating func write(_ bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        let count = min(bytes.count, room)
        kept += bytes.prefix(count)
        return bytes.dropFirst(count)
    }

    mutating func finish() { if isOpen { isFinished = true } }

    /// Resets the direction, and drops the bytes that the peer has not acknowledged.
    mutating func reset(_ code: UInt32) {
        guard resetCode == nil, !isDone else { return }
        resetCode = endCode ?? code
        // A `fin` that was sent does not replace the `reset`. But if a `reset` with `endCode` was
        // sent on this link, no second one may follow.
        hasSentEnd = hasSentEnd && endCode != nil
        (kept, head) = ([], 0)
    }

    /// Resets the direction once everything that was written is sent.
    mutating func resetAfterWritten(_ code: UInt32) { if isOpen { endCode = code } }

    /// Handles the peer's `stop`; false if the peer has sent one on the current link before.
    mutating func stop(_ code: UInt32) -> Bool {
        guard !isStopped else { return false }
        isStopped = true
        if stopCode == nil, !isDone { stopCode = code }
        reset(code)
        return true
    }

    /// Handles the peer's `done`; false if the peer cannot be done, or has said so before.
    mutating func handleDone() -> Bool {
        guard mayBeDone, !isDone else { return false }
        isDone = true
        (kept, head) = ([], 0)
        return true
    }

    // MARK: - A link

    /// Continues on a new link after the bytes that the peer already has; false if the peer's
    /// `progress` is impossible.
    mutating func resume(_ progress: StreamSummary.Progress) -> Bool {
        (hasSentEnd, isStopped) = (false, false)
        switch progress {
        case .receiving(let count, let limit):
            guard acknowledge(received: count, limit: limit) else { return false }
            next = count
        case .complete:
            guard mayBeDone, isFinished else { return false }
            (kept, head, acknowledged) = ([], 0, sentMost)
            next = sentMost
            // The peer has the `fin`; a reset after the `fin` is still to be sent.
            hasSentEnd = resetCode == nil
            isReportedComplete = true
        case .done:
            return isDone || handleDone()
        }
        return true
    }

    /// Forgets the limit of the last peer instance, which has never known of the stream.
    mutating func forgetPeer() { (limit, next) = (0, 0) }

    /// Handles the peer's report that the first `received` bytes have arrived, and that the peer
    /// accepts bytes up to the offset `limit`; false if the report is impossible.
    mutating func acknowledge(received: UInt64, limit: UInt64) -> Bool {
        guard received >= acknowledged, received <= sentMost, limit >= self.limit,
            limit >= received
        else { return false }
        self.limit = limit
        guard resetCode == nil, !isDone else { return true }
        head += Int(received - acknowledged)
        acknowledged = received
        next = max(next, received)
        // Done only when more than half of `kept` is acknowledged, so that on average each byte is
        // moved at most once.
        if head > kept.count / 2 {
            kept.removeFirst(head)
            head = 0
        }
        return true
    }

    /// Whether a `fin` or a `reset` is to be sent now.
    var owesEnd: Bool {
        guard !hasSentEnd, !isDone else { return false }
        return resetCode != nil || (isFinished || endCode != nil) && next == written
    }

    /// Whether bytes can be sent now.
    var hasBytes: Bool { resetCode == nil && !isDone && next < min(written, limit) }

    /// How many bytes can be sent now.
    var sendableCount: Int { hasBytes ? Int(min(written, limit) - next) : 0 }

    mutating func takeEnd(id: UInt64) -> StreamRecord? {
        guard owesEnd else { return nil }
        (hasSentEnd, mayBeDone) = (true, true)
        if let code = resetCode ?? endCode { return .reset(id: id, code: code) }
        return .fin(id: id, size: written)
    }

    mutating func takeBytes(id: UInt64, atMost most: Int) -> StreamRecord? {
        guard hasBytes else { return nil }
        let count = min(most, sendableCount)
        let start = head + Int(next - acknowledged)
        let record = StreamRecord.bytes(id: id, offset: next, kept[start..<start + count])
        next += UInt64(count)
        sentMost = max(sentMost, next)
        return record
    }
}
