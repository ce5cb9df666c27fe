internal import CBLESecSodium

/// Encrypts and decrypts messages with one AEAD key, and holds the libraries' contexts for this key.
///
/// Each message goes to the library that is faster for its length: short ones to libsodium, long
/// ones to OpenSSL. The result is the same. Each library's context is made when the first message
/// needs it, so a handshake usually makes no context of OpenSSL. Later calls allocate no memory.
public struct AEAD: ~Copyable, Sendable {
    /// The cipher.
    public let algorithm: AEADAlgorithm

    /// The key, then the nonce of the current message.
    private var key: SecretBytes
    /// libsodium's expanded AES key.
    private var expandedKey: SecretBytes?
    /// OpenSSL's context.
    private var bulk: BulkCipher?
    /// Messages of at least this many bytes are processed by OpenSSL.
    private let crossover: Int

    /// Copies the 32 bytes at `offset` in `keys`.
    public init(_ algorithm: AEADAlgorithm, key keys: borrowing SecretBytes, at offset: Int = 0) {
        self.init(algorithm, key: keys, at: offset, crossover: Self.measuredCrossover(algorithm))
    }

    /// Does what the public initializer does, with a given crossover, so that tests can use each
    /// library for any message.
    package init(
        _ algorithm: AEADAlgorithm, key keys: borrowing SecretBytes, at offset: Int = 0,
        crossover: Int
    ) {
        self.algorithm = algorithm
        // libsodium has AES-GCM only on some processors; elsewhere OpenSSL takes every length.
        self.crossover = algorithm == .aesGCM && !Sodium.hasAESGCM ? 0 : crossover
        key = SecretBytes(count: AEADAlgorithm.keyLength + Self.nonceLength)
        key.copy(from: keys, at: offset, count: AEADAlgorithm.keyLength)
    }

    /// Replaces the key with the 32 bytes at `offset` in `keys`; contexts of the old key are wiped.
    public mutating func replaceKey(_ keys: borrowing SecretBytes, at offset: Int = 0) {
        expandedKey = nil
        bulk = nil
        key.copy(from: keys, at: offset, count: AEADAlgorithm.keyLength)
    }

    /// Encrypts `count` bytes of `buffer` from `offset` on, in place; the 16-byte tag follows them.
    ///
    /// A nonce must never be used for two messages under one key.
    /// - Throws: `CryptoError.libraryFailure`. If the encryption itself has failed, the `count`
    ///   bytes are wiped; if no context could be made, they are unchanged.
    public mutating func seal(
        _ buffer: inout MutableSpan<UInt8>, at offset: Int = 0, count: Int, nonce: UInt64,
        additionalData: Span<UInt8> = Span()
    ) throws(CryptoError) {
        precondition(
            offset >= 0 && count >= 0 && count <= Int(Int32.max)
                && offset + count + AEADAlgorithm.tagLength <= buffer.count,
            "no room for the message and its tag")
        let route = try prepare(for: count)
        writeNonce(nonce)
        let isSealed = unsafe buffer.withUnsafeMutableBufferPointer { buffer in
            unsafe additionalData.withUnsafeBufferPointer { data in
                guard let base = buffer.baseAddress else { return false }
                let message = unsafe base + offset
                let hasSucceeded = unsafe sealRaw(message, count, data, route)
                if !hasSucceeded { unsafe sodium_memzero(message, count) }
                return hasSucceeded
            }
        }
        guard isSealed else { throw .libraryFailure(function: .init("EVP_EncryptFinal_ex")) }
    }

