import BLESec
import BLESecNoise
import Testing

@testable import blesec_bench

@Suite struct HandshakeTests {
    typealias Counts = HandshakeCalls.Counts

    /// Protocols, and the number of calls of primitives on both sides together, counted by hand
    /// from Noise §5 to §9.
    ///
    /// Each side hashes the prologue, each public key and each payload. Split() calls HKDF twice:
    /// for the transport keys, and for the master secret of the additional symmetric keys.
    static let handCounts: [(name: String, calls: Counts)] = [
        (
            "Noise_XX_25519_ChaChaPoly_SHA256",
            Counts(keyPairs: 2, dhOperations: 6, hashes: 16, hkdfs: 10, seals: 4, opens: 4)
        ),
        // Two static keys are known beforehand, and the name is hashed because it is longer than a
        // digest.
        (
            "Noise_KK_25519_ChaChaPoly_BLAKE2s",
            Counts(keyPairs: 2, dhOperations: 8, hashes: 16, hkdfs: 12, seals: 2, opens: 2)
        ),
        // A psk is mixed into the key and the hash, and ephemerals are mixed into the key as well.
        (
            "Noise_NNpsk0_25519_AESGCM_SHA512",
            Counts(keyPairs: 2, dhOperations: 2, hashes: 12, hkdfs: 12, seals: 2, opens: 2)
        ),
        // The initiator's ephemeral is known beforehand, so neither side generates it.
        (
            "Noise_NNfallback_448_ChaChaPoly_BLAKE2b",
            Counts(keyPairs: 1, dhOperations: 2, hashes: 8, hkdfs: 6, seals: 1, opens: 1)
        ),
    ]

    @Test("the calls listed for a handshake equal those counted by hand", arguments: handCounts)
    func calls(_ expected: (name: String, calls: Counts)) throws {
        #expect(HandshakeCalls(try ProtocolName(expected.name)).counts == expected.calls)
    }

    @Test("every pattern's handshake can be run, and so can its primitives alone")
    func everyPattern() throws {
        let names = NoiseHandshakes.names
        // All patterns in the first suite, XX in the other suites, and XXfallback.
        #expect(names.count == 38 + 15 + 1)
        #expect(Set(names).count == names.count)
        for name in names + ["Noise_XXfallback+psk0_25519_AESGCM_SHA256"] {
            let handshakes = try NoiseHandshakes(name)
            let sample = try handshakes.run(2)
            #expect(sample.time.dialer > 0 && sample.time.acceptor > 0)
            if let reference = handshakes.reference { #expect(try reference.run(1) > 0) }
        }
    }

    @Test("the certificates of the TLS devices are valid for 30 days, longer than any run")
    func validity() throws {
        let contexts = try TLSDevices.shared().contexts
        func context(_ context: TLSContext, _ day: Int64) throws -> TLSContext {
            var options = TLSOptions()
            let clock = options.clock
            options.clock = { clock() + day * 86_400 }
            return try TLSContext(
                identity: context.identity, authorities: context.authorities, options: options)
        }
        func handshake(_ day: Int64) throws {
            _ = try TLSHandshakes.run(
                1,
                BothSides(
                    dialer: context(contexts.dialer, day),
                    acceptor: context(contexts.acceptor, day)))
        }
        try handshake(29)
        #expect(throws: (any Error).self) { try handshake(31) }
    }

    @Test("in each TLS resumption both sides send fewer bytes than in a full handshake")
    func resumption() throws {
        let devices = try TLSDevices.shared()
        let fullHandshake = try TLSHandshakes(devices).run(2)
        let resumptions = try TLSResumptions(devices)
        for _ in 0..<3 {
            let resumed = try resumptions.run(2)
            #expect(resumed.time.dialer > 0 && resumed.time.acceptor > 0)
            // The acceptor's second flight is a ticket.
            #expect(resumed.flights == BothSides(dialer: 2, acceptor: 2))
            #expect(resumed.bytes.dialer < fullHandshake.bytes.dialer)
            #expect(resumed.bytes.acceptor < fullHandshake.bytes.acceptor)
        }
    }
}
