/// A Diffie-Hellman function of RFC 7748; Noise §12.1 and §12.2.
public enum Curve: Sendable, Hashable, CaseIterable {
    /// X25519, called `25519` in a Noise protocol name.
    case x25519
    /// X448, called `448` in a Noise protocol name.
    case x448

    /// The length of a private key, a public key and a product in bytes; Noise's DHLEN.
    public var keyLength: Int {
        switch self {
        case .x25519: 32
        case .x448: 56
        }
    }

    /// Whether `publicKey` is the canonical encoding of a coordinate: less than the field's prime.
    ///
    /// RFC 7748 also accepts other encodings and reduces them, so one key has several encodings. If
    /// a key identifies a peer, only the canonical encoding may be accepted. The result is false
    /// also for a wrong length. Public keys are not secret, so the time of this check may vary.
    public func isCanonical(_ publicKey: Span<UInt8>) -> Bool {
        guard publicKey.count == keyLength else { return false }
        // Little-endian: the highest byte in which key and prime differ decides the comparison.
        for index in (0..<keyLength).reversed() {
            let limit = primeByte(index)
            if publicKey[index] != limit { return publicKey[index] < limit }
        }
        return false
    }

    /// Byte `index` of the field's prime, little-endian: 2^255 − 19, or 2^448 − 2^224 − 1.
    private func primeByte(_ index: Int) -> UInt8 {
        switch self {
        case .x25519: index == 0 ? 0xED : index == 31 ? 0x7F : 0xFF
        case .x448: index == 28 ? 0xFE : 0xFF
        }
    }
}
