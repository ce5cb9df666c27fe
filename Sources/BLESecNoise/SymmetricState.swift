internal import BLESecPrimitives

/// The symmetric state of a handshake: chaining key `ck`, hash `h` and a cipher state; Noise §5.2.
struct SymmetricState: ~Copyable {
    /// `h`: the hash of all data sent and received so far. This hash is not a secret.
    private(set) var handshakeHash: [UInt8]

    private var cipherState: CipherState
    private var chainingKey: SecretBytes
    /// The outputs of HKDF, from which keys are made: up to three digests.
    private var derived: SecretBytes
    private var hash: HashContext
    private let digestLength: Int

    /// InitializeSymmetric(protocol_name).
    init(_ name: ProtocolName) {
        digestLength = name.hash.digestLength
        hash = HashContext(name.hash)
        cipherState = CipherState(name.aead)
        derived = SecretBytes(count: 3 * digestLength)
        var initialHash = Array(name.description.utf8)
        if initialHash.count <= digestLength {
            initialHash += [UInt8](repeating: 0, count: digestLength - initialHash.count)
        } else {
            hash.update(initialHash)
            initialHash = hash.finished()
        }
        chainingKey = SecretBytes(copying: initialHash.span)
        handshakeHash = initialHash
    }

    var hasKey: Bool { cipherState.hasKey }

    /// MixKey(input_key_material).
    mutating func mixKey(_ inputKeyMaterial: Span<UInt8>) {
        deriveTwoKeys(inputKeyMaterial)
        takeChainingKey()
        initializeKey(fromOutput: 1)
    }

    /// MixHash(data): h = HASH(h ‖ data).
    mutating func mixHash(_ data: Span<UInt8>) {
        hash.update(handshakeHash)
        hash.update(data)
        hash.finish(into: &handshakeHash)
    }

    mutating func mixHash(_ data: [UInt8]) { mixHash(data.span) }

    /// MixKeyAndHash(psk).
    mutating func mixKeyAndHash(_ psk: PreSharedKey) {
        hash.hkdf(
            salt: chainingKey, inputKeyMaterial: psk.key, outputCount: 3 * digestLength,
            into: &derived)
        takeChainingKey()
        hash.update(handshakeHash)
        hash.update(derived, from: digestLength, count: digestLength)
        hash.finish(into: &handshakeHash)
        initializeKey(fromOutput: 2)
    }

    /// EncryptAndHash(plaintext), appended to `output`.
    mutating func encryptAndHash(
        _ plaintext: Span<UInt8>, into output: inout OutputSpan<UInt8>
    ) throws(NoiseError) {
        let start = output.count
        output.append(copying: plaintext)
        if hasKey { output.append(repeating: 0, count: AEADAlgorithm.tagLength) }
        var buffer = output.mutableSpan
        try cipherState.encryptWithAd(handshakeHash, &buffer, at: start, count: plaintext.count)
        mixHash(output.span.extracting(droppingFirst: start))
    }

    /// DecryptAndHash(ciphertext), appended to `output`, which has room for the ciphertext.
    mutating func decryptAndHash(
        _ ciphertext: Span<UInt8>, into output: inout OutputSpan<UInt8>
    ) throws(NoiseError) {
        let start = output.count
        output.append(copying: ciphertext)
        var buffer = output.mutableSpan
        do throws(NoiseError) {
            try cipherState.decryptWithAd(
                handshakeHash, &buffer, at: start, count: ciphertext.count)
        } catch {
            output.removeLast(ciphertext.count)
            throw error
        }
        if hasKey { output.removeLast(AEADAlgorithm.tagLength) }
        mixHash(ciphertext)
    }

    /// Split(): returns the cipher states for the messages of the first writer and of the other
    /// party, and the additional keys.
    consuming func split() -> SplitKeys {
        deriveTwoKeys(Span())
        var first = cipherState
        first.initializeKey(derived, at: 0)
        var second = CipherState(first.algorithm)
        second.initializeKey(derived, at: digestLength)
        let additional = AdditionalSymmetricKeys(
            chainingKey: chainingKey, handshakeHash: handshakeHash, hash: &hash)
        return SplitKeys(first: first, second: second, additional: additional)
    }

    mutating func wipe() {
        cipherState.wipe()
        chainingKey.wipe()
        derived.wipe()
        hash.wipe()
    }

    /// HKDF(ck, input_key_material, 2), into `derived`.
    private mutating func deriveTwoKeys(_ inputKeyMaterial: Span<UInt8>) {
        hash.hkdf(
            salt: chainingKey, inputKeyMaterial: inputKeyMaterial, outputCount: 2 * digestLength,
            into: &derived)
    }

    /// Sets `ck` to the first output of HKDF.
    private mutating func takeChainingKey() {
        chainingKey.copy(from: derived, at: 0, count: digestLength)
    }

    /// InitializeKey() with an output of HKDF, numbered from 0. A key consists of the first 32
    /// bytes of a digest, even if the digest has 64.
    private mutating func initializeKey(fromOutput index: Int) {
        cipherState.initializeKey(derived, at: index * digestLength)
    }
}

/// The result of Split(); Noise §5.2.
struct SplitKeys: ~Copyable {
    /// For messages of the party that writes first in the pattern.
    let first: CipherState
    /// For messages of the other party.
    let second: CipherState
    let additional: AdditionalSymmetricKeys
}
