internal import BLESecL2CAP
internal import BLESecLinks

/// A byte stream over two characteristics of a GATT service, for peers without an L2CAP channel.
///
/// Nothing is authenticated here. Only the device address that bluetoothd reports keeps out other
/// devices' fragments. A device that forges the address can do no more than end the stream, since a
/// secure channel runs over the link. Closing the link may lose what bluetoothd has not sent yet.
final class GATTStreamLink: Link, @unchecked Sendable {
    // Sendable because its state is used on the loop's thread only.

    /// Sends fragments to the other side. Used on the loop's thread.
    struct Carrier: Sendable {
        /// Passes a fragment to bluetoothd; calls `done` once, with an error if that failed.
        var carry:
            @Sendable ([UInt8], _ done: @escaping @Sendable (DiscoveryError?) -> Void) -> Void
        /// Called once, when the link is closed.
        var close: @Sendable () -> Void
    }

    /// How long to wait for a stream's `end` fragment after the device has unsubscribed: the news
    /// of the unsubscription can overtake the fragment.
    private static let endTimeout = Duration.seconds(2)
    /// The most fragments that one send fills.
    private static let fragmentsAtOnce = 8

    let loop: EventLoop
    let peerDescription: String
    let peerAddress: LinkAddress?

    private var stream: FragmentStream
    private let carrier: Carrier
    private weak var handler: (any LinkHandler)?
    private var timer: LoopTimer?
    /// The number of fragments that were passed to bluetoothd, and that bluetoothd has not answered
    /// yet.
    private var unansweredCount = 0
    private var failure: LinkError?
    /// The time at which a device that has ended its subscription counts as disconnected.
    private var lossDeadline = MonotonicTime.distantFuture
    /// Whether ``lose()`` was called.
    private(set) var isLost = false
    private var hasReportedHangUp = false
    private var isScheduled = false
    private(set) var isClosed = false

    init(
        _ stream: FragmentStream, to address: DeviceAddress, loop: EventLoop, over carrier: Carrier
    ) {
        self.stream = stream
        self.carrier = carrier
        self.loop = loop
        peerDescription = address.description
        peerAddress = LinkAddress(address)
        timer = LoopTimer(loop: loop, handler: self)
    }

    deinit {
        guard !isClosed else { return }
        let (carrier, timer) = (carrier, timer)
        let lastFragment = mustSendEnd ? stream.finish() : nil
        let close: @Sendable () -> Void = {
            timer?.disarm()
            if let lastFragment { carrier.carry(lastFragment) { _ in } }
            carrier.close()
        }
        if loop.isCurrent { close() } else { loop.execute(close) }
    }

    /// Whether the peer's `open` fragment has arrived; the link must not be used before that.
    var isOpen: Bool { stream.isOpen }
    func open() { carry(stream.opening()) }

    var maximumSDU: Int { Self.fragmentsAtOnce * stream.room }

    func send(_ bytes: Span<UInt8>) throws(LinkError) -> Int {
        precondition(!bytes.isEmpty, "a send needs at least one byte")
        try checkOpen()
        if let failure { throw failure }
        if isLost || stream.hasPeerEnded {
            throw LinkError(.reset, "\(peerDescription) has closed the stream, or has gone")
        }
        guard bytes.count <= maximumSDU else {
            throw LinkError(
                .tooLarge, "\(bytes.count) bytes in one send; the link takes \(maximumSDU)")
        }
        var fragments: [[UInt8]] = []
        let count = stream.send(bytes, to: &fragments)
        for fragment in fragments { carry(fragment) }
        return count
    }

    func receive(into buffer: inout OutputSpan<UInt8>) throws(LinkError) -> LinkReceive {
        precondition(!buffer.isFull, "there must be room for one byte")
        try checkOpen()
        if stream.hasBytes {
            stream.read(into: &buffer)
            if !isLost, failure == nil, let grant = stream.grant() { carry(grant) }
            return .bytes
        }
        guard stream.isReadToEnd || isLost || failure != nil else { return .wouldBlock }
        wantsRead = false
        if let failure { throw failure }
        return .end
    }

