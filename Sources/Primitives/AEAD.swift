internal import CSodium

/// A key of an AEAD with kept contexts: seals and opens in place.
///
/// Short messages go to libsodium and long ones to OpenSSL, by size, since each is faster there;
/// the bytes are the same. OpenSSL's context is made by the first long message, so that a
/// handshake does not pay for it. Once it is there, no call allocates.
public struct AEAD: ~Copyable, Sendable {
    /// The cipher.
    public let algorithm: AEADAlgorithm

    private var key: SecretBytes
    /// libsodium's expanded AES key.
    private var expandedKey: SecretBytes?
    private var bulk: BulkCipher?

    /// Copies the 32 bytes at `offset` in `keys`.
    public init(_ algorithm: AEADAlgorithm, key keys: borrowing SecretBytes, at offset: Int = 0) {
        self.algorithm = algorithm
        key = SecretBytes(count: AEADAlgorithm.keyLength)
        key.copy(from: keys, at: offset)
    }

    /// Replaces the key by the 32 bytes at `offset` in `keys`; contexts of the old one are wiped.
    public mutating func replaceKey(_ keys: borrowing SecretBytes, at offset: Int = 0) {
        expandedKey = nil
        bulk = nil
        key.copy(from: keys, at: offset)
    }

    /// Seals `count` bytes of `buffer` from `offset` on, in place; the tag of 16 bytes follows
    /// them.
    ///
    /// One nonce must never be used for two messages under one key.
    /// - Throws: `CryptoError.libraryFailure`; the buffer is wiped then.
    public mutating func seal(
        _ buffer: inout MutableSpan<UInt8>, at offset: Int = 0, count: Int, nonce: UInt64,
        additionalData: Span<UInt8> = Span()
    ) throws(CryptoError) {
        precondition(
            offset >= 0 && count >= 0 && count <= Int(Int32.max)
                && offset + count + AEADAlgorithm.tagLength <= buffer.count,
            "no room for the message and its tag")
        let prepared = try prepare(for: count)
        let done = unsafe buffer.withUnsafeMutableBufferPointer { buffer in
            unsafe additionalData.withUnsafeBufferPointer { data in
                guard let base = buffer.baseAddress else { return false }
                let message = unsafe base + offset
                let ok = unsafe sealed(message, count, nonce, data, prepared)
                if !ok { unsafe sodium_memzero(message, count) }
                return ok
            }
        }
        guard done else { throw .libraryFailure(function: .init("EVP_EncryptFinal_ex")) }
    }

    /// Opens `count` bytes of `buffer` from `offset` on, in place, the last 16 of which are the
    /// tag; the plaintext is the first `count` − 16 of them.
    ///
    /// - Throws: `CryptoError.authenticationFailed`, also for fewer than 16 bytes; the bytes are
    ///   wiped then, so that nobody reads what was never authentic.
    public mutating func open(
        _ buffer: inout MutableSpan<UInt8>, at offset: Int = 0, count: Int, nonce: UInt64,
        additionalData: Span<UInt8> = Span()
    ) throws(CryptoError) {
        precondition(
            offset >= 0 && count >= 0 && count <= Int(Int32.max)
                && offset + count <= buffer.count, "the message is not inside the buffer")
        guard count >= AEADAlgorithm.tagLength else { throw .authenticationFailed }
        let length = count - AEADAlgorithm.tagLength
        let prepared = try prepare(for: length)
        let done = unsafe buffer.withUnsafeMutableBufferPointer { buffer in
            unsafe additionalData.withUnsafeBufferPointer { data in
                guard let base = buffer.baseAddress else { return false }
                let message = unsafe base + offset
                let ok = unsafe opened(message, length, nonce, data, prepared)
                if !ok { unsafe sodium_memzero(message, length) }
                return ok
            }
        }
        guard done else { throw .authenticationFailed }
    }

    // MARK: Which library

    private enum Route { case sodiumChaChaPoly, sodiumAESGCM, openSSL }

    /// From which length on OpenSSL is the faster one, in bytes, per cipher.
    ///
    /// Measured on two x86-64 machines: ChaCha20-Poly1305 crosses between 250 and 500, AES-GCM
    /// between 200 and 450.
    private var crossover: Int {
        switch algorithm {
        case .chaChaPoly: 384
        case .aesGCM: Sodium.hasAESGCM ? 256 : 0
        }
    }

