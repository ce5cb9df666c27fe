import BLESecPrimitives
import Testing

/// The primitives, checked with the vectors of standards and with values from Python's libraries.
@Suite struct PrimitiveVectorTests {
    let vectors: PrimitiveVectors

    init() throws { vectors = try PrimitiveVectors.load() }

    @Test("X25519 and X448 give the products of RFC 7748 §5.2")
    func products() throws {
        #expect(vectors.dh.count == 4)
        for vector in vectors.dh {
            let pair = try DHKeyPair(vector.curve.value, hex(vector.scalar))
            #expect(try pair.product(hex(vector.point)) == hex(vector.product))
        }
    }

    @Test("X25519 and X448 give the products of RFC 7748 §5.2 after 1 and 1,000 iterations")
    func iterations() throws {
        #expect(vectors.iterated.count == 2)
        for vector in vectors.iterated {
            var (scalar, point) = (hex(vector.start), hex(vector.start))
            for round in 1...1_000 {
                let product = try DHKeyPair(vector.curve.value, scalar).product(point)
                (scalar, point) = (product, scalar)
                if round == 1 { #expect(scalar == hex(vector.once)) }
            }
            #expect(scalar == hex(vector.thousand))
        }
    }

    @Test("X25519 and X448 give the public keys and the shared secrets of RFC 7748 §6")
    func exchanges() throws {
        #expect(vectors.exchange.count == 2)
        for vector in vectors.exchange {
            let alice = try DHKeyPair(vector.curve.value, hex(vector.alice))
            let bob = try DHKeyPair(vector.curve.value, hex(vector.bob))
            #expect(alice.publicKey == hex(vector.alicePublic))
            #expect(bob.publicKey == hex(vector.bobPublic))
            #expect(try alice.product(bob.publicKey) == hex(vector.product))
            #expect(try bob.product(alice.publicKey) == hex(vector.product))
        }
    }

    @Test("every point of low order is refused, in every encoding")
    func lowOrder() throws {
        for (curve, points) in [
            (Curve.x25519, vectors.lowOrder.x25519), (.x448, vectors.lowOrder.x448),
        ] {
            #expect(points.count >= 5)
            let pair = try DHKeyPair.generate(curve)
            for point in points {
                #expect(throws: CryptoError.lowOrderPoint) { try pair.product(hex(point)) }
            }
        }
    }

    @Test("a digest equals its standard's vector, for input in one piece or in single bytes")
    func digests() {
        #expect(vectors.digest.count == 4)
        for vector in vectors.digest {
            var context = HashContext(vector.hash.algorithm)
            let digest = hex(vector.digest)
            context.update(hex(vector.data))
            #expect(context.finished() == digest, "\(vector.section)")
            for byte in hex(vector.data) { context.update([byte]) }
            #expect(context.finished() == digest, "\(vector.section)")
            #expect(digest.count == vector.hash.algorithm.digestLength)
        }
    }

    @Test("HMAC with SHA-2 gives the MACs of RFC 4231, and with BLAKE2 those of Python's library")
    func macs() {
        #expect(vectors.hmac.count == 24)
        for vector in vectors.hmac {
            var context = HashContext(vector.hash.algorithm)
            var mac = [UInt8](repeating: 0, count: vector.hash.algorithm.digestLength)
            let (key, data) = (hex(vector.key), hex(vector.data))
            for split in [0, 1, data.count] {
                var span = mac.mutableSpan
                context.hmac(
                    key: key.span, data.span.extracting(first: split),
                    data.span.extracting(droppingFirst: split), into: &span)
                #expect(mac == hex(vector.mac), "\(vector.section)")
            }
        }
    }

    @Test("HKDF gives the outputs of RFC 5869, appendix A")
    func derivations() {
        #expect(vectors.hkdf.count == 3)
        for vector in vectors.hkdf {
            var context = HashContext(vector.hash.algorithm)
            let expected = hex(vector.output)
            let (salt, info) = (hex(vector.salt), hex(vector.info))
            let material = hex(vector.inputKeyMaterial)
            var output = [UInt8](repeating: 0, count: expected.count)
            var span = output.mutableSpan
            context.hkdf(
                salt: salt.span, inputKeyMaterial: material.span, info: info.span, into: &span)
            #expect(output == expected, "\(vector.section)")
        }
    }

    @Test("the ciphertexts are those of Python's library, and one of them is that of RFC 8439")
    func ciphertexts() throws {
        #expect(vectors.aead.count == 9)
        for vector in vectors.aead {
            let key = SecretBytes(copying: hex(vector.key).span)
            var aead = AEAD(vector.cipher.algorithm, key: key)
            let counter = try #require(UInt64(vector.counter, radix: 16))
            let (plaintext, data) = (hex(vector.plaintext), hex(vector.additionalData))
            var buffer = plaintext + [UInt8](repeating: 0, count: 16)
            var span = buffer.mutableSpan
            try aead.seal(&span, count: plaintext.count, nonce: counter, additionalData: data.span)
            #expect(buffer == hex(vector.ciphertext), "\(vector.section)")
            var sealed = buffer.mutableSpan
            try aead.open(&sealed, count: sealed.count, nonce: counter, additionalData: data.span)
            #expect(Array(buffer.prefix(plaintext.count)) == plaintext)
        }
    }
}

extension DHKeyPair {
    fileprivate convenience init(_ curve: Curve, _ privateKey: [UInt8]) throws {
        try self.init(curve: curve, privateKey: SecretBytes(copying: privateKey.span))
    }

    @discardableResult
    fileprivate func product(_ point: [UInt8]) throws -> [UInt8] {
        let product = try sharedSecret(with: point)
        return product.span.indices.map { product.span[$0] }
    }
}
