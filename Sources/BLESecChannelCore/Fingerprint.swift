public import BLESecPrimitives

/// The one printable form of an identity: `SHA256:` and the unpadded base64 of SHA-256 over the DER
/// SubjectPublicKeyInfo (RFC 5280 §4.1), as OpenSSH prints one. Never truncated.
public struct Fingerprint: Sendable {
    /// SHA-256 over the SubjectPublicKeyInfo, 32 bytes.
    public let digest: [UInt8]

    /// The fingerprint of a DER SubjectPublicKeyInfo.
    public init(subjectPublicKeyInfo: [UInt8]) {
        digest = sha256(subjectPublicKeyInfo)
    }

    /// The fingerprint of a raw public key of `curve`.
    public init(publicKey: [UInt8], curve: Curve) {
        self.init(subjectPublicKeyInfo: curve.subjectPublicKeyInfoPrefix + publicKey)
    }

    /// Reads `SHA256:` and 43 characters of base64, or returns `nil`.
    public init?(_ text: String) {
        guard text.hasPrefix("SHA256:"),
            let digest = Base64.decode(text.dropFirst(7), padded: false), digest.count == 32
        else { return nil }
        self.digest = digest
    }
}

extension Fingerprint: Hashable {
    /// Compares in constant time, although a fingerprint is not a secret.
    public static func == (left: Fingerprint, right: Fingerprint) -> Bool {
        constantTimeEqual(left.digest.span, right.digest.span)
    }
}

extension Fingerprint: CustomStringConvertible {
    /// The form that ``init(_:)`` reads.
    public var description: String { "SHA256:" + Base64.encode(digest, padded: false) }
}

extension Curve {
    /// The DER bytes before the raw key in a SubjectPublicKeyInfo (RFC 8410 §4).
    package var subjectPublicKeyInfoPrefix: [UInt8] {
        switch self {
        case .x25519:
            [0x30, 0x2A, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x6E, 0x03, 0x21, 0x00]
        case .x448:
            [0x30, 0x42, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x6F, 0x03, 0x39, 0x00]
        }
    }
}
