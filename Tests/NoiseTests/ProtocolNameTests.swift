import BLESecNoise
import BLESecNoiseVectors
import BLESecPrimitives
import Testing

@Suite struct ProtocolNameTests {
    @Test(
        "a parsed name prints as it was written",
        arguments: [
            "Noise_XX_25519_ChaChaPoly_SHA256", "Noise_K1X1_448_AESGCM_BLAKE2b",
            "Noise_NNpsk0+psk2_25519_ChaChaPoly_BLAKE2s",
            "Noise_XXfallback+psk0_448_ChaChaPoly_SHA512",
            "Noise_XXpsk3+fallback_25519_AESGCM_SHA256",
        ])
    func roundTrip(_ text: String) throws {
        let name = try ProtocolName(text)
        #expect(name.description == text)
        #expect(try ProtocolName(name.description) == name)
    }

    @Test(
        "the error for a bad name says what is wrong",
        arguments: [
            ("", ProtocolNameError.notAProtocolName),
            ("Noise", .notAProtocolName),
            ("Noise_XX_25519_ChaChaPoly", .notAProtocolName),
            ("Noise_XX_25519_ChaChaPoly_SHA256_", .notAProtocolName),
            ("noise_XX_25519_ChaChaPoly_SHA256", .notAProtocolName),
            ("Noise_XZ_25519_ChaChaPoly_SHA256", .unknownPattern("XZ")),
            ("Noise__25519_ChaChaPoly_SHA256", .unknownPattern("")),
            ("Noise_psk0_25519_ChaChaPoly_SHA256", .unknownPattern("psk0")),
            ("Noise_XX_25518_ChaChaPoly_SHA256", .unknownDH("25518")),
            ("Noise_XX_25519_ChaCha_SHA256", .unknownCipher("ChaCha")),
            ("Noise_XX_25519_ChaChaPoly_SHA3", .unknownHash("SHA3")),
            ("Noise_XX_25519_ChaChaPoly_sha256", .unknownHash("sha256")),
            ("Noise_XXhfs_25519_ChaChaPoly_SHA256", .unknownModifier("hfs")),
            ("Noise_XXpsk00_25519_ChaChaPoly_SHA256", .unknownModifier("psk00")),
            ("Noise_XXpsk_25519_ChaChaPoly_SHA256", .unknownModifier("psk")),
            ("Noise_XXpsk+1_25519_ChaChaPoly_SHA256", .unknownModifier("psk")),
            ("Noise_XXpsk0+_25519_ChaChaPoly_SHA256", .unknownModifier("")),
            ("Noise_XX+psk0_25519_ChaChaPoly_SHA256", .unknownModifier("")),
            (
                "Noise_XXpsk4_25519_ChaChaPoly_SHA256",
                .invalidPattern(.noSuchMessage(modifier: "psk4", messages: 3))
            ),
            (
                "Noise_XXpsk0+psk0_25519_ChaChaPoly_SHA256",
                .invalidPattern(.repeatedModifier("psk0"))
            ),
            (
                "Noise_NNpsk2+psk0_25519_ChaChaPoly_SHA256",
                .invalidPattern(.modifiersNotSorted("psk2", "psk0"))
            ),
            (
                "Noise_IKfallback_25519_ChaChaPoly_SHA256",
                .invalidPattern(.noFallback(pattern: "IK"))
            ),
            ("Noise_Nfallback_25519_ChaChaPoly_SHA256", .invalidPattern(.noFallback(pattern: "N"))),
            (
                "Noise_XXpsk0+fallback_25519_ChaChaPoly_SHA256",
                .invalidPattern(.noFallback(pattern: "XXpsk0"))
            ),
        ])
    func errors(_ text: String, _ error: ProtocolNameError) {
        #expect(throws: error) { _ = try ProtocolName(text) }
    }

    @Test("a name of more than 255 bytes is refused")
    func tooLong() {
        let text = "Noise_XX_25519_ChaChaPoly_" + String(repeating: "A", count: 230)
        #expect(throws: ProtocolNameError.tooLong(256)) { _ = try ProtocolName(text) }
    }

    @Test("random text never traps the parser, and an accepted name prints as it was written")
    func random() {
        var generator = SeededGenerator(seed: 7)
        func one(of choices: [String]) -> String { choices.randomElement(using: &generator) ?? "" }
        let pieces = [
            "Noise", "_", "_", "_", "XX", "IK", "psk", "0", "1", "+", "fallback", "25519", "é",
            "AESGCM", "SHA256", "\u{0}", "２",
        ]
        let patterns = HandshakePattern.all.map(\.name)
        let modifiers = ["psk0", "psk1", "psk2", "psk3", "fallback"]
        let curves = ["25519", "448"]
        let ciphers = ["ChaChaPoly", "AESGCM"]
        let hashes = ["SHA256", "SHA512", "BLAKE2s", "BLAKE2b"]
        var acceptedCount = 0
        for round in 0..<2_000 {
            let text: String
            if round.isMultiple(of: 2) {
                let count = Int.random(in: 0...12, using: &generator)
                text = (0..<count).map { _ in one(of: pieces) }.joined()
            } else {
                // All parts are valid, but the modifiers may not fit the pattern or each other.
                let count = Int.random(in: 1...3, using: &generator)
                let chosen = (0..<count).map { _ in one(of: modifiers) }.joined(separator: "+")
                let parts = [
                    "Noise", one(of: patterns) + chosen, one(of: curves), one(of: ciphers),
                    one(of: hashes),
                ]
                text = parts.joined(separator: "_")
            }
            guard let name = try? ProtocolName(text) else { continue }
            acceptedCount += 1
            #expect(name.description == text)
        }
        #expect(acceptedCount > 0)
    }
}
