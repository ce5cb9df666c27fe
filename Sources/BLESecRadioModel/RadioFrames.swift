/// The payload of one packet on the air.
struct RadioPacket: Sendable {
    /// Octets of payload; 0 in a packet that only acknowledges.
    var length = 0
    /// Bytes of an SDU in the packet.
    var bytes: ArraySlice<UInt8> = []
    /// Whether the packet ends a K-frame, for which the sender has spent a credit.
    var endsFrame = false
    var endsSDU = false
    /// Credits that the packet gives.
    var credits = 0
}

/// What one end has to send: SDUs, and credits for the peer. An SDU is cut into K-frames, and a
/// K-frame into packets (Core Specification, Vol 3, Part A, §3.4 and §4.24). Times are in
/// nanoseconds.
struct RadioFrames: Sendable {
    private struct WaitingSDU {
        var bytes: [UInt8]
        var readyAt: UInt64
    }

    private let parameters: RadioParameters
    private var sdus: [WaitingSDU] = []
    /// The index of the first SDU with unsent bytes.
    private var firstUnsent = 0
    /// How many bytes of the SDU at ``firstUnsent`` are already sent.
    private var offset = 0
    /// Unsent octets of the current K-frame, including headers.
    private var frameLeft = 0
    /// Octets of the current K-frame's headers that are unsent.
    private var frameHeaders = 0
    /// Credits to send to the peer.
    private var granted = (count: 0, readyAt: UInt64(0))

    /// The number of K-frames that the peer still accepts.
    private(set) var credits: Int
    /// Unsent bytes of SDUs.
    private(set) var byteCount = 0

    init(_ parameters: RadioParameters) {
        self.parameters = parameters
        credits = parameters.firstCredits
    }

    /// Queues an SDU, which can be sent after the host's delay.
    mutating func append(_ sdu: [UInt8], now: UInt64) {
        sdus.append(WaitingSDU(bytes: sdu, readyAt: now + parameters.hostDelay))
        byteCount += sdu.count
    }

    /// Queues credits for the peer.
    mutating func grant(_ count: Int, now: UInt64) {
        if granted.count == 0 { granted.readyAt = now + parameters.hostDelay }
        granted.count += count
    }

    /// Adds credits that the peer has given. A host that had no credits sends again only after its
    /// delay.
    mutating func addCredits(_ count: Int, now: UInt64) {
        let hadNone = credits == 0
        credits += count
        guard hadNone, firstUnsent < sdus.count else { return }
        sdus[firstUnsent].readyAt = max(sdus[firstUnsent].readyAt, now + parameters.hostDelay)
    }

    /// The time from which the next packet can be sent; nil if there is no packet.
    var readyAt: UInt64? {
        if frameLeft > 0 { return 0 }
        let sduReadyAt = firstUnsent < sdus.count && credits > 0 ? sdus[firstUnsent].readyAt : nil
        guard granted.count > 0 else { return sduReadyAt }
        return min(granted.readyAt, sduReadyAt ?? .max)
    }

    /// Whether a packet can be sent at the given time.
    func isReady(now: UInt64) -> Bool { readyAt.map { $0 <= now } ?? false }

    /// The length of the packet that ``next(now:)`` would return; nil if none is ready.
    func nextLength(now: UInt64) -> Int? {
        guard isReady(now: now) else { return nil }
        if frameLeft > 0 { return min(frameLeft, parameters.dataLength) }
        if hasGrant(now: now) { return RadioParameters.creditPacketLength }
        return min(nextFrame.headers + nextFrame.sduBytes, parameters.dataLength)
    }

    /// Removes and returns the next packet; nil if none is ready.
    mutating func next(now: UInt64) -> RadioPacket? {
        guard isReady(now: now) else { return nil }
        if frameLeft == 0 {
            if hasGrant(now: now) {
                defer { granted.count = 0 }
                return RadioPacket(
                    length: RadioParameters.creditPacketLength, credits: granted.count)
            }
            let next = nextFrame
            credits -= 1
            frameHeaders = next.headers
            frameLeft = next.headers + next.sduBytes
        }
        let length = min(frameLeft, parameters.dataLength)
        let sduBytes = length - frameHeaders
        let bytes = sdus[firstUnsent].bytes[offset..<offset + sduBytes]
        frameLeft -= length
        frameHeaders = 0
        offset += sduBytes
        byteCount -= sduBytes
        let endsSDU = frameLeft == 0 && offset == sdus[firstUnsent].bytes.count
        if endsSDU {
            sdus[firstUnsent].bytes = []
            firstUnsent += 1
            offset = 0
            // Sent SDUs are removed many at a time, since each removal moves all later SDUs.
            if firstUnsent >= 64 || firstUnsent == sdus.count {
                sdus.removeFirst(firstUnsent)
                firstUnsent = 0
            }
        }
        return RadioPacket(
            length: length, bytes: bytes, endsFrame: frameLeft == 0, endsSDU: endsSDU)
    }

    /// Whether credits for the peer can be sent at the given time.
    private func hasGrant(now: UInt64) -> Bool { granted.count > 0 && granted.readyAt <= now }

    /// The octets of headers in the next K-frame, and the number of SDU bytes in it.
    private var nextFrame: (headers: Int, sduBytes: Int) {
        let lengthField = offset == 0 ? RadioParameters.lengthFieldLength : 0
        let sduBytes = min(parameters.mps - lengthField, sdus[firstUnsent].bytes.count - offset)
        return (RadioParameters.headerLength + lengthField, sduBytes)
    }
}
