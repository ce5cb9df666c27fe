internal import CBLESecOpenSSL

/// OpenSSL's algorithms, each fetched once for the whole process.
///
/// Fetching an algorithm by name costs more than hashing a short message.
enum OpenSSLAlgorithms {
    // Marked unsafe, but safe: a fetched algorithm never changes.
    private nonisolated(unsafe) static let sha256 = unsafe fetchDigest("SHA256")
    private nonisolated(unsafe) static let sha512 = unsafe fetchDigest("SHA512")
    private nonisolated(unsafe) static let blake2s = unsafe fetchDigest("BLAKE2S-256")
    private nonisolated(unsafe) static let blake2b = unsafe fetchDigest("BLAKE2B-512")
    private nonisolated(unsafe) static let chaChaPoly = unsafe fetchCipher("ChaCha20-Poly1305")
    private nonisolated(unsafe) static let aesGCM = unsafe fetchCipher("AES-256-GCM")

    static func digest(_ algorithm: HashAlgorithm) -> OpaquePointer {
        switch algorithm {
        case .sha256: unsafe sha256
        case .sha512: unsafe sha512
        case .blake2s: unsafe blake2s
        case .blake2b: unsafe blake2b
        }
    }

    static func cipher(_ algorithm: AEADAlgorithm) -> OpaquePointer {
        switch algorithm {
        case .chaChaPoly: unsafe chaChaPoly
        case .aesGCM: unsafe aesGCM
        }
    }

    private static func fetchDigest(_ name: String) -> OpaquePointer {
        guard let digest = unsafe EVP_MD_fetch(nil, name, nil) else {
            preconditionFailure("this system's OpenSSL has no \(name)")
        }
        return unsafe digest
    }

    private static func fetchCipher(_ name: String) -> OpaquePointer {
        guard let cipher = unsafe EVP_CIPHER_fetch(nil, name, nil) else {
            preconditionFailure("this system's OpenSSL has no \(name)")
        }
        return unsafe cipher
    }
}
