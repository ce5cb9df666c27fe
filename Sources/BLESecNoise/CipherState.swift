public import BLESecPrimitives

/// A key and its nonce; Noise §5.1.
///
/// After an error the key is wiped, and every later call throws `NoiseError.failed`. For datagrams,
/// `decryptWithAd` can keep the key after an error.
public struct CipherState: ~Copyable, Sendable {
    /// The cipher.
    public let algorithm: AEADAlgorithm
    /// The nonce of the next message, `n`.
    public private(set) var nonce: UInt64 = 0

    private var key: AEAD?
    private var hasFailed = false

    /// The last nonce for a message: 2^64 − 1 is reserved for `rekey()`.
    public static let lastNonce = UInt64.max - 1

    /// Makes a state without a key, in which messages pass unchanged.
    init(_ algorithm: AEADAlgorithm) { self.algorithm = algorithm }

    /// Makes a state with a given key, for test vectors.
    package init(_ algorithm: AEADAlgorithm, key: borrowing SecretBytes) {
        self.init(algorithm)
        initializeKey(key, at: 0)
    }

    /// InitializeKey(key): copies the 32 bytes at `offset` in `keys`, and sets n to zero.
    mutating func initializeKey(_ keys: borrowing SecretBytes, at offset: Int) {
        nonce = 0
        if key == nil {
            key = AEAD(algorithm, key: keys, at: offset)
        } else {
            key?.replaceKey(keys, at: offset)
        }
    }

    var hasKey: Bool { key != nil }

    /// SetNonce(nonce), for messages that may arrive out of order, and for tests of the limit.
    package mutating func setNonce(_ nonce: UInt64) { self.nonce = nonce }

    /// Whether an error has ended this state.
    public var isFailed: Bool { hasFailed }

    /// EncryptWithAd(ad, plaintext), over `count` bytes of `buffer` from `offset` on; the 16-byte
    /// tag follows them. Without a key, nothing is written.
    ///
    /// - Throws: `NoiseError.nonceExhausted`.
    package mutating func encryptWithAd(
        _ ad: [UInt8], _ buffer: inout MutableSpan<UInt8>, at offset: Int = 0, count: Int
    ) throws(NoiseError) {
        guard !hasFailed else { throw .failed }
        guard hasKey else { return }
        guard nonce <= Self.lastNonce else { throw fail(.nonceExhausted) }
        do {
            try key?.seal(&buffer, at: offset, count: count, nonce: nonce, additionalData: ad.span)
        } catch {
            throw fail(NoiseError(error))
        }
        nonce += 1
    }

    /// EncryptWithAd(no ad, plaintext); the plaintext is `head` followed by `message`. Appends the
    /// ciphertext and its tag to `output`. The state must have a key.
    ///
    /// - Throws: `NoiseError.nonceExhausted`.
    mutating func encrypt(
        _ head: Span<UInt8>, _ message: Span<UInt8>, into output: inout OutputSpan<UInt8>
    ) throws(NoiseError) {
        guard !hasFailed else { throw .failed }
        precondition(hasKey, "without a key, a message would leave as plaintext")
        guard nonce <= Self.lastNonce else { throw fail(.nonceExhausted) }
        do {
            try key?.seal(head, message, into: &output, nonce: nonce)
        } catch {
            throw fail(NoiseError(error))
        }
        nonce += 1
    }

    /// DecryptWithAd(ad, ciphertext), over `count` bytes of `buffer` from `offset` on, of which the
    /// last 16 are the tag. Without a key the bytes stay unchanged.
    ///
    /// - Parameter keepingKeyOnFailure: what happens if the message cannot be decrypted. True, for
    ///   datagrams, keeps the key and the nonce; false wipes the key.
    /// - Throws: `NoiseError.authenticationFailed`, `NoiseError.nonceExhausted`.
    mutating func decryptWithAd(
        _ ad: [UInt8], _ buffer: inout MutableSpan<UInt8>, at offset: Int = 0, count: Int,
        keepingKeyOnFailure: Bool = false
    ) throws(NoiseError) {
        guard !hasFailed else { throw .failed }
        guard hasKey else { return }
        guard nonce <= Self.lastNonce else { throw fail(.nonceExhausted) }
        do {
            try key?.open(&buffer, at: offset, count: count, nonce: nonce, additionalData: ad.span)
        } catch {
            guard keepingKeyOnFailure else { throw fail(NoiseError(error)) }
            throw NoiseError(error)
        }
        nonce += 1
    }

    /// Rekey(): k becomes the first 32 bytes of ENCRYPT(k, 2^64 − 1, no ad, 32 zeros); n is
    /// unchanged (Noise §4.2, §11.3).
    package mutating func rekey() throws(NoiseError) {
        guard !hasFailed else { throw .failed }
        var block = SecretBytes(count: AEADAlgorithm.keyLength + AEADAlgorithm.tagLength)
        do {
            var span = block.mutableSpan
            try key?.seal(&span, count: AEADAlgorithm.keyLength, nonce: .max)
        } catch {
            throw fail(NoiseError(error))
        }
        key?.replaceKey(block, at: 0)
    }

    /// Wipes the key; every later call throws `NoiseError.failed`.
    mutating func wipe() {
        key = nil
        hasFailed = true
    }

    private mutating func fail(_ error: NoiseError) -> NoiseError {
        wipe()
        return error
    }
}
