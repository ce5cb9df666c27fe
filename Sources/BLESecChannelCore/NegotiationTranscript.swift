internal import BLESecPrimitives

/// The bytes that both sides bind into the handshake and confirm with the record `ready`.
package struct NegotiationTranscript: Sendable {
    /// The whole hello.
    package var hello: [UInt8] = []
    /// The dialer's first handshake message for offer 0, without its length.
    package var early: [UInt8] = []
    /// The whole answer.
    package var answer: [UInt8] = []
    /// A value that the application requires both sides to share; at most 255 bytes, not a secret.
    package var context: [UInt8]

    package init(context: [UInt8]) { self.context = context }

    /// The Noise prologue of the handshake that an answer with `status` selects. A u16 length
    /// precedes each field (`docs/wire-format.md`, "Prologue").
    package func prologue(for status: Answer.Status) -> [UInt8] {
        switch status {
        case .accept, .refused, .busy: Self.encode([Array("blesec/1 accept".utf8), hello, context])
        case .fallback:
            Self.encode([Array("blesec/1 fallback".utf8), hello, early, answer, context])
        case .switch: Self.encode([Array("blesec/1 switch".utf8), hello, early, answer, context])
        }
    }

    /// The payload of the record `ready` that the side with `role` sends: 32 bytes.
    package func ready(from role: ChannelRole) -> [UInt8] {
        sha256([role.rawValue], Self.encode([hello, early, answer, context]))
    }

    private static func encode(_ fields: [[UInt8]]) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(fields.reduce(0) { $0 + 2 + $1.count })
        for field in fields {
            bytes.append(UInt8(truncatingIfNeeded: field.count >> 8))
            bytes.append(UInt8(truncatingIfNeeded: field.count))
            bytes.append(contentsOf: field)
        }
        return bytes
    }
}
