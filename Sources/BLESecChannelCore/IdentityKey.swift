public import BLESecPrimitives

/// This side's Noise identity: a static key pair and the only Noise hash that it is used with.
///
/// A static key belongs to a single hash function (Noise §14), so the two are kept together.
public struct IdentityKey: Sendable {
    /// The static key pair.
    public let keyPair: DHKeyPair
    /// The only hash whose protocols may use the key.
    public let hash: HashAlgorithm
    /// The fingerprint by which peers know this identity.
    public let fingerprint: Fingerprint

    /// Binds a key pair to a hash.
    public init(_ keyPair: DHKeyPair, hash: HashAlgorithm = .sha256) {
        self.keyPair = keyPair
        self.hash = hash
        fingerprint = Fingerprint(publicKey: keyPair.publicKey, curve: keyPair.curve)
    }

    /// Makes a new identity; throws `internal` when the cryptographic library fails.
    public static func generate(
        curve: Curve = .x25519, hash: HashAlgorithm = .sha256
    ) throws(ChannelError) -> IdentityKey {
        do {
            return IdentityKey(try DHKeyPair.generate(curve), hash: hash)
        } catch {
            throw ChannelError(.internal, "no key could be made: \(error)")
        }
    }

    /// The raw public key.
    public var publicKey: [UInt8] { keyPair.publicKey }
}
