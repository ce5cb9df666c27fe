/// The dialer's first bytes in negotiated mode: its offers, best first.
///
/// Layout (`docs/wire-format.md`, "Hello"): `"BLS1"` · u16 length (≤ 1,024) · u8 count (1…16) ·
/// count × (u8 length · ASCII name) · extensions. Every encoding is canonical, so that parsing and
/// encoding again gives the same bytes; the bytes themselves are bound into the handshake.
package struct Hello: Sendable, Equatable {
    /// The four bytes that begin a hello and an answer.
    package static let magic: [UInt8] = [0x42, 0x4C, 0x53, 0x31]
    /// The greatest value of the length field, in bytes.
    package static let maximumBodyLength = 1_024
    /// The most protocol names in one hello.
    package static let maximumOfferCount = 16

    /// Protocol names, best first: 1 to 16 different names of 1 to 255 visible ASCII characters.
    package let offers: [String]
    /// The extensions in the order in which they are sent.
    package let extensions: [HelloExtension]
    /// All bytes of the hello, including the magic and the length.
    package let encoded: [UInt8]

    /// Makes a hello; throws `configuration` if the offers are invalid or too long.
    package init(offers: [String], extensions: [HelloExtension] = []) throws(ChannelError) {
        guard (1...Self.maximumOfferCount).contains(offers.count) else {
            throw ChannelError(
                .configuration,
                "a hello offers 1 to \(Self.maximumOfferCount) protocols, not \(offers.count)")
        }
        var body: [UInt8] = [UInt8(offers.count)]
        for (index, name) in offers.enumerated() {
            guard (1...255).contains(name.utf8.count), name.utf8.allSatisfy(Self.isNameByte) else {
                throw ChannelError(
                    .configuration, "a protocol name is 1 to 255 printable ASCII characters")
            }
            guard !offers[..<index].contains(name) else {
                throw ChannelError(.configuration, "\(name) is offered twice")
            }
            body.append(UInt8(name.utf8.count))
            body.append(contentsOf: name.utf8)
        }
        HelloExtension.encode(extensions, into: &body)
        guard body.count <= Self.maximumBodyLength else {
            throw ChannelError(
                .configuration,
                "the offers take \(body.count) bytes, and \(Self.maximumBodyLength) fit in a hello")
        }
        self.offers = offers
        self.extensions = extensions
        encoded = Self.magic + [UInt8(body.count >> 8), UInt8(body.count & 0xFF)] + body
    }

    /// Reads a hello at the start of `bytes`, or returns `nil` while the hello is incomplete.
    ///
    /// A wrong byte of the magic is refused as soon as it arrives, so that a peer in another mode
    /// does not keep a half-open handshake until its deadline.
    package init?(prefixOf bytes: Span<UInt8>) throws(ChannelError) {
        guard let body = try NegotiationFrame.body(of: bytes, named: "hello") else { return nil }
        var reader = ByteReader(bytes, in: body)
        guard let count = reader.byte(), (1...Self.maximumOfferCount).contains(Int(count)) else {
            throw NegotiationFrame.malformed("hello", "its count of protocols is not 1 to 16")
        }
        var offers: [String] = []
        for _ in 0..<count {
            guard let length = reader.byte(), length > 0, let nameBytes = reader.bytes(Int(length))
            else {
                throw NegotiationFrame.malformed("hello", "a protocol name is empty or cut off")
            }
            guard nameBytes.allSatisfy(Self.isNameByte) else {
                throw NegotiationFrame.malformed("hello", "a protocol name is not printable ASCII")
            }
            let name = String(decoding: nameBytes, as: UTF8.self)
            guard !offers.contains(name) else {
                throw NegotiationFrame.malformed("hello", "a protocol is offered twice")
            }
            offers.append(name)
        }
        extensions = try HelloExtension.decode(&reader, in: "hello")
        self.offers = offers
        encoded = bytes.array(in: 0..<body.upperBound)
    }

    /// Whether a protocol name may contain the byte: a visible ASCII character.
    static func isNameByte(_ byte: UInt8) -> Bool { (0x21...0x7E).contains(byte) }
}
