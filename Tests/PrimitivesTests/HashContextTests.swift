import BLESecPrimitives
import Testing

@Suite struct HashContextTests {
    @Test("SHA-256 over pieces equals SHA-256 over their concatenation")
    func pieces() {
        let digest = hex("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
        #expect(sha256([97], [], [98, 99]) == digest)
        #expect(sha256([97, 98, 99].span) == digest)
    }

    @Test(
        "a context that is used again gives the MAC, derived key and digest of a new context",
        arguments: HashAlgorithm.allCases)
    func reuse(_ algorithm: HashAlgorithm) {
        var reused = HashContext(algorithm)
        for round in 0..<3 {
            let bytes = [UInt8](repeating: UInt8(round), count: 40 + 100 * round)
            #expect(reused.results(bytes) == HashContext.resultsOfNewContext(algorithm, bytes))
        }
    }

    @Test("HKDF over secrets equals HKDF over bytes, and writes only the requested bytes")
    func secrets() {
        let (salt, material) = ([UInt8](repeating: 1, count: 32), [UInt8](repeating: 2, count: 32))
        var context = HashContext(.sha256)
        var expected = [UInt8](repeating: 0, count: 64)
        var span = expected.mutableSpan
        context.hkdf(salt: salt.span, inputKeyMaterial: material.span, into: &span)
        var output = SecretBytes(count: 96)
        context.hkdf(
            salt: SecretBytes(copying: salt.span),
            inputKeyMaterial: SecretBytes(copying: material.span), outputCount: 64, into: &output)
        let bytes = output.span.indices.map { output.span[$0] }
        #expect(bytes == expected + [UInt8](repeating: 0, count: 32))
    }
}

extension HashContext {
    /// The MAC, the derived key and the digest of `bytes`, concatenated.
    fileprivate mutating func results(_ bytes: [UInt8]) -> [UInt8] {
        var mac = [UInt8](repeating: 0, count: algorithm.digestLength)
        var macSpan = mac.mutableSpan
        hmac(key: bytes.span, bytes.span, into: &macSpan)
        var derived = [UInt8](repeating: 0, count: 100)
        var derivedSpan = derived.mutableSpan
        hkdf(salt: bytes.span, inputKeyMaterial: bytes.span, into: &derivedSpan)
        update(bytes)
        return mac + derived + finished()
    }

    fileprivate static func resultsOfNewContext(
        _ algorithm: HashAlgorithm, _ bytes: [UInt8]
    ) -> [UInt8] {
        var context = HashContext(algorithm)
        return context.results(bytes)
    }
}
