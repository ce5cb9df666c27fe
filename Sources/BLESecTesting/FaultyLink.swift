public import BLESecLinks

/// A link that wraps another link, and applies faults of the kinds that radio, the kernel or attackers cause.
///
/// A faulty link wraps one end of a connection. It changes what this end sends, and how many bytes
/// each receive at this end returns. To change what the other end sends, wrap the other end too. Use
/// a faulty link on its loop's thread only.
public final class FaultyLink: Link, @unchecked Sendable {
    // Sendable because its state is used only on the loop's thread.

    /// While this many bytes or more wait in a link that holds or delays bytes, a send takes
    /// nothing.
    public static let heldBytes = 65_536

    /// How long bytes wait after the kernel had no memory for them.
    private static let retryDelay = Duration.milliseconds(20)

    private let link: any Link
    private var faults: [Fault]
    private var readLimit: Int?
    private var raggedReads: (limit: Int, generator: SeededGenerator)?
    private var writeLimit: Int?
    private var delay: Duration?
    private weak var handler: (any LinkHandler)?

    /// The sends that were accepted but not yet passed on, each with the time when it is due.
    private var outbox: [(bytes: [UInt8], due: MonotonicTime)] = []
    private var timer: LoopTimer?
    /// The sends that swaps hold back. They are queued right after the next send that is neither
    /// swapped nor dropped, or at ``halfClose()``.
    private var swapped: [[UInt8]] = []
    private var isHeld = false
    private var isCut = false
    private var hasReportedHangUp = false
    /// Whether there was no handler when the wrapped link hung up or was cut, and no handler has been
    /// told since.
    private var isHangUpUnreported = false
    /// Whether to end the sending direction of the wrapped link once all waiting bytes are passed
    /// on.
    private var isEndWaiting = false
    /// The error with which this end's sending has ended; every later send throws it.
    private var sendFailure: LinkError?
    private var sentBytes = 0
    private var sentSDUs = 0
    /// How many bytes were received from the wrapped link.
    package private(set) var receivedBytes = 0

    /// Wraps `link` with `faults`; no other code may use `link` from now on.
    public init(_ link: any Link, _ faults: [Fault] = []) {
        self.link = link
        self.faults = faults
        for fault in faults {
            switch fault {
            case .shortReads(let limit): readLimit = max(1, limit)
            case .raggedReads(let limit, let seed):
                raggedReads = (limit, SeededGenerator(seed: seed))
            case .shortWrites(let limit): writeLimit = max(1, limit)
            case .delay(let duration): delay = duration
            case .cut, .flip, .drop, .duplicate, .swap: break
            }
        }
    }

    /// Adds a cut, flip, drop, duplicate or swap. The fault's byte offset or SDU number counts from
    /// the start of the link, not from this call. The other faults have an effect only if they are
    /// passed to the initializer.
    public func add(_ fault: Fault) {
        loop.assertCurrent()
        faults.append(fault)
    }

    /// Holds back all sends until ``release()``, including those that are already delayed here.
    public func hold() {
        loop.assertCurrent()
        isHeld = true
    }

    /// Passes on what was held back, in order; with a delay, each send when it is due.
    public func release() {
        loop.assertCurrent()
        isHeld = false
        flush()
    }

    /// Loses the link now, as ``Fault/cut(afterBytes:)`` does.
    public func cut() {
        loop.assertCurrent()
        guard !isCut else { return }
        isCut = true
        discardWaiting()
        timer?.disarm()
        link.close()
        reportCutSoon()
    }

    /// See `Link`.
    public var loop: EventLoop { link.loop }
    /// See `Link`.
    public var maximumSDU: Int { link.maximumSDU }
    /// See `Link`.
    public var peerDescription: String { "faulty \(link.peerDescription)" }
    /// See `Link`.
    public var peerAddress: LinkAddress? { link.peerAddress }
    /// See `Link`.
    public var isDrained: Bool { outbox.isEmpty && swapped.isEmpty && (isCut || link.isDrained) }
    /// See `Link`.
    public var queuedBytes: Int {
        if isDrained { return 0 }
        let waiting = outbox.reduce(0) { $0 + $1.bytes.count }
        return swapped.reduce(waiting) { $0 + $1.count } + (isCut ? 0 : link.queuedBytes)
    }

