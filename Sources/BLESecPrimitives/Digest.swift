internal import CBLESecOpenSSL
internal import CBLESecSodium

/// A running hash in the fastest library for it: BLAKE2b in libsodium, all others in OpenSSL.
///
/// SHA-256 of 64 bytes takes 0.13 µs in OpenSSL and 0.40 µs in libsodium; BLAKE2b takes 0.14 µs in
/// libsodium and 0.21 µs in OpenSSL. OpenSSL's context is on the ordinary heap and is wiped when it
/// is reused or freed.
@safe struct Digest: ~Copyable, @unchecked Sendable {
    // Unchecked: only this value owns the context, and the value cannot be copied.
    private let context: OpaquePointer?
    private let type: OpaquePointer?
    private let blake2b: SecretBytes?

    init(_ algorithm: HashAlgorithm) {
        switch algorithm {
        case .blake2b:
            Sodium.start()
            blake2b = SecretBytes(count: crypto_generichash_blake2b_statebytes())
            unsafe context = nil
            unsafe type = nil
        case .sha256, .sha512, .blake2s:
            blake2b = nil
            unsafe type = OpenSSLAlgorithms.digest(algorithm)
            guard let new = unsafe EVP_MD_CTX_new() else { preconditionFailure("no memory") }
            unsafe context = new
        }
        start()
    }

    deinit { unsafe EVP_MD_CTX_free(context) }

    /// Begins a new hash.
    func start() {
        if let state = unsafe blake2bState {
            unsafe _ = crypto_generichash_blake2b_init(state, nil, 0, 64)
        } else {
            let status = unsafe EVP_DigestInit_ex(context, type, nil)
            precondition(status == 1, "OpenSSL cannot begin a hash")
        }
    }

    func update(_ bytes: UnsafePointer<UInt8>?, count: Int) {
        guard count > 0 else { return }
        if let state = unsafe blake2bState {
            unsafe _ = crypto_generichash_blake2b_update(state, bytes, UInt64(count))
        } else {
            unsafe _ = EVP_DigestUpdate(context, bytes, count)
        }
    }

    /// Writes the digest and begins a new hash.
    func finish(into output: UnsafeMutablePointer<UInt8>) {
        if let state = unsafe blake2bState {
            unsafe _ = crypto_generichash_blake2b_final(state, output, 64)
        } else {
            unsafe _ = EVP_DigestFinal_ex(context, output, nil)
        }
        start()
    }

    /// Writes the digest of the bytes that were added so far; more can be added afterwards.
    func copyDigest(into output: UnsafeMutablePointer<UInt8>) {
        switch blake2b {
        case .some(let state):
            let copy = SecretBytes(copying: state.span)
            unsafe _ = crypto_generichash_blake2b_final(OpaquePointer(copy.start), output, 64)
        case .none:
            guard let copy = unsafe EVP_MD_CTX_new() else { preconditionFailure("no memory") }
            defer { unsafe EVP_MD_CTX_free(copy) }
            let status = unsafe EVP_MD_CTX_copy_ex(copy, context)
            precondition(status == 1, "OpenSSL cannot copy a hash")
            unsafe _ = EVP_DigestFinal_ex(copy, output, nil)
        }
    }

    /// libsodium's state, in a slot of the `SecretArena` with the required 64-byte alignment; nil
    /// for a hash of OpenSSL.
    private var blake2bState: OpaquePointer? {
        switch blake2b {
        case .some(let state): unsafe OpaquePointer(state.start)
        case .none: nil
        }
    }
}
