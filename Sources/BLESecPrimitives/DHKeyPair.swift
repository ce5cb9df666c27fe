internal import CBLESecSodium

/// A private key of X25519 or X448 with its public key; Noise §4.1.
///
/// A key pair may be used in many sessions and on many threads at once.
public final class DHKeyPair: Sendable {
    /// The Diffie-Hellman function that the key is for.
    public let curve: Curve
    /// The public key, `curve.keyLength` bytes.
    public let publicKey: [UInt8]
    private let privateKey: SecretBytes
    private let x448: X448PrivateKey?

    /// Makes a key pair from a private key.
    ///
    /// Any `curve.keyLength` bytes are valid: whenever X25519 and X448 use the key, they set and
    /// clear the bits that RFC 7748 §5 names.
    /// - Throws: `CryptoError.wrongLength`; for X448 also `CryptoError.libraryFailure`.
    public init(curve: Curve, privateKey: consuming SecretBytes) throws(CryptoError) {
        guard privateKey.count == curve.keyLength else {
            throw .wrongLength(expected: curve.keyLength, actual: privateKey.count)
        }
        self.curve = curve
        switch curve {
        case .x25519:
            Sodium.start()
            var publicKey = [UInt8](repeating: 0, count: curve.keyLength)
            // This cannot fail, since the base point is not of low order.
            _ = unsafe crypto_scalarmult_base(&publicKey, privateKey.start)
            self.publicKey = publicKey
            x448 = nil
        case .x448:
            let key = try X448PrivateKey(privateKey.span)
            publicKey = try key.publicKey()
            x448 = key
        }
        self.privateKey = privateKey
    }

    /// Makes a new random key pair; Noise's GENERATE_KEYPAIR().
    public static func generate(_ curve: Curve) throws(CryptoError) -> DHKeyPair {
        try DHKeyPair(curve: curve, privateKey: SecretBytes(randomCount: curve.keyLength))
    }

    /// The Diffie-Hellman product of this private key and `peer`'s public key; Noise's DH().
    ///
    /// - Throws: `CryptoError.wrongLength`; `CryptoError.lowOrderPoint` if the product is all
    ///   zeros, a check that Noise §12.1 and RFC 7748 §6 allow; for X448 also
    ///   `CryptoError.libraryFailure`.
    public func sharedSecret(with peer: Span<UInt8>) throws(CryptoError) -> SecretBytes {
        guard peer.count == curve.keyLength else {
            throw .wrongLength(expected: curve.keyLength, actual: peer.count)
        }
        if let x448 { return try x448.sharedSecret(with: peer) }
        let product = SecretBytes(count: curve.keyLength)
        let status = unsafe peer.withUnsafeBufferPointer { peer in
            guard let peer = peer.baseAddress else { return Int32(-1) }
            return unsafe crypto_scalarmult(product.start, privateKey.start, peer)
        }
        guard status == 0 else { throw .lowOrderPoint }
        return product
    }

    /// `sharedSecret(with:)` for a public key in an array.
    public func sharedSecret(with peer: [UInt8]) throws(CryptoError) -> SecretBytes {
        try sharedSecret(with: peer.span)
    }

    /// Calls `body` with the bytes of the private key, for example to write them to a file. The span
    /// is valid only during the call.
    public func withPrivateKey<R: ~Copyable, E: Error>(
        _ body: (Span<UInt8>) throws(E) -> R
    ) throws(E) -> R {
        try unsafe privateKey.withUnsafeBytes { bytes throws(E) in
            // Not `privateKey.span`: the compiler would assume that the generic result depends on
            // that span.
            try body(unsafe Span(_unsafeElements: bytes))
        }
    }
}

extension DHKeyPair: CustomStringConvertible, CustomReflectable {
    /// Only the curve: neither key belongs in a log.
    public var description: String { "<\(curve) key pair>" }
    /// Empty, so that the keys do not appear in dumps.
    public var customMirror: Mirror { Mirror(self, children: []) }
}
