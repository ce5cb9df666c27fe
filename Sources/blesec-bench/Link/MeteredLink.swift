internal import BLESec
internal import BLESecLocking

/// A link that counts the SDUs, bytes and packets that it sends.
final class MeteredLink: Link {
    struct Count: Sendable, Equatable {
        var sdus = 0
        var bytes = 0
        /// The packets that a controller needs: each SDU, with the two bytes of length before it,
        /// in packets of up to `mps` bytes.
        var packets = 0
    }

    private let inner: any Link
    private let mps: Int
    private let sent = Locked(Count())

    init(_ inner: any Link, mps: Int) {
        self.inner = inner
        self.mps = mps
    }

    /// What was sent so far. May be read on any thread.
    var count: Count { sent.withLock { $0 } }

    func send(_ bytes: Span<UInt8>) throws(LinkError) -> Int {
        let taken = try inner.send(bytes)
        guard taken > 0 else { return 0 }
        sent.withLock { count in
            count.sdus += 1
            count.bytes += taken
            count.packets += (taken + 2 + mps - 1) / mps
        }
        return taken
    }

    func receive(into buffer: inout OutputSpan<UInt8>) throws(LinkError) -> LinkReceive {
        try inner.receive(into: &buffer)
    }

    var loop: EventLoop { inner.loop }
    var maximumSDU: Int { inner.maximumSDU }
    var wantsRead: Bool {
        get { inner.wantsRead }
        set { inner.wantsRead = newValue }
    }
    var wantsWrite: Bool {
        get { inner.wantsWrite }
        set { inner.wantsWrite = newValue }
    }
    var keepsQueueShort: Bool {
        get { inner.keepsQueueShort }
        set { inner.keepsQueueShort = newValue }
    }
    var isDrained: Bool { inner.isDrained }
    var queuedBytes: Int { inner.queuedBytes }
    var peerDescription: String { inner.peerDescription }
    var peerAddress: LinkAddress? { inner.peerAddress }
    func setHandler(_ handler: (any LinkHandler)?) { inner.setHandler(handler) }
    func halfClose() -> Bool { inner.halfClose() }
    func close() { inner.close() }
}