    /// Encrypts `head` and then `message`, and appends the ciphertext and its tag to `output`. Most
    /// of a long message is encrypted from where it is, without a copy. `head` has at most 1,024
    /// bytes.
    ///
    /// - Throws: `CryptoError.libraryFailure`; nothing is appended then.
    package mutating func seal(
        _ head: Span<UInt8>, _ message: Span<UInt8>, into output: inout OutputSpan<UInt8>,
        nonce: UInt64
    ) throws(CryptoError) {
        let start = output.count
        let count = head.count + message.count
        let needed = count + AEADAlgorithm.tagLength
        precondition(
            count <= Int(Int32.max) && needed <= output.freeCapacity,
            "no room for the message and its tag")
        precondition(head.count <= Self.firstPieceLength, "the head is too long")
        let isLong = count >= max(Self.leastUncopiedLength, crossover)
        // `prepare` may fail, so it is called before any plaintext is in the output.
        if isLong { _ = try prepare(for: count) }
        output.append(copying: head)
        if isLong {
            let copiedCount = Self.firstPieceLength - head.count
            output.append(copying: message.extracting(first: copiedCount))
            do throws(CryptoError) {
                try sealLong(&output, message.extracting(droppingFirst: copiedCount), nonce)
            } catch {
                output.removeLast(Self.firstPieceLength)
                throw error
            }
            return
        }
        output.append(copying: message)
        output.append(repeating: 0, count: AEADAlgorithm.tagLength)
        var buffer = output.mutableSpan
        do throws(CryptoError) {
            try seal(&buffer, at: start, count: count, nonce: nonce)
        } catch {
            for index in start..<start + count { buffer[index] = 0 }
            output.removeLast(needed)
            throw error
        }
    }

    /// Messages of at least this many bytes are not copied, except for the first piece.
    private static let leastUncopiedLength = 8 << 10
    /// The number of bytes that OpenSSL's first call encrypts in place: as many whole blocks as
    /// OpenSSL's fastest code processes together.
    private static let firstPieceLength = 1 << 10

    /// Encrypts the last ``firstPieceLength`` bytes of `output` in place. Appends the ciphertext of
    /// `rest` and the tag. OpenSSL's context must exist.
    private mutating func sealLong(
        _ output: inout OutputSpan<UInt8>, _ rest: Span<UInt8>, _ nonce: UInt64
    ) throws(CryptoError) {
        writeNonce(nonce)
        let isSealed = unsafe output.withUnsafeMutableBufferPointer { buffer, initialized in
            unsafe rest.withUnsafeBufferPointer { rest in
                guard let base = buffer.baseAddress else { return false }
                let message = unsafe base + initialized - Self.firstPieceLength
                guard
                    unsafe bulk?.seal(
                        message, Self.firstPieceLength, rest, nonceStart,
                        UnsafeBufferPointer(start: nil, count: 0)) == true
                else {
                    unsafe sodium_memzero(message, Self.firstPieceLength + rest.count)
                    return false
                }
                initialized += rest.count + AEADAlgorithm.tagLength
                return true
            }
        }
        guard isSealed else { throw .libraryFailure(function: .init("EVP_EncryptFinal_ex")) }
    }

    /// Decrypts `count` bytes of `buffer` from `offset` on, in place. The last 16 of them are the
    /// tag; the plaintext is the first `count` − 16 bytes.
    ///
    /// - Throws: `CryptoError.authenticationFailed`, also for fewer than 16 bytes. After a wrong
    ///   tag, all bytes except the tag are wiped, so that nobody can use unauthenticated data.
    ///   `CryptoError.libraryFailure` if OpenSSL makes no context.
    public mutating func open(
        _ buffer: inout MutableSpan<UInt8>, at offset: Int = 0, count: Int, nonce: UInt64,
        additionalData: Span<UInt8> = Span()
    ) throws(CryptoError) {
        precondition(
            offset >= 0 && count >= 0 && count <= Int(Int32.max)
                && offset + count <= buffer.count, "the message is not inside the buffer")
        guard count >= AEADAlgorithm.tagLength else { throw .authenticationFailed }
        let length = count - AEADAlgorithm.tagLength
        let route = try prepare(for: length)
        writeNonce(nonce)
        let isAuthentic = unsafe buffer.withUnsafeMutableBufferPointer { buffer in
            unsafe additionalData.withUnsafeBufferPointer { data in
                guard let base = buffer.baseAddress else { return false }
                let message = unsafe base + offset
                let hasSucceeded = unsafe openRaw(message, length, data, route)
                if !hasSucceeded { unsafe sodium_memzero(message, length) }
                return hasSucceeded
            }
        }
        guard isAuthentic else { throw .authenticationFailed }
    }

    // MARK: Choice of the library

    /// The library and the function that process a message.
    private enum Route { case sodiumChaChaPoly, sodiumAESGCM, openSSL }

    /// The shortest message, in bytes, for which OpenSSL is faster.
    ///
    /// Measured on two x86-64 machines: between 250 and 500 bytes for ChaCha20-Poly1305, and
    /// between 200 and 450 bytes for AES-GCM.
    private static func measuredCrossover(_ algorithm: AEADAlgorithm) -> Int {
        switch algorithm {
        case .chaChaPoly: 384
        case .aesGCM: 272
        }
    }

