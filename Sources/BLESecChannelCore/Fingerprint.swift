public import BLESecPrimitives

/// The hash that identifies a public key: the whole SHA-256 over its DER SubjectPublicKeyInfo (RFC
/// 5280 §4.1). The text form is OpenSSH's: `SHA256:` and unpadded base64.
public struct Fingerprint: Sendable {
    /// SHA-256 over the SubjectPublicKeyInfo, 32 bytes.
    public let digest: [UInt8]

    /// The fingerprint of a DER SubjectPublicKeyInfo.
    public init(subjectPublicKeyInfo: [UInt8]) { digest = sha256(subjectPublicKeyInfo) }

    /// The fingerprint of a raw public key of `curve`.
    public init(publicKey: [UInt8], curve: Curve) {
        self.init(subjectPublicKeyInfo: curve.subjectPublicKeyInfoPrefix + publicKey)
    }

    /// The fingerprint with this digest of 32 bytes.
    package init(digest: [UInt8]) { self.digest = digest }

    /// Reads `SHA256:` and 43 characters of base64.
    ///
    /// - Throws: `badKey` for anything else.
    public init(parsing text: some StringProtocol) throws(ChannelError) {
        guard text.hasPrefix("SHA256:"),
            let digest = Base64.decode(text.dropFirst(7), padded: false), digest.count == 32
        else {
            throw ChannelError(
                .badKey, "a fingerprint is SHA256: and 43 characters, as `blesec pubkey` prints it")
        }
        self.digest = digest
    }

    /// Reads what ``init(parsing:)`` reads; nil for anything else.
    public init?(_ text: String) {
        guard let value = try? Self(parsing: text) else { return nil }
        self = value
    }
}

extension Fingerprint: Hashable {
    /// Compares in constant time, although a fingerprint is not a secret.
    public static func == (left: Fingerprint, right: Fingerprint) -> Bool {
        constantTimeEqual(left.digest.span, right.digest.span)
    }
}

extension Fingerprint: LosslessStringConvertible {
    /// The form that ``init(parsing:)`` reads.
    public var description: String { "SHA256:" + Base64.encode(digest, padded: false) }
}

extension Fingerprint: Codable {
    /// Reads the text form.
    public init(from decoder: any Decoder) throws {
        self = try decoder.readText { text throws(ChannelError) in try Fingerprint(parsing: text) }
    }

    /// Writes the text form.
    public func encode(to encoder: any Encoder) throws { try encoder.writeText(self) }
}

extension Curve {
    /// The DER bytes before the raw key in a SubjectPublicKeyInfo (RFC 8410 §4).
    package var subjectPublicKeyInfoPrefix: [UInt8] {
        switch self {
        case .x25519: [0x30, 0x2A, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x6E, 0x03, 0x21, 0x00]
        case .x448: [0x30, 0x42, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x6F, 0x03, 0x39, 0x00]
        }
    }
}
