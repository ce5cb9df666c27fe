import BLESecNoise

/// The code on datagrams in docs/noise.md.
struct DatagramPeer: ~Copyable {
    private var session: StatelessTransport
    private var window = ReplayWindow()
    private var nonce: UInt64

    init(_ transport: consuming TransportState) {
        session = StatelessTransport(transport)
        nonce = session.firstNonce
    }

    /// Returns the datagram: eight bytes of nonce, then the sealed message.
    mutating func seal(_ plaintext: [UInt8]) throws -> [UInt8] {
        var datagram = (0..<8).map { UInt8(truncatingIfNeeded: nonce >> (56 - 8 * $0)) }
        datagram += plaintext + [UInt8](repeating: 0, count: TransportState.overhead)
        var span = datagram.mutableSpan
        try session.encrypt(inPlace: &span, at: 8, count: plaintext.count, nonce: nonce)
        nonce += 1
        return datagram
    }

    /// Returns the message; nil if the datagram is forged, repeated or too old. Anybody can send such
    /// a datagram, but it changes nothing.
    mutating func open(_ datagram: [UInt8]) -> [UInt8]? {
        guard datagram.count >= 8 else { return nil }
        let nonce = datagram.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
        guard window.isNew(nonce) else { return nil }
        var bytes = datagram
        var span = bytes.mutableSpan
        let count = try? session.decrypt(
            inPlace: &span, at: 8, count: datagram.count - 8, nonce: nonce)
        guard let count, window.accept(nonce) else { return nil }
        return Array(bytes[8..<8 + count])
    }
}
