/// Calculates the size of a socket's send buffer (`SO_SNDBUF`). While ``Link/keepsQueueShort`` is
/// true, the socket has a *short buffer*, which keeps the send queue short.
///
/// The kernel charges the buffer for the memory that queued data take, overhead included. On a
/// Unix socket the charge is up to about twice the payload, and more for very short sends. On L2CAP
/// the charge depends on the size of the packets, which cannot be queried, so the charge is
/// measured: typically 1,280 bytes for a packet with 188 bytes of payload.
struct SendBufferSize {
    /// The size of a Unix socket's short buffer, in charged bytes.
    ///
    /// It holds 15 to 33 KiB of payload if each send has 1 KiB or more. A Unix socket polls
    /// writable only when no more than a quarter of its buffer is used, so a smaller buffer would
    /// often be empty before the sender's thread runs again. Four packets of ``unixPacket`` bytes
    /// fit; when only one of them is left, the socket polls writable.
    private static let unixSize: Int32 = 33 << 10
    /// The size in bytes of the packets into which a large SDU is divided for a short buffer.
    ///
    /// The kernel adds 320 bytes to such a packet, stores both in a block of 8 KiB, and charges 256
    /// bytes more than the block. For a packet of 8 KiB it would charge 16 KiB and 256 bytes.
    private static let unixPacket = 7_680

    /// The most bytes that one send puts into the short buffer of a Unix packet socket: a whole SDU
    /// if two of the largest SDUs fit into ``ShortQueue/payload``, and otherwise ``unixPacket``.
    static func largestUnixPacket(maximumSDU: Int) -> Int {
        2 * maximumSDU <= ShortQueue.payload ? maximumSDU : unixPacket
    }

    /// The size that the buffer had when ``size(isShort:isL2CAP:maximumSDU:current:)`` was first
    /// called; nil until then. The buffer has this size while the queue may be long.
    private var longSize: Int32?
    /// The charge for an SDU of the largest size on L2CAP, in bytes; 0 until it was measured.
    private var chargePerSDU = 0

    /// Records the measured charge for an SDU of `payload` bytes; returns whether the short
    /// buffer's size has to change.
    ///
    /// The kernel may have freed a part of the SDU before the charge was read. So a measured charge
    /// can be too small, but never too large, and the largest charge counts.
    mutating func learn(charge: Int, for payload: Int, maximumSDU: Int) -> Bool {
        // Scaled to the largest SDU, and rounded up.
        let perSDU = (charge * maximumSDU + payload - 1) / payload
        guard perSDU > chargePerSDU else { return false }
        chargePerSDU = perSDU
        return true
    }

    /// Doubles the recorded charge, because an SDU did not fit into the empty buffer. Returns false
    /// without a change if the buffer's size `current` is already that of a long queue.
    mutating func doubleCharge(current: Int32) -> Bool {
        guard let longSize, current < longSize else { return false }
        chargePerSDU *= 2
        return true
    }

    /// The size that the buffer has to get. Its present size is `current`.
    mutating func size(
        isShort: Bool, isL2CAP: Bool, maximumSDU: Int, current: Int32
    ) -> Int32 {
        let long = longSize ?? current
        longSize = long
        guard isShort else { return long }
        guard isL2CAP else { return min(long, Self.unixSize) }
        guard chargePerSDU > 0 else { return long }
        // Whole SDUs, and at least two: an L2CAP socket polls writable when half of its buffer is
        // free, and then an SDU has to fit.
        let count = ShortQueue.capacity(maximumSDU: maximumSDU) / maximumSDU
        return Int32(min(Int(long), count * chargePerSDU))
    }
}
