public import BLESecPrimitives

/// A pre-shared symmetric key of 32 bytes; Noise §9.
///
/// The key must be random: anyone who records a handshake could guess a passphrase. Use each psk
/// with only one hash function (Noise §14).
public final class PreSharedKey: Sendable, CustomStringConvertible, CustomReflectable {
    /// The length of a psk in bytes.
    public static let length = 32

    let key: SecretBytes

    /// Takes ownership of the key.
    ///
    /// - Throws: `CryptoError.wrongLength` unless it has 32 bytes.
    public init(_ key: consuming SecretBytes) throws(CryptoError) {
        guard key.count == Self.length else {
            throw .wrongLength(expected: Self.length, actual: key.count)
        }
        self.key = key
    }

    /// `<redacted>`, always.
    public var description: String { "<redacted>" }
    /// Empty, so that the key does not appear in dumps.
    public var customMirror: Mirror { Mirror(self, children: []) }
}
