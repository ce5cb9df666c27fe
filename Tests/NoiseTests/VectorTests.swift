import FoundationEssentials
import Noise
import Primitives
import Testing

@Suite struct VectorTests {
    static let files = ["one-way", "interactive", "deferred", "psk", "psks", "fallback"]

    @Test("every vector of an independent implementation is met byte for byte", arguments: files)
    func replay(_ file: String) throws {
        let vectors = try Vector.load("noise/\(file).json")
        #expect(!vectors.isEmpty)
        for vector in vectors {
            #expect(throws: Never.self) { try vector.replay() }
        }
    }

    @Test("a vector with one digit changed is not met")
    func mismatch() throws {
        let vector = try #require(try Vector.load("noise/interactive.json").last)
        for index in vector.messages.indices {
            var changed = vector
            let last = changed.messages[index].ciphertext.removeLast()
            changed.messages[index].ciphertext.append(last == "0" ? "1" : "0")
            #expect(throws: VectorMismatch.self) { try changed.replay() }
        }
        var changed = vector
        changed.handshake_hash = String(repeating: "0", count: 128)
        #expect(throws: VectorMismatch.self) { try changed.replay() }
    }

    @Test("the vectors cover every pattern, suite and psk position, and every possible fallback")
    func coverage() throws {
        var names: Set<String> = []
        for file in Self.files {
            names.formUnion(try Vector.load("noise/\(file).json").map(\.protocol_name))
        }
        #expect(names.count >= 4_000)
        for pattern in HandshakePattern.all {
            var variants = [pattern.name]
            for position in 0...pattern.messages.count {
                variants.append(pattern.name + "psk\(position)")
            }
            if (try? pattern.applying(.fallback)) != nil {
                variants += [pattern.name + "fallback", pattern.name + "fallback+psk0"]
            }
            for variant in variants {
                for suite in suites { #expect(names.contains("Noise_\(variant)_\(suite)")) }
            }
        }
    }

    private var suites: [String] {
        ["25519", "448"].flatMap { curve in
            ["ChaChaPoly", "AESGCM"].flatMap { cipher in
                ["SHA256", "SHA512", "BLAKE2s", "BLAKE2b"].map { "\(curve)_\(cipher)_\($0)" }
            }
        }
    }
}
