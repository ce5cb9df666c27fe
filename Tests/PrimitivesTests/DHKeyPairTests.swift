import BLESecPrimitives
import Testing

@Suite struct DHKeyPairTests {
    @Test("a key of a wrong length is refused", arguments: Curve.allCases)
    func lengths(_ curve: Curve) throws {
        let pair = try DHKeyPair.generate(curve)
        for count in [0, curve.keyLength - 1, curve.keyLength + 1] {
            let error = CryptoError.wrongLength(expected: curve.keyLength, actual: count)
            #expect(throws: error) { try pair.multiply(by: [UInt8](repeating: 9, count: count)) }
            #expect(throws: error) {
                _ = try DHKeyPair(curve: curve, privateKey: SecretBytes(count: count))
            }
        }
    }

    @Test("a public key is canonical only if its value is below the curve's prime")
    func canonical() {
        let prime = hex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f")
        var primeMinusOne = prime
        primeMinusOne[0] -= 1
        var keyWithHighBit = [UInt8](repeating: 0, count: 32)
        keyWithHighBit[0] = 9
        keyWithHighBit[31] = 0x80
        #expect(isCanonical(.x25519, primeMinusOne))
        #expect(!isCanonical(.x25519, prime))
        #expect(!isCanonical(.x25519, keyWithHighBit))
        #expect(!isCanonical(.x25519, [9]))
        var prime448 = [UInt8](repeating: 0xFF, count: 56)
        prime448[28] = 0xFE
        #expect(!isCanonical(.x448, prime448))
        prime448[0] -= 1
        #expect(isCanonical(.x448, prime448))
    }

    @Test("eight tasks can use two key pairs concurrently", arguments: Curve.allCases)
    func concurrency(_ curve: Curve) async throws {
        let (alice, bob) = (try DHKeyPair.generate(curve), try DHKeyPair.generate(curve))
        let areEqual = try await withThrowingTaskGroup(of: Bool.self) { group in
            for _ in 0..<8 {
                group.addTask {
                    let ours = try alice.sharedSecret(with: bob.publicKey)
                    let theirs = try bob.sharedSecret(with: alice.publicKey)
                    return ours.isEqual(to: theirs)
                }
            }
            return try await group.reduce(true) { $0 && $1 }
        }
        #expect(areEqual)
    }

    @Test("a key pair prints as its curve and nothing else")
    func description() throws {
        let pair = try DHKeyPair.generate(.x25519)
        var dumped = ""
        dump(pair, to: &dumped)
        #expect("\(pair)" == "<x25519 key pair>")
        #expect(String(reflecting: pair) == "<x25519 key pair>")
        #expect(dumped == "- <x25519 key pair> #0\n")
    }

    @Test("the private key is exported unchanged")
    func export() throws {
        let bytes = [UInt8](1...32)
        let pair = try DHKeyPair(curve: .x25519, privateKey: SecretBytes(copying: bytes.span))
        let isUnchanged = pair.withPrivateKey { constantTimeEqual($0, bytes.span) }
        #expect(isUnchanged)
    }
}

extension DHKeyPair {
    /// Makes the shared secret with `point`, and discards it: the caller expects an error.
    fileprivate func multiply(by point: [UInt8]) throws { _ = try sharedSecret(with: point) }
}

private func isCanonical(_ curve: Curve, _ publicKey: [UInt8]) -> Bool {
    curve.isCanonical(publicKey.span)
}
