/// One end of a link inside the process.
///
/// It blocks, unblocks, closes and ends like a link between devices. Sent bytes wait in a bounded
/// queue until the other end receives them. The loop reports readiness, but never during a call to
/// the link. A send allocates no memory.
public final class MemoryLink: Link, @unchecked Sendable {
    // Sendable because its state is used on the loop's thread only, which its methods check.

    /// The loop of both ends.
    public let loop: EventLoop
    /// The largest number of bytes that one send takes.
    public let maximumSDU: Int
    /// The name of the other end, for logs.
    public let peerDescription: String

    private let wire: Wire
    /// The index of this end in ``Wire``: 0 or 1.
    private let side: Int
    private weak var handler: (any LinkHandler)?
    private var isScheduled = false
    private var hasReportedHangUp = false

    /// The largest capacity, 16 MiB: the memory of both queues is allocated at once.
    private static let maximumCapacity = 16 << 20

    /// Makes the two ends of a link.
    ///
    /// - Parameters:
    ///   - capacity: the most bytes that wait in each direction; at least `maximumSDU`. More than
    ///     16 MiB counts as 16 MiB.
    ///   - maximumSDU: the largest number of bytes that one send takes; at least 1. More than
    ///     16 MiB counts as 16 MiB.
    ///   - dropsQueueOnClose: true makes the link behave as on L2CAP: closing discards bytes that
    ///     the peer has not received yet, and half-close is not supported.
    public static func pair(
        loop: EventLoop, capacity: Int = 65_536, maximumSDU: Int = 8_192,
        dropsQueueOnClose: Bool = false
    ) -> (MemoryLink, MemoryLink) {
        let capacity = min(capacity, maximumCapacity)
        let maximumSDU = min(maximumSDU, maximumCapacity)
        precondition(maximumSDU > 0 && capacity >= maximumSDU, "one SDU must fit")
        let wire = Wire(capacity: capacity, dropsQueueOnClose: dropsQueueOnClose)
        let first = MemoryLink(loop: loop, wire: wire, side: 0, maximumSDU: maximumSDU)
        let second = MemoryLink(loop: loop, wire: wire, side: 1, maximumSDU: maximumSDU)
        (wire.first, wire.second) = (first, second)
        return (first, second)
    }

    private init(loop: EventLoop, wire: Wire, side: Int, maximumSDU: Int) {
        self.loop = loop
        self.wire = wire
        self.side = side
        self.maximumSDU = maximumSDU
        peerDescription = "memory:\(1 - side)"
    }

    deinit {
        let (wire, side) = (wire, side)
        if loop.isCurrent { return wire.close(side) }
        loop.execute { wire.close(side) }
    }

    /// Nil: a memory link has no addresses.
    public var peerAddress: LinkAddress? { nil }

    /// See ``Link``.
    public func send(_ bytes: Span<UInt8>) throws(LinkError) -> Int {
        precondition(!bytes.isEmpty, "a send needs at least one byte")
        try checkOpen()
        if wire[side].hasEnded { throw LinkError(.closed, "this direction of the link was ended") }
        guard bytes.count <= maximumSDU else {
            throw LinkError(
                .tooLarge, "\(bytes.count) bytes in one send; the link takes \(maximumSDU)")
        }
        guard !wire[1 - side].isClosed else {
            throw LinkError(.reset, "the peer has closed the link")
        }
        guard bytes.count <= room else { return 0 }
        wire[side].queue.append(bytes)
        wire.schedule(1 - side)
        return bytes.count
    }

    /// See ``Link``.
    public func receive(into buffer: inout OutputSpan<UInt8>) throws(LinkError) -> LinkReceive {
        precondition(!buffer.isFull, "there must be room for one byte")
        do throws(LinkError) {
            try checkOpen()
        } catch {
            wantsRead = false
            throw error
        }
        guard wire[1 - side].queue.isEmpty else {
            wire[1 - side].queue.move(into: &buffer)
            wire.schedule(1 - side)
            return .bytes
        }
        guard wire[1 - side].hasEnded || wire[1 - side].isClosed else { return .wouldBlock }
        wantsRead = false
        return .end
    }

    /// See ``Link``.
    public func setHandler(_ handler: (any LinkHandler)?) {
        loop.assertCurrent()
        self.handler = handler
        schedule()
    }

