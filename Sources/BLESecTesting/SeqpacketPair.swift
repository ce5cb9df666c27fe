public import BLESecLinks

/// Two links over a pair of `SOCK_SEQPACKET` sockets, with the kernel's queues, backpressure and
/// hang-ups, and without Bluetooth.
public enum SeqpacketPair {
    /// Makes the two ends, both on one loop.
    ///
    /// - Parameters:
    ///   - loop: the loop of both ends.
    ///   - maximumSDU: the largest send, 1 to 65,536 bytes. The default, 8,192, is also the largest
    ///     value that blesec accepts for L2CAP.
    public static func make(
        loop: EventLoop, maximumSDU: Int = 8_192
    ) async throws(LinkError) -> (any Link, any Link) {
        try await SocketLink.pair(.seqpacket, maximumSDU: maximumSDU, loop: loop)
    }
}
