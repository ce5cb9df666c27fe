/// A cipher of Noise §12.3 and §12.4: authenticated encryption with additional data.
public enum AEADAlgorithm: Sendable, Hashable, CaseIterable {
    /// ChaCha20-Poly1305, RFC 8439: nonce of 4 zero bytes and the counter, little-endian.
    case chaChaPoly
    /// AES-256-GCM, NIST SP 800-38D: nonce of 4 zero bytes and the counter, big-endian.
    case aesGCM

    /// The length of a key in bytes.
    public static let keyLength = 32
    /// The length of the tag after every ciphertext, in bytes.
    public static let tagLength = 16
}
