/// A hash function of Noise §12.5 to §12.8.
public enum HashAlgorithm: Sendable, Hashable, CaseIterable {
    /// SHA-256, FIPS 180-4.
    case sha256
    /// SHA-512, FIPS 180-4.
    case sha512
    /// BLAKE2s with a digest of 32 bytes, RFC 7693.
    case blake2s
    /// BLAKE2b with a digest of 64 bytes, RFC 7693.
    case blake2b

    /// The length of a digest in bytes; Noise's HASHLEN.
    public var digestLength: Int {
        switch self {
        case .sha256, .blake2s: 32
        case .sha512, .blake2b: 64
        }
    }

    /// The block length of the function in bytes; Noise's BLOCKLEN.
    public var blockLength: Int {
        switch self {
        case .sha256, .blake2s: 64
        case .sha512, .blake2b: 128
        }
    }
}
