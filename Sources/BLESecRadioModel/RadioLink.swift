package import BLESecLinks
internal import BLESecPrimitives

/// One end of a connection-oriented L2CAP channel over modelled radio.
///
/// A `SecureChannel` uses a radio link like any other link. The loop's clock is a manual clock.
package final class RadioLink: Link, @unchecked Sendable {
    // Sendable because its state is used only on the loop's thread.

    /// Counts what an end has sent. SDUs and bytes are counted when the link accepts them.
    package struct Count: Sendable, Equatable {
        package var sdus = 0
        package var bytes = 0
        /// Packets that carried bytes of SDUs, without retransmissions.
        package var packets = 0
        /// Retransmissions of packets with a payload.
        package var repeated = 0

        /// What was sent between two moments.
        package static func - (after: Count, before: Count) -> Count {
            Count(
                sdus: after.sdus - before.sdus, bytes: after.bytes - before.bytes,
                packets: after.packets - before.packets, repeated: after.repeated - before.repeated)
        }
    }

    /// The capacity of the sender's socket and controller together, in bytes.
    private static let sendBuffer = 32 << 10
    /// The capacity of the receiver's socket, in bytes.
    private static let receiveBuffer = 64 << 10

    package let loop: EventLoop
    private let air: RadioAir
    private let parameters: RadioParameters
    private weak var handler: (any LinkHandler)?
    private weak var peer: RadioLink?

    /// The data to send, from which ``transmit(now:atMost:)`` takes packets.
    private(set) var frames: RadioFrames
    /// The last packet that was sent, until the peer acknowledges it.
    private(set) var unacknowledged: RadioPacket?
    /// The bits SN and NESN: this end's sequence number, and the sequence number that this end expects
    /// next (Core Specification, Vol 6, Part B, §4.5.9).
    private(set) var bits = (sequence: false, expected: false)

    /// The bytes of the incomplete SDU that have arrived.
    private var partialSDU: [UInt8] = []
    /// The bytes of complete SDUs; those before ``arrivedOffset`` were already received.
    private var arrived: [UInt8] = []
    private var arrivedOffset = 0
    /// The number of received K-frames for which no credit has been given back.
    private var uncreditedFrames = 0
    /// Whether a received SDU is complete, so that ``uncreditedFrames`` credits are due.
    private var owesCredits = false
    package private(set) var count = Count()
    private var isClosed = false
    private var isScheduled = false
    private var hasReportedHangUp = false

    /// Makes the two ends of a channel. The central starts each exchange of packets.
    package static func pair(
        _ parameters: RadioParameters, loop: EventLoop
    ) -> (central: RadioLink, peripheral: RadioLink) {
        let air = RadioAir(parameters, loop: loop)
        let central = RadioLink(parameters, air)
        let peripheral = RadioLink(parameters, air)
        central.peer = peripheral
        peripheral.peer = central
        air.connect(central, peripheral)
        return (central, peripheral)
    }

    private init(_ parameters: RadioParameters, _ air: RadioAir) {
        self.parameters = parameters
        self.air = air
        loop = air.loop
        frames = RadioFrames(parameters)
    }

    package let peerDescription = "modelled radio"
    package var peerAddress: LinkAddress? { nil }
    package var maximumSDU: Int { parameters.sdu }
    package var isDrained: Bool { frames.byteCount == 0 && (unacknowledged?.length ?? 0) == 0 }
    package var wantsRead = false { didSet { if wantsRead && !oldValue { schedule() } } }
    package var wantsWrite = false { didSet { if wantsWrite && !oldValue { schedule() } } }
    package var keepsQueueShort = false { didSet { if keepsQueueShort != oldValue { schedule() } } }

    package func setHandler(_ handler: (any LinkHandler)?) {
        loop.assertCurrent()
        self.handler = handler
        schedule()
    }

    package func send(_ bytes: Span<UInt8>) throws(LinkError) -> Int {
        loop.assertCurrent()
        guard !isClosed else { throw LinkError(.closed, "the link is closed on this side") }
        guard !isPeerGone else { throw LinkError(.reset, "the peer has closed the link") }
        guard bytes.count <= maximumSDU else {
            throw LinkError(.tooLarge, "\(bytes.count) bytes in one SDU")
        }
        guard hasRoom else { return 0 }
        count.sdus += 1
        count.bytes += bytes.count
        frames.append(
            [UInt8](capacity: bytes.count) { $0.append(copying: bytes) },
            now: loop.now.nanoseconds)
        air.wake()
        return bytes.count
    }

    package func receive(into buffer: inout OutputSpan<UInt8>) throws(LinkError) -> LinkReceive {
        loop.assertCurrent()
        guard !isClosed else { throw LinkError(.closed, "the link is closed on this side") }
        let waiting = arrived.count - arrivedOffset
        guard waiting > 0 else {
            guard isPeerGone else { return .wouldBlock }
            wantsRead = false
            return .end
        }
        let taken = min(waiting, buffer.freeCapacity)
        buffer.append(copying: arrived.span.extracting(arrivedOffset..<arrivedOffset + taken))
        arrivedOffset += taken
        if arrivedOffset == arrived.count {
            arrived.removeAll(keepingCapacity: true)
            arrivedOffset = 0
        }
        giveCredits()
        return .bytes
    }

    /// An L2CAP channel has no half-close.
    package func halfClose() -> Bool { false }

    package func close() {
        loop.assertCurrent()
        isClosed = true
        handler = nil
        peer?.schedule()
    }

    private var isPeerGone: Bool { peer?.isClosed ?? true }
    private var hasRoom: Bool { frames.byteCount + maximumSDU <= capacity }
    private var capacity: Int {
        guard keepsQueueShort else { return Self.sendBuffer }
        return min(Self.sendBuffer, ShortQueue.capacity(maximumSDU: maximumSDU))
    }
    private var isReadable: Bool { arrived.count > arrivedOffset || isPeerGone }
    private var isWritable: Bool { hasRoom || isPeerGone }
}

