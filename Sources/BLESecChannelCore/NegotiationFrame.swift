/// The common frame of hello and answer: the magic, and a u16 length with a limit.
enum NegotiationFrame {
    /// The number of bytes before the body: the magic and the length.
    static let headerLength = 6

    /// The range of the body in `bytes`, or `nil` while the frame is incomplete. `name` says in errors
    /// which frame this is.
    static func body(
        of bytes: Span<UInt8>, named name: String
    ) throws(ChannelError) -> Range<Int>? {
        for index in 0..<min(bytes.count, Hello.magic.count)
        where bytes[index] != Hello.magic[index] {
            throw ChannelError(
                .protocolViolation,
                "the peer does not speak blesec/1: the first bytes of its \(name) are wrong")
        }
        guard bytes.count >= headerLength else { return nil }
        let length = Int(bytes[4]) << 8 | Int(bytes[5])
        guard (1...Hello.maximumBodyLength).contains(length) else {
            throw malformed(name, "its length is not 1 to \(Hello.maximumBodyLength)")
        }
        guard bytes.count >= headerLength + length else { return nil }
        return headerLength..<headerLength + length
    }

    static func malformed(_ name: String, _ fault: String) -> ChannelError {
        ChannelError(.protocolViolation, "the peer's \(name) is malformed: \(fault)")
    }
}
