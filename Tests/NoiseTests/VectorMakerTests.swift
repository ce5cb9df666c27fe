import BLESecNoise
import BLESecNoiseVectors
import Testing

@Suite struct VectorMakerTests {
    @Test("generated vectors pass, and are written and read back unchanged")
    func made() throws {
        let maker = VectorMaker(seed: 1)
        let vectors = try (0..<152).map { try maker.vector(at: $0) }
        for vector in vectors { #expect(vector.run() == .passed, "\(vector.protocolName)") }
        let text =
            NoiseVector.opening + vectors.map(\.text).joined(separator: NoiseVector.separator)
            + NoiseVector.closing
        #expect(try VectorFile(path: "made", bytes: text).vectors == vectors)
    }

    @Test("a seed gives the same vectors each time; another seed or index gives different ones")
    func determinism() throws {
        let first = try VectorMaker(seed: 7).vector(at: 3)
        #expect(try VectorMaker(seed: 7).vector(at: 3) == first)
        let other = try VectorMaker(seed: 8).vector(at: 3)
        #expect(other.initiator.ephemeral != first.initiator.ephemeral)
        let next = try VectorMaker(seed: 7).vector(at: 4)
        #expect(next.initiator.ephemeral != first.initiator.ephemeral)
    }

    @Test("a maker with a list of protocol names uses the names in order, again and again")
    func names() throws {
        let names = try ["NN", "XXfallback+psk0", "IKpsk1+psk2"].map {
            try ProtocolName("Noise_\($0)_25519_ChaChaPoly_SHA256")
        }
        let maker = VectorMaker(seed: 2, names: names)
        let made = try (0..<6).map { try maker.vector(at: $0) }
        #expect(made.map(\.protocolName) == (names + names).map(\.description))
        #expect(Set(made.compactMap(\.handshakeHash)).count == 6)
        for vector in made { #expect(vector.run() == .passed) }
    }

    @Test(
        "608 vectors with default names cover every pattern in every suite; some have psks or fallbacks"
    )
    func coverage() throws {
        let maker = VectorMaker(seed: 3)
        let names = try (0..<608).map { try ProtocolName(maker.vector(at: $0).protocolName) }
        let patternsAndSuites = names.map {
            "\($0.pattern.baseName) \($0.curve) \($0.aead) \($0.hash)"
        }
        #expect(Set(patternsAndSuites).count == 608)
        #expect(names.contains { $0.pattern.pskCount > 1 })
        #expect(names.contains { $0.pattern.isFallback && $0.pattern.pskCount > 0 })
        #expect(names.contains { $0.pattern.modifiers.isEmpty })
    }

    @Test("parallel work gives the results in order")
    func parallel() async {
        let results = await inParallel(1_000) { $0 * 2 }
        #expect(results == (0..<1_000).map { $0 * 2 })
        #expect(await inParallel(0) { $0 } == [])
    }
}
