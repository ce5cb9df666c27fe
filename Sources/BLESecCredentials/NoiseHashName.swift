internal import BLESecPrimitives

/// The Noise names of the hash functions (Noise §12.5 to §12.8).
extension HashAlgorithm {
    /// The name in a protocol name and in a key file.
    package var noiseName: String {
        switch self {
        case .sha256: "SHA256"
        case .sha512: "SHA512"
        case .blake2s: "BLAKE2s"
        case .blake2b: "BLAKE2b"
        }
    }

    /// The function with exactly that name.
    package init?(noiseName: String) {
        guard let found = Self.allCases.first(where: { $0.noiseName == noiseName }) else {
            return nil
        }
        self = found
    }

    /// The names in a list for people: `SHA256, SHA512, BLAKE2s or BLAKE2b`.
    package static let noiseNames = "SHA256, SHA512, BLAKE2s or BLAKE2b"
}
