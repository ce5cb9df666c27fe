/// A hash function with a reusable context: digests, HMAC and HKDF; Noise §4.3.
///
/// HMAC and HKDF use the context of the running digest too, so finish the digest before you call
/// them. Their working memory is guarded, and each use overwrites it. The running digest is on the
/// ordinary heap, except for BLAKE2b; see `Digest`.
public struct HashContext: ~Copyable, Sendable {
    /// The hash function.
    public let algorithm: HashAlgorithm
    private let digest: Digest
    /// Working memory of HMAC and HKDF: the padded key, the extracted key, the latest output.
    private var scratch: SecretBytes?

    /// Makes a context for a new digest.
    public init(_ algorithm: HashAlgorithm) {
        self.algorithm = algorithm
        digest = Digest(algorithm)
    }

    /// Adds `bytes` to the running digest.
    public mutating func update(_ bytes: Span<UInt8>) {
        unsafe bytes.withUnsafeBufferPointer { buffer in
            unsafe digest.update(buffer.baseAddress, count: buffer.count)
        }
    }

    /// Adds `bytes` to the running digest.
    public mutating func update(_ bytes: [UInt8]) { update(bytes.span) }

    /// Adds `count` bytes of a secret, from `offset` on, to the running digest.
    public mutating func update(_ secret: borrowing SecretBytes, from offset: Int, count: Int) {
        update(secret.span.extracting(offset..<offset + count))
    }

    /// Writes the digest to the first `digestLength` bytes of `output` and begins a new one.
    public mutating func finish(into output: inout MutableSpan<UInt8>) {
        precondition(output.count >= algorithm.digestLength, "no room for a digest")
        unsafe output.withUnsafeMutableBufferPointer { buffer in
            guard let start = buffer.baseAddress else { return }
            unsafe digest.finish(into: start)
        }
    }

    /// Writes the digest to the first `digestLength` bytes of `output` and begins a new one.
    public mutating func finish(into output: inout [UInt8]) {
        var span = output.mutableSpan
        finish(into: &span)
    }

    /// Writes the digest of the bytes that were added so far; more can be added afterwards.
    func copyDigest(into output: UnsafeMutablePointer<UInt8>) {
        unsafe digest.copyDigest(into: output)
    }

    /// Wipes the working memory, which still has the keys and the output of the last HMAC or HKDF.
    public mutating func wipe() { scratch?.wipe() }

    /// Writes HMAC(key, first ‖ second), RFC 2104, to the first `digestLength` bytes of `output`.
    public mutating func hmac(
        key: Span<UInt8>, _ first: Span<UInt8>, _ second: Span<UInt8> = Span(),
        into output: inout MutableSpan<UInt8>
    ) {
        precondition(output.count >= algorithm.digestLength, "no room for a digest")
        let block = unsafe scratchStart()
        unsafe key.withUnsafeBufferPointer { key in
            unsafe beginHMAC(block: block, key: key.baseAddress, count: key.count)
        }
        update(first)
        update(second)
        unsafe output.withUnsafeMutableBufferPointer { buffer in
            guard let start = buffer.baseAddress else { return }
            unsafe endHMAC(block: block, into: start)
        }
    }

    /// Writes HKDF(salt, input key material, info), RFC 5869, to the first `outputCount` bytes of
    /// `output`. If `outputCount` is nil, fills `output`.
    ///
    /// With an empty `info`, and an output of two or three digests, the result is that of Noise's
    /// HKDF (§4.3), with the chaining key as the salt.
    public mutating func hkdf(
        salt: Span<UInt8>, inputKeyMaterial: Span<UInt8>, info: Span<UInt8> = Span(),
        outputCount: Int? = nil, into output: inout MutableSpan<UInt8>
    ) {
        let count = outputCount ?? output.count
        let length = algorithm.digestLength
        precondition(count <= min(output.count, 255 * length), "HKDF gives at most 255 digests")
        let block = unsafe scratchStart()
        let extracted = unsafe block + algorithm.blockLength
        let latest = unsafe extracted + length
        unsafe salt.withUnsafeBufferPointer { salt in
            unsafe beginHMAC(block: block, key: salt.baseAddress, count: salt.count)
        }
        update(inputKeyMaterial)
        unsafe endHMAC(block: block, into: extracted)
        unsafe output.withUnsafeMutableBufferPointer { output in
            guard let start = output.baseAddress else { return }
            var counter: UInt8 = 0
            var written = 0
            while written < count {
                unsafe beginHMAC(block: block, key: extracted, count: length)
                if counter > 0 { unsafe digest.update(latest, count: length) }
                update(info)
                counter += 1
                unsafe digest.update(&counter, count: 1)
                unsafe endHMAC(block: block, into: latest)
                let part = min(length, count - written)
                unsafe (start + written).update(from: latest, count: part)
                written += part
            }
        }
    }

    /// HKDF with the salt, the input and the output in guarded memory.
    public mutating func hkdf(
        salt: borrowing SecretBytes, inputKeyMaterial: borrowing SecretBytes, outputCount: Int,
        into output: inout SecretBytes
    ) {
        hkdf(
            salt: salt, inputKeyMaterial: inputKeyMaterial.span, outputCount: outputCount,
            into: &output)
    }

    /// HKDF with the salt and the output in guarded memory.
    public mutating func hkdf(
        salt: borrowing SecretBytes, inputKeyMaterial: Span<UInt8>, info: Span<UInt8> = Span(),
        outputCount: Int, into output: inout SecretBytes
    ) {
        var span = output.mutableSpan
        hkdf(
            salt: salt.span, inputKeyMaterial: inputKeyMaterial, info: info,
            outputCount: outputCount, into: &span)
    }

    /// The address of ``scratch``, which the first use allocates.
    private mutating func scratchStart() -> UnsafeMutablePointer<UInt8> {
        if scratch == nil {
            scratch = SecretBytes(count: algorithm.blockLength + 2 * algorithm.digestLength)
        }
        switch scratch {
        case .some(let scratch): return unsafe scratch.start
        case .none: preconditionFailure("the working memory was made above")
        }
    }

    /// Begins the inner hash of HMAC (RFC 2104). `block` keeps the key, combined with the inner pad.
    private func beginHMAC(
        block: UnsafeMutablePointer<UInt8>, key: UnsafePointer<UInt8>?, count: Int
    ) {
        let blockLength = algorithm.blockLength
        unsafe block.update(repeating: 0, count: blockLength)
        if count > blockLength {
            unsafe digest.update(key, count: count)
            unsafe digest.finish(into: block)
        } else if let key = unsafe key {
            unsafe block.update(from: key, count: count)
        }
        for index in 0..<blockLength { unsafe block[index] ^= 0x36 }
        unsafe digest.update(block, count: blockLength)
    }

    /// Ends the inner hash, and writes the outer hash to `output`.
    private func endHMAC(
        block: UnsafeMutablePointer<UInt8>, into output: UnsafeMutablePointer<UInt8>
    ) {
        let blockLength = algorithm.blockLength
        unsafe digest.finish(into: output)
        // Change the inner pad to the outer one in one step.
        for index in 0..<blockLength { unsafe block[index] ^= 0x36 ^ 0x5C }
        unsafe digest.update(block, count: blockLength)
        unsafe digest.update(output, count: algorithm.digestLength)
        unsafe digest.finish(into: output)
    }
}
