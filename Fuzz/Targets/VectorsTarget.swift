internal import BLESecNoise
@testable internal import BLESecNoiseVectors

extension FuzzTarget {
    /// Vector files: the JSON, its structure, and the runs of the vectors.
    static let vectors = FuzzTarget(name: "vectors") { input in
        guard let file = try? VectorFile(path: "input", bytes: input) else { return }
        for vector in file.vectors.prefix(2) {
            let name = vector.protocolName
            // X448 is too slow in an instrumented build, so its vectors are read and not run.
            if !name.contains("448"), vector.messages.count <= 16 { _ = vector.run() }
            let isPlain = name.utf8.allSatisfy {
                (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: "\\")
            }
            guard isPlain, vector.attemptedPattern == nil else { continue }
            let text = NoiseVector.opening + vector.text + NoiseVector.closing
            let again = must { try VectorFile(path: "again", bytes: text) }
            precondition(again.vectors == [vector], "a vector differs after writing and reading")
        }
    } seeds: {
        let names = try [
            "Noise_XX_25519_ChaChaPoly_SHA256", "Noise_NNpsk0+psk2_25519_AESGCM_BLAKE2s",
            "Noise_K_25519_ChaChaPoly_SHA512", "Noise_XXfallback_25519_AESGCM_SHA256",
        ].map { try ProtocolName($0) }
        let maker = VectorMaker(seed: 1, names: names)
        let made = try names.indices.map { index in
            try NoiseVector.opening + maker.vector(at: index).text + NoiseVector.closing
        }
        let compound =
            #"{"vectors":[{"name":"Noise_XXfallback_25519_AESGCM_SHA256","fallback":true,"#
            + #""pattern":"IK","init_psk":null,"messages":[{"payload":"","ciphertext":"00"}]}]}"#
        let odd = #"{"a":[1e-5,-0,true,null,"\u00e9\ud83d\ude00\n"],"vectors":[]}"#
        return made + [Array(compound.utf8), Array(odd.utf8)]
    }
}
