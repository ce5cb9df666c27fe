import BLESecChannelCore
import BLESecNoise
import BLESecNoiseEngine
import BLESecPrimitives
import Testing

@Suite("Established engines")
struct EstablishedTests {
    static let offers = [
        "Noise_XX_25519_ChaChaPoly_SHA256", "Noise_IK_25519_AESGCM_SHA512",
        "Noise_KK_25519_ChaChaPoly_BLAKE2s", "Noise_NNpsk0_25519_ChaChaPoly_SHA256",
        "Noise_NN_25519_ChaChaPoly_BLAKE2b", "Noise_XX_448_AESGCM_SHA256",
        "Noise_X1X1_25519_ChaChaPoly_SHA256", "Noise_XKpsk3_25519_ChaChaPoly_SHA256",
    ]

    @Test(
        "the handshake hashes agree, and each side knows if its peer proved a key, psk or nothing",
        arguments: offers)
    func agreement(offer: String) throws {
        var pair = try EnginePair(offer, prologue: [1, 2, 3])
        try pair.shakeHands()
        guard case .established(let dialerIdentity) = pair.acceptor.phase,
            case .established(let acceptorIdentity) = pair.dialer.phase
        else {
            Issue.record("\(pair.dialer.phase), \(pair.acceptor.phase)")
            return
        }
        let name = try ProtocolName(offer)
        let pattern = name.pattern
        for (identity, role, ownKey) in [
            (dialerIdentity, Role.initiator, pair.dialerKey),
            (acceptorIdentity, .responder, pair.acceptorKey),
        ] {
            switch identity {
            case .publicKey(let key, let curve):
                #expect(pattern.authenticates(role))
                #expect(key == ownKey && curve == name.curve)
            case .group: #expect(pattern.pskCount > 0 && !pattern.authenticates(role))
            case .anonymous: #expect(pattern.pskCount == 0 && !pattern.authenticates(role))
            case .certificate: Issue.record("Noise has no certificates")
            }
        }
        #expect(pair.dialer.handshakeHash == pair.acceptor.handshakeHash)
        #expect(!pair.dialer.handshakeHash.isEmpty)
    }

    @Test(
        "exported keys are equal on both sides, differ by label and context, and stay the same after a rekey"
    )
    func export() throws {
        var pair = try EnginePair(Self.offers[0])
        try pair.shakeHands()
        let first = try pair.dialer.export(label: "a", context: [1], count: 48)
        #expect(
            try pair.acceptor.export(label: "a", context: [1], count: 48).isEqual(to: first))
        #expect(
            try !pair.dialer.export(label: "a", context: [2], count: 48).isEqual(to: first))
        #expect(
            try !pair.dialer.export(label: "b", context: [1], count: 48).isEqual(to: first))
        // Label and context are not merely joined: the boundary between them counts.
        #expect(
            try !pair.dialer.export(label: "a\u{1}", context: [], count: 48).isEqual(to: first))
        try pair.dialer.rekeySending()
        try pair.acceptor.rekeyReceiving()
        #expect(try pair.dialer.export(label: "a", context: [1], count: 48).isEqual(to: first))
        #expect(try pair.acceptor.opened(pair.dialer.sealed(7, [5])) == [7, 5])
    }

    @Test(
        "an exported key of zero, negative or more than 8,160 bytes is refused",
        arguments: [0, -1, 8_161])
    func exportLength(count: Int) throws {
        var pair = try EnginePair(Self.offers[0])
        try pair.shakeHands()
        #expect(throws: ChannelError(.configuration, "")) {
            _ = try pair.dialer.export(label: "a", context: [], count: count)
        }
        #expect(try pair.dialer.export(label: "a", context: [], count: 8_160).count == 8_160)
    }

    @Test(
        "a record does not open if it is replayed or reflected, or if the record before it is missing",
        arguments: offers)
    func order(offer: String) throws {
        for attack in ["replay", "omission", "reflection"] {
            var pair = try EnginePair(offer)
            try pair.shakeHands()
            let first = try pair.dialer.sealed(0, [1])
            let second = try pair.dialer.sealed(0, [1])
            if attack == "replay" { #expect(try pair.acceptor.opened(first) == [0, 1]) }
            #expect(throws: ChannelError(.authenticationFailed, "")) {
                switch attack {
                case "replay": _ = try pair.acceptor.opened(first)
                case "omission": _ = try pair.acceptor.opened(second)
                default: _ = try pair.dialer.opened(first)
                }
            }
        }
    }

    @Test("engines with different prologues never establish a session", arguments: offers)
    func prologue(offer: String) throws {
        var pair = try EnginePair(offer, prologue: [1])
        let other = try EnginePair(offer, prologue: [2])
        pair.acceptor = other.acceptor
        #expect(throws: ChannelError.self) { try pair.shakeHands() }
    }
}
