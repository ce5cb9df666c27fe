/// Calculates the size of a socket's send buffer (`SO_SNDBUF`) with which its queue is short.
///
/// The kernel charges the buffer for the memory that it uses, overhead included. On a Unix socket
/// this is up to about twice the payload, and more for very short sends. On L2CAP it depends on the
/// size of the packets, which cannot be queried, so it is measured: typically a packet with 188
/// bytes of payload is charged with 1,280.
struct SendBuffer {
    /// The size of a Unix socket's short buffer, in charged bytes.
    ///
    /// It holds 15 to 33 KiB of payload if each send has 1 KiB or more. A Unix socket polls writable
    /// only when no more than a quarter of its buffer is used, so a smaller buffer is often empty
    /// before the sender's thread runs again. Four packets of ``unixPacket`` bytes fit; when one is
    /// left, the socket polls writable.
    private static let unixSize: Int32 = 33 << 10
    /// The size in bytes of the packets into which a large SDU is divided for a short buffer.
    ///
    /// The kernel takes such a packet, its own 320 bytes included, from a block of 8 KiB, and charges
    /// 256 bytes more. For a packet of 8 KiB it would charge 16 KiB and 256 bytes.
    private static let unixPacket = 7_680

    /// The most bytes that one send puts into the short buffer of a Unix packet socket. Whole SDUs
    /// are sent if two of them are no more than a short queue.
    static func largestUnixPacket(maximumSDU: Int) -> Int {
        2 * maximumSDU <= ShortQueue.payload ? maximumSDU : unixPacket
    }

    /// The size while the queue is long; nil until the queue has been short.
    private var longSize: Int32?
    /// The charge for an SDU of the largest size on L2CAP; 0 until it was measured.
    private var chargePerSDU = 0

    /// Takes the measured charge for an SDU of `payload` bytes; returns whether the short buffer's
    /// size has changed.
    ///
    /// The kernel may have freed a part of the SDU before the charge was read, so that a measured
    /// charge can be too small, and is never too large. Hence the largest one counts.
    mutating func learn(charge: Int, for payload: Int, maximumSDU: Int) -> Bool {
        let perSDU = (charge * maximumSDU + payload - 1) / payload
        guard perSDU > chargePerSDU else { return false }
        chargePerSDU = perSDU
        return true
    }

    /// Doubles the measured charge, because an SDU did not fit into the empty buffer. Returns false
    /// if the buffer of size `current` is the long one, and so cannot be larger.
    mutating func doubleCharge(current: Int32) -> Bool {
        guard let longSize, current < longSize else { return false }
        chargePerSDU *= 2
        return true
    }

    /// The size of the buffer, which now is `current`.
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