// What ``RadioAir`` calls. A packet is acknowledged by the next packet in the other direction.
extension RadioLink {
    /// The packet to send now: the last packet again if it was not acknowledged, else the next
    /// packet if it is no longer than `limit`, else an empty packet.
    func transmit(now: UInt64, atMost limit: Int) -> RadioPacket {
        if let unacknowledged {
            if unacknowledged.length > 0 { count.repeated += 1 }
            return unacknowledged
        }
        var packet = RadioPacket()
        if let length = frames.nextLength(now: now), length <= limit {
            packet = frames.next(now: now) ?? packet
            if !packet.bytes.isEmpty { count.packets += 1 }
            if hasRoom { schedule() }
        }
        unacknowledged = packet
        return packet
    }

    /// Whether ``transmit(now:atMost:)`` would send a packet with a payload: the unacknowledged
    /// packet, or else the next packet if its length is at most `limit`.
    func canSend(now: UInt64, atMost limit: Int) -> Bool {
        if let unacknowledged { return unacknowledged.length > 0 }
        return frames.nextLength(now: now).map { $0 <= limit } ?? false
    }

    /// The time from which there is a payload to send; nil if there is none.
    var readyAt: UInt64? { (unacknowledged?.length ?? 0) > 0 ? 0 : frames.readyAt }

    /// Receives a packet that arrived with a correct CRC. `peerBits` are the peer's ``bits``.
    func hear(_ packet: RadioPacket, _ peerBits: (sequence: Bool, expected: Bool), now: UInt64) {
        if peerBits.expected != bits.sequence {
            bits.sequence.toggle()
            unacknowledged = nil
        }
        guard peerBits.sequence == bits.expected else { return }
        bits.expected.toggle()
        if packet.credits > 0 { frames.addCredits(packet.credits, now: now) }
        partialSDU += packet.bytes
        if packet.endsFrame { uncreditedFrames += 1 }
        guard packet.endsSDU else { return }
        arrived += partialSDU
        partialSDU.removeAll(keepingCapacity: true)
        owesCredits = parameters.credits == .linux
        giveCredits()
        schedule()
    }

    /// Gives the credits of a complete SDU back to the peer, unless the receive buffer is full.
    private func giveCredits() {
        guard owesCredits, arrived.count - arrivedOffset < Self.receiveBuffer else { return }
        owesCredits = false
        frames.grant(uncreditedFrames, now: loop.now.nanoseconds)
        uncreditedFrames = 0
        air.wake()
    }
}

extension RadioLink: DeferredWork {
    /// Makes the loop call ``runDeferred()`` soon, which tells the handler what has changed.
    private func schedule() {
        guard !isScheduled, handler != nil else { return }
        isScheduled = true
        loop.runSoon(self)
    }

    package func runDeferred() {
        isScheduled = false
        if isPeerGone, !hasReportedHangUp {
            hasReportedHangUp = true
            handler?.linkDidHangUp()
        }
        if wantsRead && isReadable { handler?.linkIsReadable() }
        if wantsWrite && isWritable { handler?.linkIsWritable() }
        if wantsRead && isReadable || wantsWrite && isWritable { schedule() }
    }
}