    func setHandler(_ handler: (any LinkHandler)?) {
        loop.assertCurrent()
        self.handler = handler
        schedule()
    }

    var wantsRead = false { didSet { if wantsRead && !oldValue { schedule() } } }
    var wantsWrite = false { didSet { if wantsWrite && !oldValue { schedule() } } }

    /// Whether bluetoothd has answered every write. Always true on the listener's side, because
    /// notifications are signals, which bluetoothd does not answer.
    var isDrained: Bool { queuedBytes == 0 }

    /// How many writes bluetoothd has not answered yet; their bytes are not counted.
    var queuedBytes: Int {
        loop.assertCurrent()
        return unansweredCount
    }

    /// Not supported: an `end` fragment ends both directions.
    func halfClose() -> Bool { false }

    func close() {
        loop.assertCurrent()
        guard !isClosed else { return }
        handler = nil
        timer?.disarm()
        if mustSendEnd { carry(stream.finish()) }
        isClosed = true
        carrier.close()
    }

    /// Whether the peer needs an `end` fragment from this side. Before this side has sent its
    /// `open` fragment, the peer needs none.
    private var mustSendEnd: Bool { stream.hasSentOpening && !isLost && failure == nil }

    private func checkOpen() throws(LinkError) {
        loop.assertCurrent()
        if isClosed { throw LinkError(.closed, "the link is closed on this side") }
        if loop.isShutDown { throw LinkError(.closed, "the link's event loop was shut down") }
    }
}

extension GATTStreamLink {
    /// Handles a fragment from a write or a notification; ignores a fragment of another stream.
    func take(_ fragment: StreamFragment) {
        loop.assertCurrent()
        guard !isClosed, !isLost, failure == nil else { return }
        stream.take(fragment, at: loop.now)
        armTimer()
        schedule()
    }

    /// The device has ended its subscription: it will end the stream, or has disconnected.
    func expectEnd() {
        loop.assertCurrent()
        guard !isClosed, !isLost, failure == nil else { return }
        lossDeadline = loop.now.advanced(by: Self.endTimeout)
        armTimer()
    }

    private func armTimer() { timer?.arm(at: min(stream.deadline, lossDeadline)) }

    /// Ends the link: the device has disconnected or opened another stream, bluetoothd has stopped,
    /// or a fragment could not be sent. Received bytes can still be read.
    func lose() {
        loop.assertCurrent()
        isLost = true
        timer?.disarm()
        schedule()
    }

    private func carry(_ fragment: [UInt8]) {
        unansweredCount += 1
        carrier.carry(fragment) { [weak self] error in self?.carried(error) }
    }

    private func carried(_ error: DiscoveryError?) {
        unansweredCount -= 1
        if error != nil { lose() }
    }
}

extension GATTStreamLink: TimerHandler {
    func timerFired(_ timer: LoopTimer) {
        if loop.now >= lossDeadline { return lose() }
        failure = LinkError(
            .timedOut, "a fragment of the stream from \(peerDescription) did not come")
        schedule()
    }
}

extension GATTStreamLink: DeferredWork {
    private func schedule() {
        guard !isScheduled, handler != nil else { return }
        isScheduled = true
        loop.runSoon(self)
    }

    func runDeferred() {
        isScheduled = false
        if hasEnded, !hasReportedHangUp {
            hasReportedHangUp = true
            handler?.linkDidHangUp()
        }
        if wantsRead, isReadable { handler?.linkIsReadable() }
        if wantsWrite, isWritable { handler?.linkIsWritable() }
        if wantsRead && isReadable || wantsWrite && isWritable { schedule() }
    }

    private var hasEnded: Bool { stream.hasReceivedAll || isLost || failure != nil }
    private var isReadable: Bool { !isClosed && (stream.hasBytes || hasEnded) }
    private var isWritable: Bool {
        !isClosed && (stream.canSend || stream.hasPeerEnded || hasEnded)
    }
}