    /// See `Link`.
    public func send(_ bytes: Span<UInt8>) throws(LinkError) -> Int {
        loop.assertCurrent()
        if let sendFailure { throw sendFailure }
        if isCut { throw LinkError(.reset, "the link was cut") }
        if loop.isShutDown { throw LinkError(.closed, "the link's event loop was shut down") }
        guard bytes.count <= maximumSDU else {
            throw LinkError(.tooLarge, "\(bytes.count) bytes in one send")
        }
        guard hasRoom else { return 0 }
        let taken = min(bytes.count, writeLimit ?? .max)
        var sdu = (0..<taken).map { bytes[$0] }
        let mustCut = applyByteFaults(&sdu)
        queue(sdu)
        flush()
        if let sendFailure { throw sendFailure }
        if mustCut { cut() }
        return taken
    }

    /// See `Link`.
    public func receive(into buffer: inout OutputSpan<UInt8>) throws(LinkError) -> LinkReceive {
        loop.assertCurrent()
        if isCut {
            wantsRead = false
            return .end
        }
        let before = buffer.count
        defer {
            receivedBytes += buffer.count - before
            // A link that has returned its end no longer wants to read; this link does the same.
            if handler != nil, wantsRead, !link.wantsRead { wantsRead = false }
        }
        let limit = nextReadLimit()
        guard limit < buffer.freeCapacity else { return try link.receive(into: &buffer) }
        var outcome = LinkReceive.wouldBlock
        let bytes = try [UInt8](capacity: limit) { part throws(LinkError) in
            outcome = try link.receive(into: &part)
        }
        for byte in bytes { buffer.append(byte) }
        return outcome
    }

    /// See `Link`.
    public func setHandler(_ handler: (any LinkHandler)?) {
        loop.assertCurrent()
        self.handler = handler
        link.setHandler(self)
        updateInterest()
        if isHangUpUnreported { loop.execute { [weak self] in self?.reportHangUp() } }
    }

    /// See `Link`.
    public var wantsRead = false {
        didSet {
            updateInterest()
            if wantsRead { reportCutSoon() }
        }
    }

    /// See `Link`.
    public var wantsWrite = false {
        didSet {
            updateInterest()
            if wantsWrite { reportCutSoon() }
        }
    }

    /// See `Link`. The setting applies to the wrapped link, not to bytes that are held or delayed
    /// here.
    public var keepsQueueShort: Bool {
        get { link.keepsQueueShort }
        set { link.keepsQueueShort = newValue }
    }

    /// See `Link`. If bytes wait here, the direction ends after them. In this case the result is
    /// always false for a wrapped link of a type of your own: only blesec's links tell beforehand
    /// whether they can end one direction.
    public func halfClose() -> Bool {
        loop.assertCurrent()
        guard !isCut else { return false }
        if let link = link as? any HalfClosingLink, !link.canHalfClose { return false }
        queueSwapped(dueAt: loop.now.advanced(by: delay ?? .zero))
        flush()
        if outbox.isEmpty {
            guard link.halfClose() else { return false }
        } else {
            guard canHalfClose else { return false }
            isEndWaiting = true
        }
        sendFailure = LinkError(.closed, "this direction of the link was ended")
        return true
    }

    /// See `Link`.
    public func close() {
        handler = nil
        sendFailure = LinkError(.closed, "the link is closed on this side")
        discardWaiting()
        timer?.disarm()
        link.close()
    }
}

extension FaultyLink {
    /// Applies the flips and cuts; returns whether to cut the link after this send.
    private func applyByteFaults(_ sdu: inout [UInt8]) -> Bool {
        let start = sentBytes
        sentBytes += sdu.count
        var mustCut = false
        for fault in faults {
            switch fault {
            case .flip(let offset, let mask):
                if (start..<start + sdu.count).contains(offset) { sdu[offset - start] ^= mask }
            case .cut(let limit):
                guard limit <= start + sdu.count else { continue }
                sdu.removeSubrange((max(limit, start) - start)...)
                mustCut = true
            case .drop, .duplicate, .swap, .shortReads, .raggedReads, .shortWrites, .delay: continue
            }
        }
        return mustCut
    }

    /// Applies the drops, duplicates and swaps, and queues the result in ``outbox``.
    private func queue(_ sdu: [UInt8]) {
        let index = sentSDUs
        sentSDUs += 1
        guard !sdu.isEmpty, !faults.contains(.drop(sdu: index)) else { return }
        if faults.contains(.swap(sdu: index)) {
            swapped.append(sdu)
            return
        }
        let due = loop.now.advanced(by: delay ?? .zero)
        outbox.append((sdu, due))
        if faults.contains(.duplicate(sdu: index)) { outbox.append((sdu, due)) }
        queueSwapped(dueAt: due)
    }

