public import BLESecPrimitives

/// The identity that the peer has proven. A peer's address, name and advertisement prove nothing.
public enum PeerIdentity: Sendable, Hashable, CustomStringConvertible {
    /// The peer holds the private key of this Noise static key.
    case publicKey([UInt8], curve: Curve)
    /// The peer holds the private key of a certificate with this DER SubjectPublicKeyInfo; `uri` is
    /// the only URI in the certificate, if an authority vouches for the certificate.
    case certificate(subjectPublicKeyInfo: [UInt8], uri: String?)
    /// The peer knows a pre-shared key: it is some member of the group that shares the key.
    case group
    /// The peer has proven nothing: the pattern does not authenticate the peer's side.
    case anonymous

    /// The fingerprint of the proven key, or `nil` for `group` and `anonymous`.
    public var fingerprint: Fingerprint? {
        switch self {
        case .publicKey(let key, let curve): Fingerprint(publicKey: key, curve: curve)
        case .certificate(let info, _): Fingerprint(subjectPublicKeyInfo: info)
        case .group, .anonymous: nil
        }
    }

    /// The only URI in the certificate, if an authority vouches for the certificate.
    public var uri: String? { if case .certificate(_, let uri) = self { uri } else { nil } }

    /// The fingerprint, or the name of the case if there is none.
    public var description: String {
        fingerprint?.description ?? (self == .group ? "group" : "anonymous")
    }
}

/// An expected key: the key itself, or only its fingerprint.
public struct PeerKey: Sendable, Hashable {
    /// The fingerprint that a proven identity is compared with.
    public let fingerprint: Fingerprint
    /// The raw public key, if it is known: patterns such as IK need it in advance.
    public let publicKey: [UInt8]?

    /// Makes an expected key from its fingerprint alone.
    public init(fingerprint: Fingerprint) {
        self.fingerprint = fingerprint
        publicKey = nil
    }

    /// Makes an expected key from its raw public key.
    ///
    /// - Throws: `badKey` when the key does not have the curve's length, when the bytes are not the canonical
    ///   encoding of a point, or when the point is of low order. A point of low order times any
    ///   private key is all zeros.
    public init(publicKey: [UInt8], curve: Curve = .x25519) throws(ChannelError) {
        guard publicKey.count == curve.keyLength, curve.isCanonical(publicKey.span) else {
            throw ChannelError(
                .badKey, "a public key has \(curve.keyLength) bytes in canonical form")
        }
        do {
            // `sharedSecret` refuses a point of low order.
            _ = try DHKeyPair.generate(curve).sharedSecret(with: publicKey)
        } catch {
            throw ChannelError(.badKey, "no private key has this public key: \(error)")
        }
        self.publicKey = publicKey
        fingerprint = Fingerprint(publicKey: publicKey, curve: curve)
    }

    /// Reads a fingerprint (`SHA256:…`) or the padded base64 of a raw X25519 or X448 public key.
    ///
    /// - Throws: `badKey` for anything else.
    public init(parsing text: String) throws(ChannelError) {
        if let fingerprint = Fingerprint(text) {
            self.init(fingerprint: fingerprint)
        } else if let key = Base64.decode(text, padded: true), key.count == Curve.x448.keyLength {
            try self.init(publicKey: key, curve: .x448)
        } else if let key = Base64.decode(text, padded: true), key.count == Curve.x25519.keyLength {
            try self.init(publicKey: key)
        } else {
            throw ChannelError(
                .badKey,
                "a peer's key is SHA256: and 43 characters, or the base64 of its public key, "
                    + "as `blesec pubkey` prints them")
        }
    }

    /// Reads what ``init(parsing:)`` reads; nil for anything else.
    public init?(_ text: String) {
        guard let value = try? Self(parsing: text) else { return nil }
        self = value
    }
}

extension PeerKey: LosslessStringConvertible {
    /// The form that ``init(parsing:)`` reads: the base64 of the public key, else the fingerprint.
    public var description: String {
        publicKey.map { Base64.encode($0, padded: true) } ?? fingerprint.description
    }
}

extension PeerKey: Codable {
    /// Reads the text form.
    public init(from decoder: any Decoder) throws {
        self = try decoder.readText { text throws(ChannelError) in try PeerKey(parsing: text) }
    }

    /// Writes the text form.
    public func encode(to encoder: any Encoder) throws { try encoder.writeText(self) }
}
