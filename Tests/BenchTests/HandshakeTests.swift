import BLESecNoise
import Testing

@testable import blesec_bench

@Suite struct HandshakeTests {
    typealias Counts = HandshakeCalls.Counts

    /// Protocols, and the calls on both sides as one counts them by hand with Noise §5 to §9.
    ///
    /// Each side hashes the prologue, each public key and each payload. Split() derives keys, and
    /// takes the additional symmetric keys' master beside them.
    static let counted: [(name: String, calls: Counts)] = [
        (
            "Noise_XX_25519_ChaChaPoly_SHA256",
            Counts(keyPairs: 2, products: 6, hashes: 16, hkdfs: 10, seals: 4, opens: 4)
        ),
        // Two static keys are known before, and the name is longer than a digest.
        (
            "Noise_KK_25519_ChaChaPoly_BLAKE2s",
            Counts(keyPairs: 2, products: 8, hashes: 16, hkdfs: 12, seals: 2, opens: 2)
        ),
        // A psk is mixed into key and hash, and ephemerals into the key as well.
        (
            "Noise_NNpsk0_25519_AESGCM_SHA512",
            Counts(keyPairs: 2, products: 2, hashes: 12, hkdfs: 12, seals: 2, opens: 2)
        ),
        // The initiator's ephemeral is known, and nobody makes it.
        (
            "Noise_NNfallback_448_ChaChaPoly_BLAKE2b",
            Counts(keyPairs: 1, products: 2, hashes: 8, hkdfs: 6, seals: 1, opens: 1)
        ),
    ]

    @Test("the calls of a handshake are those that the specification makes", arguments: counted)
    func calls(_ expected: (name: String, calls: Counts)) throws {
        #expect(HandshakeCalls(try ProtocolName(expected.name)).counts == expected.calls)
    }

    @Test("every pattern's handshake can be run, and its primitives by themselves")
    func everyPattern() throws {
        let names = NoiseHandshakes.names
        #expect(names.count == 38 + 15 + 1)
        #expect(Set(names).count == names.count)
        for name in names + ["Noise_XXfallback+psk0_25519_AESGCM_SHA256"] {
            let handshakes = try NoiseHandshakes(name)
            let sample = try handshakes.run(2)
            #expect(sample.time.dialer > 0 && sample.time.acceptor > 0)
            if let limit = handshakes.limit { #expect(try limit.run(1) > 0) }
        }
    }

    @Test("TLS sends no certificates when it resumes a session, again and again")
    func resumption() throws {
        let company = try BenchCompany.shared()
        let full = try TLSHandshakes(company).run(2)
        let resumptions = try TLSResumptions(company)
        for _ in 0..<3 {
            let resumed = try resumptions.run(2)
            #expect(resumed.time.dialer > 0 && resumed.time.acceptor > 0)
            #expect(resumed.flights == BothSides(dialer: 2, acceptor: 2), "the last is a ticket")
            #expect(resumed.bytes.dialer < full.bytes.dialer)
            #expect(resumed.bytes.acceptor < full.bytes.acceptor)
        }
    }
}
