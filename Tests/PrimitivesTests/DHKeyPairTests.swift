import Primitives
import Testing

@Suite struct DHKeyPairTests {
    @Test("X25519 gives the keys and the product of RFC 7748 §6.1")
    func x25519() throws {
        let alice = try DHKeyPair(
            curve: .x25519,
            privateKey: SecretBytes(
                copying: hex(
                    "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
                ).span))
        let bob = try DHKeyPair(
            curve: .x25519,
            privateKey: SecretBytes(
                copying: hex(
                    "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
                ).span))
        #expect(
            alice.publicKey
                == hex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"))
        #expect(
            bob.publicKey
                == hex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"))
        let product = hex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
        let ours = try alice.sharedSecret(with: bob.publicKey)
        let theirs = try bob.sharedSecret(with: alice.publicKey)
        let isRight = constantTimeEqual(ours.span, product.span)
        let isShared = ours.isEqual(to: theirs)
        #expect(isRight)
        #expect(isShared)
    }

    @Test("X448 gives the keys and the product of RFC 7748 §6.2")
    func x448() throws {
        let alice = try DHKeyPair(
            curve: .x448,
            privateKey: SecretBytes(
                copying: hex(
                    """
                    9a8f4925d1519f5775cf46b04b5800d4ee9ee8bae8bc5565d498c28d
                    d9c9baf574a9419744897391006382a6f127ab1d9ac2d8c0a598726b
                    """
                ).span))
        #expect(
            alice.publicKey
                == hex(
                    """
                    9b08f7cc31b7e3e67d22d5aea121074a273bd2b83de09c63faa73d2c
                    22c5d9bbc836647241d953d40c5b12da88120d53177f80e532c41fa0
                    """))
        let bob = hex(
            """
            3eb7a829b0cd20f5bcfc0b599b6feccf6da4627107bdb0d4f345b430
            27d8b972fc3e34fb4232a13ca706dcb57aec3dae07bdc1c67bf33609
            """)
        let product = hex(
            """
            07fff4181ac6cc95ec1c16a94a0f74d12da232ce40a77552281d282b
            b60c0b56fd2464c335543936521c24403085d59a449a5037514a879d
            """)
        let secret = try alice.sharedSecret(with: bob)
        let isRight = constantTimeEqual(secret.span, product.span)
        #expect(isRight)
    }

    @Test("a point of low order is refused", arguments: LowOrder.points)
    func lowOrder(_ point: [UInt8]) throws {
        let pair = try DHKeyPair.generate(.x25519)
        #expect(throws: CryptoError.lowOrderPoint) { try pair.refusal(of: point) }
    }

    @Test("X448's points of low order are refused", arguments: [0, 1] as [UInt8])
    func lowOrder448(_ coordinate: UInt8) throws {
        let pair = try DHKeyPair.generate(.x448)
        let point = [coordinate] + [UInt8](repeating: 0, count: 55)
        #expect(throws: CryptoError.lowOrderPoint) { try pair.refusal(of: point) }
    }

    @Test("a key of another length is refused", arguments: Curve.allCases)
    func lengths(_ curve: Curve) throws {
        let pair = try DHKeyPair.generate(curve)
        for count in [0, curve.keyLength - 1, curve.keyLength + 1] {
            let error = CryptoError.wrongLength(expected: curve.keyLength, actual: count)
            #expect(throws: error) { try pair.refusal(of: [UInt8](repeating: 9, count: count)) }
            #expect(throws: error) {
                _ = try DHKeyPair(curve: curve, privateKey: SecretBytes(count: count))
            }
        }
    }

    @Test("only the encoding below the prime is canonical")
    func canonical() {
        let prime = hex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f")
        var below = prime
        below[0] -= 1
        var highBit = [UInt8](repeating: 0, count: 32)
        highBit[0] = 9
        highBit[31] = 0x80
        #expect(isCanonical(.x25519, below))
        #expect(!isCanonical(.x25519, prime))
        #expect(!isCanonical(.x25519, highBit))
        #expect(!isCanonical(.x25519, [9]))
        var prime448 = [UInt8](repeating: 0xFF, count: 56)
        prime448[28] = 0xFE
        #expect(!isCanonical(.x448, prime448))
        prime448[0] -= 1
        #expect(isCanonical(.x448, prime448))
    }

    @Test("the private key comes out as it went in")
    func export() throws {
        let bytes = [UInt8](1...32)
        let pair = try DHKeyPair(curve: .x25519, privateKey: SecretBytes(copying: bytes.span))
        let isSame = pair.withPrivateKey { constantTimeEqual($0, bytes.span) }
        #expect(isSame)
    }
}

extension DHKeyPair {
    /// Multiplies with `point` for the error alone.
    fileprivate func refusal(of point: [UInt8]) throws { _ = try sharedSecret(with: point) }
}

private func isCanonical(_ curve: Curve, _ publicKey: [UInt8]) -> Bool {
    curve.isCanonical(publicKey.span)
}

/// The encodings of X25519's points of low order, canonical or not, with the high bit clear.
enum LowOrder {
    static let points: [[UInt8]] = [
        hex("0000000000000000000000000000000000000000000000000000000000000000"),
        hex("0100000000000000000000000000000000000000000000000000000000000000"),
        hex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
        hex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
        hex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
        hex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
        hex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    ]
}
