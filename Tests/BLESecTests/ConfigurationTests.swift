import BLESecChannelCore
import BLESecNoise
import BLESecPrimitives
import Testing

@testable import BLESec

/// Configurations that are refused before anything is sent.
@Suite("Refused configurations")
struct ConfigurationTests {
    static let xx = "Noise_XX_25519_ChaChaPoly_SHA256"

    /// Expects that `validate` and `begin` both refuse the changed configuration, and that nothing
    /// is sent.
    static func expectRefused(
        _ role: ChannelRole = .dialer, _ comment: Comment? = nil,
        _ change: (inout ChannelConfiguration) throws -> Void
    ) throws {
        var configuration = try PinnedPeers().configuration(role)
        try change(&configuration)
        #expect(throws: ChannelError(.configuration, ""), comment) {
            try configuration.validate(for: role)
        }
        var machine = ChannelMachine(
            role: role, configuration: configuration, maximumSDU: 1_000, now: 0)
        #expect(throws: ChannelError(.configuration, ""), comment) { try machine.begin() }
        #expect(machine.transmit(now: 0).isEmpty)
    }

    static func psk() throws -> PreSharedKey {
        try PreSharedKey(SecretBytes(copying: [UInt8](repeating: 1, count: 32).span))
    }

    @Test(
        "a list of protocols that is empty, repeats a name, or has one that cannot be offered is refused"
    )
    func protocols() throws {
        try Self.expectRefused { $0.protocols = [] }
        // `validate` accepts a repeated name; the dialer fails when it makes its hello. An acceptor
        // sends no list.
        var configuration = try PinnedPeers().configuration(.dialer)
        configuration.protocols = [Self.xx, Self.xx]
        #expect(throws: ChannelError(.configuration, "")) {
            _ = try MachinePair(dialer: configuration, acceptor: configuration)
        }
        for name in [
            "", "Noise", "Noise_ZZ_25519_ChaChaPoly_SHA256", "Noise_XX_25519_ChaChaPoly_SHA1",
            "noise_XX_25519_ChaChaPoly_SHA256", "Noise_XX_25519_ChaChaPoly_SHA256 ",
            "Noise_XXpsk9_25519_ChaChaPoly_SHA256", "Noise_XXfallback_25519_ChaChaPoly_SHA256",
            "Noise_N_25519_ChaChaPoly_SHA256", "TLS",
            // A Kelvin sign: Swift's `==` finds it equal to a K, although the bytes differ.
            "Noise_I\u{212A}_25519_ChaChaPoly_SHA256",
        ] {
            try Self.expectRefused(.dialer, "\(name)") { $0.protocols = [name] }
            try Self.expectRefused(.acceptor, "\(name)") { $0.protocols = [Self.xx, name] }
        }
    }

    @Test("limits that leave no room for a byte are refused")
    func noRoom() throws {
        try Self.expectRefused { $0.limits.readAhead = 0 }
        try Self.expectRefused { $0.limits.unauthenticatedBytes = 0 }
    }

    @Test("a listener without room for a handshake or a channel is refused")
    func noRoomInListener() async throws {
        let configuration = ChannelConfiguration(identity: try .generate(), trust: .anyone)
        for change: (inout SecureListener.Limits) -> Void in [
            { $0.handshakes = 0 }, { $0.backlog = -1 },
        ] {
            var limits = SecureListener.Limits()
            change(&limits)
            await #expect(throws: ChannelError(.configuration, "")) {
                try await SecureListener.listen(
                    on: Endpoint(parsing: "unix:/unused"), configuration: configuration,
                    limits: limits)
            }
        }
    }

    @Test("a pattern that does not prove the key that the policy requires is refused")
    func unproven() throws {
        for name in ["NN", "XN", "KN", "IN"].map({ "Noise_\($0)_25519_ChaChaPoly_SHA256" }) {
            try Self.expectRefused(.dialer, "\(name)") {
                $0.protocols = [name]
                $0.allowsExposedIdentity = true
            }
        }
        for name in ["NN", "NK", "NX"].map({ "Noise_\($0)_25519_ChaChaPoly_SHA256" }) {
            try Self.expectRefused(.acceptor, "\(name)") { $0.protocols = [name] }
        }
        try Self.expectRefused {
            $0.protocols = ["Noise_NNpsk0_25519_ChaChaPoly_SHA256"]
            $0.presharedKeys = [try Self.psk()]
        }
    }

    @Test("a policy that no peer can satisfy is refused")
    func unsatisfiable() throws {
        for role in [ChannelRole.dialer, .acceptor] {
            try Self.expectRefused(role) { $0.trust = .pinned([]) }
            try Self.expectRefused(role) { $0.certificateTrust = .pinned([]) }
            try Self.expectRefused(role) { $0.certificateTrust = .authority(uris: []) }
        }
        var configuration = try PinnedPeers().configuration(.dialer)
        configuration.trust = .pinned([])
        let error = #expect(throws: ChannelError.self) { try configuration.validate(for: .dialer) }
        #expect(error?.reason.contains("give the peers' keys") == true)
    }

    @Test("an offer that does not prove the required key is refused, even after one that does")
    func unprovenSecond() throws {
        try Self.expectRefused { $0.protocols = [Self.xx, "Noise_NN_25519_ChaChaPoly_SHA256"] }
    }

    @Test("a pattern that shows the dialer's key to unauthenticated peers needs permission")
    func exposed() throws {
        for name in ["IX", "I1X"].map({ "Noise_\($0)_25519_ChaChaPoly_SHA256" }) {
            try Self.expectRefused(.dialer, "\(name)") { $0.protocols = [name] }
            var configuration = try PinnedPeers().configuration(.dialer)
            configuration.protocols = [name]
            configuration.allowsExposedIdentity = true
            try configuration.validate(for: .dialer)
        }
    }

    @Test(
        "an offer is refused if its hash or curve is not the identity key's, or there is no identity key"
    )
    func identity() throws {
        try Self.expectRefused { $0.protocols = ["Noise_XX_25519_ChaChaPoly_SHA512"] }
        try Self.expectRefused { $0.protocols = [Self.xx, "Noise_XX_25519_ChaChaPoly_BLAKE2s"] }
        try Self.expectRefused { $0.protocols = ["Noise_XX_448_ChaChaPoly_SHA256"] }
        try Self.expectRefused { $0.identity = nil }
    }

    @Test("a pre-shared key for two hashes is refused, and so is a psk pattern without such a key")
    func presharedKeys() throws {
        let names = ["SHA256", "BLAKE2s"].map { "Noise_NNpsk0_25519_ChaChaPoly_\($0)" }
        try Self.expectRefused {
            $0.trust = .anyone
            $0.presharedKeys = [try Self.psk()]
            $0.protocols = names
        }
        try Self.expectRefused {
            $0.trust = .anyone
            $0.protocols = [names[0]]
        }
        var configuration = try PinnedPeers().configuration(.dialer)
        configuration.trust = .anyone
        configuration.presharedKeys = [try Self.psk()]
        // A protocol without a psk may have another hash, because it does not use the key.
        configuration.protocols = [names[1], "Noise_NN_25519_ChaChaPoly_SHA256"]
        try configuration.validate(for: .dialer)
    }

    @Test(
        "a pattern that needs the peer's public key is refused unless exactly one such key is pinned"
    )
    func remoteStatic() throws {
        let ik = "Noise_IK_25519_ChaChaPoly_SHA256"
        try Self.expectRefused {
            $0.protocols = [ik]
            $0.trust = .pinned([PeerKey(fingerprint: try IdentityKey.generate().fingerprint)])
        }
        try Self.expectRefused {
            $0.protocols = [ik]
            $0.trust = .pinned([
                try PeerKey(publicKey: IdentityKey.generate().publicKey),
                try PeerKey(publicKey: IdentityKey.generate().publicKey),
            ])
        }
        try Self.expectRefused {
            $0.protocols = [ik]
            $0.trust = .anyone
        }
        // The same key twice is one key, and a fingerprint beside it changes nothing.
        let key = try PeerKey(publicKey: IdentityKey.generate().publicKey)
        var configuration = try PinnedPeers().configuration(.dialer)
        configuration.protocols = [ik]
        configuration.trust = .pinned([key, PeerKey(fingerprint: key.fingerprint), key])
        try configuration.validate(for: .dialer)
    }

    @Test(
        "options that the mode does not have, a 256-byte context, and a prologue with blesec/1 at its beginning or after two bytes are refused"
    )
    func modes() throws {
        try Self.expectRefused { $0.prologue = [1] }
        try Self.expectRefused { $0.context = Array(repeating: 0, count: 256) }
        try Self.expectRefused {
            $0.mode = .direct
            $0.context = [1]
        }
        try Self.expectRefused {
            $0.mode = .direct
            $0.protocols = [Self.xx, "Noise_XX_25519_AESGCM_SHA256"]
        }
        for prologue in ["blesec/1", "blesec/1 accept", "blesec/10", "12blesec/1"] {
            try Self.expectRefused {
                $0.mode = .direct
                $0.prologue = Array(prologue.utf8)
            }
        }
        for prologue in ["", "blesec", "1blesec/1", "123blesec/1"] {
            var configuration = try PinnedPeers().configuration(.dialer)
            configuration.mode = .direct
            configuration.prologue = Array(prologue.utf8)
            try configuration.validate(for: .dialer)
        }
    }

    @Test("direct mode refuses every prologue that negotiated mode can have")
    func negotiatedPrologues() throws {
        var transcript = NegotiationTranscript(context: [1, 2, 3])
        transcript.hello = try Hello(offers: [Self.xx]).encoded
        transcript.early = [UInt8](repeating: 4, count: 32)
        let answers: [Answer] = [
            Answer(.accept), Answer(.fallback, index: 1), Answer(.switch, index: 1),
            Answer(.refused), Answer(.busy),
        ]
        for answer in answers {
            transcript.answer = answer.encoded
            let prologue = transcript.prologue(for: answer.status)
            try Self.expectRefused(.dialer, "\(answer.status)") {
                $0.mode = .direct
                $0.prologue = prologue
            }
        }
    }
}