    private func queueSwapped(dueAt due: MonotonicTime) {
        // In reverse order, so that each swapped send comes after the send that followed it.
        for heldBack in swapped.reversed() { outbox.append((heldBack, due)) }
        swapped = []
    }

    private func discardWaiting() {
        outbox = []
        swapped = []
        isEndWaiting = false
    }

    private var hasRoom: Bool {
        guard isHeld || delay != nil else { return outbox.isEmpty }
        return outbox.reduce(0) { $0 + $1.bytes.count } < Self.heldBytes
    }

    /// Whether the first waiting bytes may be passed on now.
    private var isDue: Bool {
        guard !isHeld, let first = outbox.first else { return false }
        return first.due <= loop.now
    }

    /// Passes on the waiting bytes that are due, as far as the wrapped link takes them.
    private func flush() {
        while isDue, let first = outbox.first?.bytes {
            let count: Int
            do throws(LinkError) {
                count = try link.send(first.span)
            } catch {
                if error.isTemporary {
                    // The bytes wait for the timer, and not for the wrapped link to report room. The
                    // wrapped link has room, so it would report room at once, and the send would
                    // fail again.
                    outbox[0].due = loop.now.advanced(by: Self.retryDelay)
                } else {
                    sendFailure = error
                    discardWaiting()
                }
                break
            }
            if count == first.count {
                outbox.removeFirst()
            } else if count > 0 {
                outbox[0].bytes.removeFirst(count)
            } else {
                link.setHandler(self)  // The wrapped link then reports when it has room.
                break
            }
        }
        if isEndWaiting, outbox.isEmpty {
            isEndWaiting = false
            _ = link.halfClose()
        }
        updateInterest()
    }

    /// Tells the wrapped link which events this link needs, and arms the timer if the first waiting
    /// bytes are not due yet.
    private func updateInterest() {
        // Without a handler nobody would read or write, so the wrapped link would report again and
        // again that it is readable or writable.
        let hasHandler = handler != nil
        link.wantsRead = wantsRead && hasHandler
        link.wantsWrite = (wantsWrite && hasRoom && hasHandler) || isDue
        guard !isHeld, !isCut, let due = outbox.first?.due, due > loop.now else { return }
        let timer = timer ?? LoopTimer(loop: loop, handler: self)
        self.timer = timer
        timer.arm(at: due)
    }

    /// The most bytes that the next receive may return.
    private func nextReadLimit() -> Int {
        if let (limit, generator) = raggedReads {
            var generator = generator
            let next = Int.random(in: 1...max(1, limit), using: &generator)
            raggedReads = (limit, generator)
            return min(next, readLimit ?? .max)
        }
        return readLimit ?? .max
    }

    /// After a cut, makes the loop tell the handler of the cut. The wrapped link is closed by then,
    /// and reports nothing.
    private func reportCutSoon() {
        guard isCut else { return }
        loop.execute { [weak self] in self?.reportCut() }
    }

    private func reportCut() {
        reportHangUp()
        if wantsRead { handler?.linkIsReadable() }
        if wantsWrite { handler?.linkIsWritable() }
    }

    private func reportHangUp() {
        guard !hasReportedHangUp else { return }
        isHangUpUnreported = handler == nil
        guard let handler else { return }
        hasReportedHangUp = true
        handler.linkDidHangUp()
    }
}

extension FaultyLink: HalfClosingLink {
    package var canHalfClose: Bool {
        guard !isCut, let link = link as? any HalfClosingLink else { return false }
        return link.canHalfClose
    }
}

extension FaultyLink: LinkHandler {
    /// Called by the wrapped link.
    public func linkIsReadable() {
        if let handler { handler.linkIsReadable() } else { updateInterest() }
    }

    /// Called by the wrapped link.
    public func linkIsWritable() {
        flush()
        if hasRoom, wantsWrite { handler?.linkIsWritable() }
    }

    /// Called by the wrapped link.
    public func linkDidHangUp() { reportHangUp() }
}

extension FaultyLink: TimerHandler {
    /// Called when the delay of the next bytes is over.
    package func timerFired(_ timer: LoopTimer) { flush() }
}
