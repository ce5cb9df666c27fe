internal import CBLESecOpenSSL

/// A key in an OpenSSL context, for the messages that ``AEAD`` passes to OpenSSL. Each message sets
/// only a new nonce.
///
/// The context is on the ordinary heap; OpenSSL wipes the context when it is freed.
@safe final class BulkCipher: @unchecked Sendable {
    // Unchecked: its only owner, an AEAD, cannot be copied.
    private let context: OpaquePointer

    init(_ algorithm: AEADAlgorithm, key: Span<UInt8>) throws(CryptoError) {
        guard let context = unsafe EVP_CIPHER_CTX_new() else {
            throw .libraryFailure(function: .init("EVP_CIPHER_CTX_new"))
        }
        let status = unsafe key.withUnsafeBufferPointer { key in
            unsafe EVP_CipherInit_ex(
                context, OpenSSLAlgorithms.cipher(algorithm), nil, key.baseAddress, nil, 1)
        }
        guard status == 1 else {
            unsafe EVP_CIPHER_CTX_free(context)
            throw .libraryFailure(function: .init("EVP_CipherInit_ex"))
        }
        unsafe self.context = context
    }

    deinit { unsafe EVP_CIPHER_CTX_free(context) }

    /// Encrypts the `count` bytes at `message` in place. Then encrypts `rest`, if it is not nil,
    /// into the memory after these bytes. The tag follows. Returns false if OpenSSL fails.
    func seal(
        _ message: UnsafeMutablePointer<UInt8>, _ count: Int, _ rest: UnsafeBufferPointer<UInt8>?,
        _ nonce: UnsafePointer<UInt8>, _ data: UnsafeBufferPointer<UInt8>
    ) -> Bool {
        var end = unsafe message + count
        var length: Int32 = 0
        guard unsafe EVP_CipherInit_ex(context, nil, nil, nil, nonce, 1) == 1,
            unsafe addData(data),
            unsafe EVP_CipherUpdate(context, message, &length, message, Int32(count)) == 1
        else { return false }
        if let rest = unsafe rest {
            guard
                unsafe EVP_CipherUpdate(context, end, &length, rest.baseAddress, Int32(rest.count))
                    == 1
            else { return false }
            unsafe end += rest.count
        }
        guard unsafe EVP_CipherFinal_ex(context, end, &length) == 1 else { return false }
        return unsafe withTag(end) { unsafe EVP_CIPHER_CTX_get_params(context, $0) == 1 }
    }

    /// Decrypts in place; false if the tag after the message is wrong, or OpenSSL fails.
    func open(
        _ message: UnsafeMutablePointer<UInt8>, _ count: Int, _ nonce: UnsafePointer<UInt8>,
        _ data: UnsafeBufferPointer<UInt8>
    ) -> Bool {
        var length: Int32 = 0
        let isAuthentic =
            unsafe EVP_CipherInit_ex(context, nil, nil, nil, nonce, 0) == 1
            && withTag(message + count) { unsafe EVP_CIPHER_CTX_set_params(context, $0) == 1 }
            && addData(data)
            && EVP_CipherUpdate(context, message, &length, message, Int32(count)) == 1
            && EVP_CipherFinal_ex(context, message + Int(length), &length) == 1
        // Remove the error from OpenSSL's queue, where the thread's next user of OpenSSL would find
        // it.
        if !isAuthentic { ERR_clear_error() }
        return isAuthentic
    }

    private func addData(_ data: UnsafeBufferPointer<UInt8>) -> Bool {
        var length: Int32 = 0
        guard !data.isEmpty else { return true }
        return unsafe EVP_CipherUpdate(
            context, nil, &length, data.baseAddress, Int32(data.count)) == 1
    }

    /// Passes the tag as an OpenSSL parameter, which is faster than `EVP_CIPHER_CTX_ctrl`.
    private func withTag(
        _ tag: UnsafeMutablePointer<UInt8>, _ body: (UnsafeMutablePointer<OSSL_PARAM>) -> Bool
    ) -> Bool {
        var parameters = unsafe (
            blesec_openssl_tag_parameter(tag, AEADAlgorithm.tagLength),
            OSSL_PARAM_construct_end()
        )
        return unsafe withUnsafeMutablePointer(to: &parameters) { pointer in
            unsafe pointer.withMemoryRebound(to: OSSL_PARAM.self, capacity: 2) { parameters in
                unsafe body(parameters)
            }
        }
    }
}