    private mutating func prepare(for count: Int) throws(CryptoError) -> Route {
        if count >= crossover {
            if bulk == nil { bulk = try BulkCipher(algorithm, key: key.span) }
            return .openSSL
        }
        guard algorithm == .aesGCM else { return .sodiumChaChaPoly }
        if expandedKey == nil {
            let expanded = SecretBytes(count: crypto_aead_aes256gcm_statebytes())
            unsafe _ = crypto_aead_aes256gcm_beforenm(Self.state(expanded), key.start)
            expandedKey = consume expanded
        }
        return .sodiumAESGCM
    }

    /// The slot as libsodium's state; slots of this size are aligned to more than its 16 bytes.
    private static func state(
        _ slot: borrowing SecretBytes
    ) -> UnsafeMutablePointer<crypto_aead_aes256gcm_state> {
        unsafe UnsafeMutableRawPointer(slot.start)
            .assumingMemoryBound(to: crypto_aead_aes256gcm_state.self)
    }

    private func withExpandedKey(
        _ body: (UnsafePointer<crypto_aead_aes256gcm_state>) -> Bool
    ) -> Bool {
        switch expandedKey {
        case .some(let expanded): unsafe body(Self.state(expanded))
        case .none: false
        }
    }

    private func sealed(
        _ message: UnsafeMutablePointer<UInt8>, _ count: Int, _ nonce: UInt64,
        _ data: UnsafeBufferPointer<UInt8>, _ route: Route
    ) -> Bool {
        switch route {
        case .sodiumChaChaPoly:
            unsafe withNonce(nonce) { nonce in
                unsafe crypto_aead_chacha20poly1305_ietf_encrypt(
                    message, nil, message, UInt64(count), data.baseAddress, UInt64(data.count),
                    nil, nonce, key.start) == 0
            }
        case .sodiumAESGCM:
            unsafe withNonce(nonce) { nonce in
                unsafe withExpandedKey { key in
                    unsafe crypto_aead_aes256gcm_encrypt_afternm(
                        message, nil, message, UInt64(count), data.baseAddress,
                        UInt64(data.count), nil, nonce, key) == 0
                }
            }
        case .openSSL:
            unsafe withNonce(nonce) { nonce in
                switch bulk {
                case .some(let bulk): unsafe bulk.seal(message, count, nonce, data)
                case .none: false
                }
            }
        }
    }

    private func opened(
        _ message: UnsafeMutablePointer<UInt8>, _ count: Int, _ nonce: UInt64,
        _ data: UnsafeBufferPointer<UInt8>, _ route: Route
    ) -> Bool {
        let sealedCount = UInt64(count + AEADAlgorithm.tagLength)
        switch route {
        case .sodiumChaChaPoly:
            return unsafe withNonce(nonce) { nonce in
                unsafe crypto_aead_chacha20poly1305_ietf_decrypt(
                    message, nil, nil, message, sealedCount, data.baseAddress,
                    UInt64(data.count), nonce, key.start) == 0
            }
        case .sodiumAESGCM:
            return unsafe withNonce(nonce) { nonce in
                unsafe withExpandedKey { key in
                    unsafe crypto_aead_aes256gcm_decrypt_afternm(
                        message, nil, nil, message, sealedCount, data.baseAddress,
                        UInt64(data.count), nonce, key) == 0
                }
            }
        case .openSSL:
            return unsafe withNonce(nonce) { nonce in
                switch bulk {
                case .some(let bulk): unsafe bulk.open(message, count, nonce, data)
                case .none: false
                }
            }
        }
    }

    /// The nonce's 12 bytes: 4 of zero, then the counter in the cipher's byte order.
    private func withNonce(
        _ counter: UInt64, _ body: (UnsafePointer<UInt8>) -> Bool
    ) -> Bool {
        let ordered: UInt64
        switch algorithm {
        case .chaChaPoly: ordered = counter.littleEndian
        case .aesGCM: ordered = counter.bigEndian
        }
        // In memory order, whatever the machine's own is.
        let halves = UInt64(littleEndian: ordered)
        let words = (
            UInt32(0), UInt32(truncatingIfNeeded: halves).littleEndian,
            UInt32(truncatingIfNeeded: halves >> 32).littleEndian
        )
        return unsafe withUnsafeBytes(of: words) { bytes in
            guard let start = unsafe bytes.bindMemory(to: UInt8.self).baseAddress else {
                return false
            }
            return unsafe body(start)
        }
    }
}
