internal import CBLESecOpenSSL

/// OpenSSL's algorithms, each fetched once for the whole process.
///
/// Fetching an algorithm by name costs more than hashing a short message. The process ends if
/// OpenSSL, or its configuration, lacks an algorithm that is used.
enum OpenSSLAlgorithms {
    // Threads share a fetched algorithm, since it never changes; the compiler cannot know this.
    private nonisolated(unsafe) static let sha256 = unsafe fetch("SHA256", EVP_MD_fetch)
    private nonisolated(unsafe) static let sha512 = unsafe fetch("SHA512", EVP_MD_fetch)
    private nonisolated(unsafe) static let blake2s = unsafe fetch("BLAKE2S-256", EVP_MD_fetch)
    private nonisolated(unsafe) static let blake2b = unsafe fetch("BLAKE2B-512", EVP_MD_fetch)
    private nonisolated(unsafe) static let chaChaPoly =
        unsafe fetch("ChaCha20-Poly1305", EVP_CIPHER_fetch)
    private nonisolated(unsafe) static let aesGCM = unsafe fetch("AES-256-GCM", EVP_CIPHER_fetch)

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

    private static func fetch(
        _ name: String,
        _ function: (OpaquePointer?, UnsafePointer<CChar>?, UnsafePointer<CChar>?) -> OpaquePointer?
    ) -> OpaquePointer {
        guard let algorithm = unsafe function(nil, name, nil) else {
            preconditionFailure("this system's OpenSSL has no \(name)")
        }
        return unsafe algorithm
    }
}
