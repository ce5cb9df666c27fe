/// What became of one vector.
package enum VectorOutcome: Sendable, Hashable {
    /// Every message and the hash are met, byte for byte, by both roles.
    case passed
    /// Something differs.
    case failed(VectorFailure)
    /// This module cannot do the protocol, for this reason.
    case skipped(String)
}

/// Where a vector differs from this implementation.
package struct VectorFailure: Error, Sendable, Hashable, CustomStringConvertible {
    /// What is to blame.
    package enum Part: Sendable, Hashable {
        /// The message at this index.
        case message(Int)
        /// The handshake hash.
        case handshakeHash
        /// The vector as a whole, or one of its keys.
        case vector
    }

    /// What is to blame.
    package let part: Part
    /// The first byte that differs, counted from 0; nil where there are no bytes to compare.
    package let byte: Int?
    /// What is wrong.
    package let reason: String

    init(_ part: Part, byte: Int? = nil, _ reason: String) {
        self.part = part
        self.byte = byte
        self.reason = reason
    }

    init(_ reason: String) { self.init(.vector, reason) }

    /// Compares what was made with what the vector has, and throws where they differ.
    static func compare(
        _ made: [UInt8], _ expected: [UInt8], _ part: Part
    ) throws(VectorFailure) {
        guard made != expected else { return }
        let common = min(made.count, expected.count)
        let byte = (0..<common).first { made[$0] != expected[$0] } ?? common
        let reason =
            byte < common
            ? "\(hex(made[byte])) was made, and the vector has \(hex(expected[byte]))"
            : "\(made.count) bytes were made, and the vector has \(expected.count)"
        throw VectorFailure(part, byte: byte, reason)
    }

    private static func hex(_ byte: UInt8) -> String {
        (byte < 16 ? "0" : "") + String(byte, radix: 16)
    }

    /// Part, byte and reason, as far as there are any.
    package var description: String {
        var text =
            switch part {
            case .message(let index): "message \(index): "
            case .handshakeHash: "handshake hash: "
            case .vector: ""
            }
        if let byte { text += "byte \(byte): " }
        return text + reason
    }
}