    /// Chooses the library for a message of `count` bytes, and makes the library's context.
    private mutating func prepare(for count: Int) throws(CryptoError) -> Route {
        if count >= crossover {
            if bulk == nil { bulk = try BulkCipher(algorithm, key: key.span) }
            return .openSSL
        }
        guard algorithm == .aesGCM else { return .sodiumChaChaPoly }
        if expandedKey == nil {
            let expanded = SecretBytes(count: crypto_aead_aes256gcm_statebytes())
            unsafe _ = crypto_aead_aes256gcm_beforenm(Self.state(expanded.start), key.start)
            expandedKey = consume expanded
        }
        return .sodiumAESGCM
    }

    /// Encrypts in raw memory, with the nonce that `writeNonce` has written. Returns false after an
    /// error.
    private func sealRaw(
        _ message: UnsafeMutablePointer<UInt8>, _ count: Int,
        _ data: UnsafeBufferPointer<UInt8>, _ route: Route
    ) -> Bool {
        switch route {
        case .sodiumChaChaPoly:
            return unsafe crypto_aead_chacha20poly1305_ietf_encrypt(
                message, nil, message, UInt64(count), data.baseAddress, UInt64(data.count), nil,
                nonceStart, key.start) == 0
        case .sodiumAESGCM:
            guard let state = unsafe expandedStart else { return false }
            return unsafe crypto_aead_aes256gcm_encrypt_afternm(
                message, nil, message, UInt64(count), data.baseAddress, UInt64(data.count), nil,
                nonceStart, Self.state(state)) == 0
        case .openSSL: return unsafe bulk?.seal(message, count, nil, nonceStart, data) ?? false
        }
    }

    /// Decrypts in raw memory; `count` is the plaintext's length. Returns false after an error or
    /// for a wrong tag.
    private func openRaw(
        _ message: UnsafeMutablePointer<UInt8>, _ count: Int,
        _ data: UnsafeBufferPointer<UInt8>, _ route: Route
    ) -> Bool {
        let sealedCount = UInt64(count + AEADAlgorithm.tagLength)
        switch route {
        case .sodiumChaChaPoly:
            return unsafe crypto_aead_chacha20poly1305_ietf_decrypt(
                message, nil, nil, message, sealedCount, data.baseAddress, UInt64(data.count),
                nonceStart, key.start) == 0
        case .sodiumAESGCM:
            guard let state = unsafe expandedStart else { return false }
            return unsafe crypto_aead_aes256gcm_decrypt_afternm(
                message, nil, nil, message, sealedCount, data.baseAddress, UInt64(data.count),
                nonceStart, Self.state(state)) == 0
        case .openSSL: return unsafe bulk?.open(message, count, nonceStart, data) ?? false
        }
    }

    private var expandedStart: UnsafeMutablePointer<UInt8>? {
        switch expandedKey {
        case .some(let expanded): unsafe expanded.start
        case .none: nil
        }
    }

    /// A slot of the `SecretArena` as libsodium's state. A slot of this size is aligned to more
    /// than the required 16 bytes.
    private static func state(
        _ slot: UnsafeMutablePointer<UInt8>
    ) -> UnsafeMutablePointer<crypto_aead_aes256gcm_state> {
        unsafe UnsafeMutableRawPointer(slot)
            .assumingMemoryBound(to: crypto_aead_aes256gcm_state.self)
    }

    // MARK: The nonce

    private static let nonceLength = 12

    /// The first byte of the nonce, which follows the key in guarded memory.
    private var nonceStart: UnsafeMutablePointer<UInt8> {
        unsafe key.start + AEADAlgorithm.keyLength
    }

    /// Writes the counter to the last 8 of the nonce's 12 bytes, in the cipher's byte order. The
    /// first 4 bytes are always zero.
    private func writeNonce(_ counter: UInt64) {
        let ordered =
            switch algorithm {
            case .chaChaPoly: counter.littleEndian
            case .aesGCM: counter.bigEndian
            }
        unsafe UnsafeMutableRawPointer(nonceStart + 4)
            .storeBytes(of: ordered, as: UInt64.self)
    }
}