    /// See ``Link``.
    public var wantsRead = false { didSet { if wantsRead && !oldValue { schedule() } } }
    /// See ``Link``.
    public var wantsWrite = false { didSet { if wantsWrite && !oldValue { schedule() } } }

    /// See ``Link``.
    public var keepsQueueShort = false { didSet { if keepsQueueShort != oldValue { schedule() } } }

    /// Whether the peer has received everything.
    public var isDrained: Bool { queuedBytes == 0 }

    /// How many bytes the peer has not received yet.
    public var queuedBytes: Int {
        loop.assertCurrent()
        return wire[side].queue.count
    }

    /// Ends the sending direction, unless the link was made with `dropsQueueOnClose`.
    public func halfClose() -> Bool {
        guard canHalfClose else { return false }
        wire[side].hasEnded = true
        wire.schedule(1 - side)
        return true
    }

    /// See ``Link``.
    public func close() {
        loop.assertCurrent()
        handler = nil
        wire.close(side)
    }

    private func checkOpen() throws(LinkError) {
        loop.assertCurrent()
        if wire[side].isClosed { throw LinkError(.closed, "the link is closed on this side") }
        if loop.isShutDown { throw LinkError(.closed, "the link's event loop was shut down") }
    }
}

extension MemoryLink: HalfClosingLink {
    package var canHalfClose: Bool {
        loop.assertCurrent()
        return !wire.dropsQueueOnClose && !wire[side].isClosed
    }
}

extension MemoryLink: DeferredWork {
    /// Makes the loop check this end soon, since its readiness may have changed.
    func schedule() {
        loop.assertCurrent()
        guard !isScheduled, handler != nil else { return }
        isScheduled = true
        loop.runSoon(self)
    }

    package func runDeferred() {
        isScheduled = false
        if wire[1 - side].isClosed, !hasReportedHangUp, let handler {
            hasReportedHangUp = true
            handler.linkDidHangUp()
        }
        if wantsRead && isReadable { handler?.linkIsReadable() }
        if wantsWrite && isWritable { handler?.linkIsWritable() }
        // After the loop's shutdown the link stays as it is, and the loop must come to an end.
        guard !loop.isShutDown else { return }
        if wantsRead && isReadable || wantsWrite && isWritable { schedule() }
    }

    private var isReadable: Bool {
        !wire[1 - side].queue.isEmpty || wire[1 - side].hasEnded || wire[1 - side].isClosed
    }

    private var isWritable: Bool { room >= maximumSDU || wire[1 - side].isClosed }

    /// The number of bytes that the queue still takes. Below 0 if the queue is longer than
    /// ``keepsQueueShort`` permits, because the property was set after the bytes were queued.
    private var room: Int {
        let queue = wire[side].queue
        guard keepsQueueShort else { return queue.freeCount }
        return min(queue.freeCount, ShortQueue.capacity(maximumSDU: maximumSDU) - queue.count)
    }
}

extension MemoryLink {
    /// The shared state of the two ends. Used on the loop's thread.
    private final class Wire: @unchecked Sendable {
        // Sendable because both ends use it on their loop's thread only.

        struct Side {
            /// The bytes that this side has sent and the other side has not received.
            let queue: ByteRing
            /// Whether this side has ended its sending direction.
            var hasEnded = false
            var isClosed = false
        }

        let dropsQueueOnClose: Bool
        weak var first: MemoryLink?
        weak var second: MemoryLink?
        private var sides: [2 of Side]

        init(capacity: Int, dropsQueueOnClose: Bool) {
            self.dropsQueueOnClose = dropsQueueOnClose
            sides = InlineArray { _ in Side(queue: ByteRing(capacity: capacity)) }
        }

        subscript(side: Int) -> Side {
            _read { yield sides[side] }
            _modify { yield &sides[side] }
        }

        /// Makes the loop check the readiness of a side.
        func schedule(_ side: Int) { (side == 0 ? first : second)?.schedule() }

        func close(_ side: Int) {
            guard !sides[side].isClosed else { return }
            sides[side].isClosed = true
            sides[1 - side].queue.removeAll()
            if dropsQueueOnClose { sides[side].queue.removeAll() }
            schedule(1 - side)
        }
    }
}
