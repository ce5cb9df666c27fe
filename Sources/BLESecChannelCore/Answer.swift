/// The acceptor's answer to a hello.
///
/// Layout (`docs/wire-format.md`, "Answer"): `"BLS1"` · u16 length (≤ 1,024) · u8 status ·
/// u8 index · extensions.
package struct Answer: Sendable, Equatable {
    /// The acceptor's decision.
    package enum Status: UInt8, Sendable, Hashable {
        /// Offer 0 is accepted; the acceptor's handshake message follows.
        case accept = 0
        /// Offer 0 is not accepted, or its early message could not be read. The acceptor's next
        /// message begins a fallback to another offer. The fallback uses the dialer's ephemeral key
        /// from the early message.
        case fallback = 1
        /// Another offer is accepted; the dialer begins a handshake for this offer, with a new
        /// ephemeral key.
        case `switch` = 2
        /// The acceptor accepts none of the offers.
        case refused = 3
        /// Too many handshakes are under way.
        case busy = 4
    }

    package let status: Status
    /// The index of the accepted offer in the hello, from 0. The index is 0 for `accept`, `refused` and
    /// `busy`, and at least 1 for `fallback` and `switch`.
    package let index: Int
    /// The extensions in the order in which they are sent.
    package let extensions: [HelloExtension]
    /// All bytes of the answer, including the magic and the length.
    package let encoded: [UInt8]

    /// Makes an answer; an index that the status does not allow is a programming error.
    ///
    /// The extensions take at most 1,022 bytes.
    package init(_ status: Status, index: Int = 0, extensions: [HelloExtension] = []) {
        precondition(Self.allows(status, index: index, offerCount: Hello.maximumOfferCount))
        var body: [UInt8] = [status.rawValue, UInt8(index)]
        HelloExtension.encode(extensions, into: &body)
        precondition(body.count <= Hello.maximumBodyLength, "extensions that do not fit an answer")
        self.status = status
        self.index = index
        self.extensions = extensions
        encoded = Hello.magic + [UInt8(body.count >> 8), UInt8(body.count & 0xFF)] + body
    }

    /// Reads an answer at the start of `bytes`, or returns `nil` while the answer is incomplete.
    /// The hello has `offerCount` offers.
    package init?(prefixOf bytes: Span<UInt8>, offerCount: Int) throws(ChannelError) {
        guard let body = try NegotiationFrame.body(of: bytes, named: "answer") else { return nil }
        var reader = ByteReader(bytes, in: body)
        guard let code = reader.byte(), let index = reader.byte() else {
            throw NegotiationFrame.malformed("answer", "it is too short")
        }
        guard let status = Status(rawValue: code) else {
            throw NegotiationFrame.malformed("answer", "its status \(code) is unknown")
        }
        guard Self.allows(status, index: Int(index), offerCount: offerCount) else {
            throw NegotiationFrame.malformed("answer", "its index \(index) does not fit its status")
        }
        self.status = status
        self.index = Int(index)
        extensions = try HelloExtension.decode(&reader, in: "answer")
        encoded = bytes.array(in: 0..<body.upperBound)
    }

    /// Whether an answer to `offerCount` offers may have this status with this index.
    private static func allows(_ status: Status, index: Int, offerCount: Int) -> Bool {
        switch status {
        case .accept, .refused, .busy: index == 0
        case .fallback, .switch: (1..<max(offerCount, 1)).contains(index)
        }
    }
}
