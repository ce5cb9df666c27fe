internal import CBLESecOpenSSL

/// An X448 private key in OpenSSL, since libsodium lacks X448.
///
/// OpenSSL keeps a second copy of the private key on the ordinary heap. `deinit` lets OpenSSL wipe
/// this copy.
@safe final class X448PrivateKey: @unchecked Sendable {
    // Unchecked: OpenSSL counts references atomically, and using a key does not change the key.
    private let key: OpaquePointer

    init(_ privateKey: Span<UInt8>) throws(CryptoError) {
        let key = unsafe privateKey.withUnsafeBufferPointer { bytes in
            unsafe EVP_PKEY_new_raw_private_key(EVP_PKEY_X448, nil, bytes.baseAddress, bytes.count)
        }
        guard let key = unsafe key else {
            throw .libraryFailure(function: .init("EVP_PKEY_new_raw_private_key"))
        }
        unsafe self.key = key
    }

    deinit { unsafe EVP_PKEY_free(key) }

    func publicKey() throws(CryptoError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: Curve.x448.keyLength)
        var count = bytes.count
        guard unsafe EVP_PKEY_get_raw_public_key(key, &bytes, &count) == 1, count == bytes.count
        else { throw .libraryFailure(function: .init("EVP_PKEY_get_raw_public_key")) }
        return bytes
    }

    func sharedSecret(with peer: Span<UInt8>) throws(CryptoError) -> SecretBytes {
        let peerKey = unsafe peer.withUnsafeBufferPointer { bytes in
            unsafe EVP_PKEY_new_raw_public_key(EVP_PKEY_X448, nil, bytes.baseAddress, bytes.count)
        }
        defer { unsafe EVP_PKEY_free(peerKey) }
        let context = unsafe EVP_PKEY_CTX_new(key, nil)
        defer { unsafe EVP_PKEY_CTX_free(context) }
        guard unsafe peerKey != nil, unsafe context != nil,
            unsafe EVP_PKEY_derive_init(context) == 1,
            unsafe EVP_PKEY_derive_set_peer(context, peerKey) == 1
        else {
            ERR_clear_error()
            throw .libraryFailure(function: .init("EVP_PKEY_derive_set_peer"))
        }
        let secret = SecretBytes(count: Curve.x448.keyLength)
        var count = secret.count
        // All arguments are valid, so this fails only if the shared secret is all zeros.
        guard unsafe EVP_PKEY_derive(context, secret.start, &count) == 1 else {
            ERR_clear_error()
            throw .lowOrderPoint
        }
        return secret
    }
}
