import BLESecChannelCore
import BLESecNoise
import BLESecPrimitives
import Testing

@testable import BLESec

/// Bytes of an earlier channel that are replayed, and bytes that go back to their sender.
@Suite("Replays and reflections")
struct ReplayTests {
    @Test(
        "a first flight that is replayed never makes an acceptor ready",
        arguments: [
            "Noise_IK_25519_ChaChaPoly_SHA256", "Noise_KK_25519_ChaChaPoly_SHA256",
            "Noise_NNpsk0_25519_ChaChaPoly_SHA256", "Noise_IKpsk1_25519_ChaChaPoly_SHA256",
            "Noise_XX_25519_ChaChaPoly_SHA256",
        ])
    func replayedFlight(offer: String) throws {
        let pinned = try PinnedPeers()
        let configurations = try pinned.configurations(offer)
        let recordedBytes = try AttackRun(configurations).sent[.dialer, default: []]
        // Replays either the first flight alone, or everything that the dialer has sent.
        let firstFlightLength = SentPieces(of: recordedBytes).pieces[1].upperBound
        for length in [firstFlightLength, recordedBytes.count] {
            let pair = try MachinePair(
                dialer: configurations.dialer, acceptor: configurations.acceptor)
            pair.deliver(Array(recordedBytes.prefix(length)), to: .acceptor)
            while !pair.take(.acceptor).isEmpty {}
            for _ in 0..<30 {
                pair.passTime(.seconds(1))
                while !pair.take(.acceptor).isEmpty {}
                let isReady = pair.acceptor.isReady
                #expect(!isReady)
                #expect(pair.acceptor.peer == nil)
            }
            #expect(pair.acceptor.outcome?.code != nil)
        }
    }

    @Test("an acceptor's flight that is replayed never makes a dialer ready")
    func replayedAnswer() throws {
        for offer in TamperingTests.scenarios.prefix(4) {
            let pinned = try PinnedPeers(hash: .init(ofProtocol: offer))
            let configurations = try pinned.configurations(offer)
            let recordedBytes = try AttackRun(configurations).sent[.acceptor, default: []]
            let pair = try MachinePair(
                dialer: configurations.dialer, acceptor: configurations.acceptor)
            _ = pair.take(.dialer)
            pair.deliver(recordedBytes, to: .dialer)
            #expect(pair.dialer.outcome?.code == .authenticationFailed)
            let isReady = pair.dialer.isReady
            #expect(!isReady)
        }
    }

    @Test(
        "a dialer that gets its own bytes back fails", arguments: TamperingTests.scenarios.prefix(4)
    )
    func reflected(offer: String) throws {
        let pinned = try PinnedPeers(hash: .init(ofProtocol: offer))
        let configurations = try pinned.configurations(offer)
        let pair = try MachinePair(dialer: configurations.dialer, acceptor: configurations.acceptor)
        for _ in 0..<5 {
            let bytes = pair.take(.dialer)
            pair.deliver(bytes, to: .dialer)
        }
        #expect(pair.dialer.outcome?.code == .protocolViolation)
        // An attacker that forges an answer can then reflect the handshake messages.
        let second = try MachinePair(
            dialer: configurations.dialer, acceptor: configurations.acceptor)
        let flight = second.take(.dialer)
        let early = flight[SentPieces(of: flight).pieces[1]]
        second.deliver(Answer(.accept).encoded + early, to: .dialer)
        for _ in 0..<5 { second.deliver(second.take(.dialer), to: .dialer) }
        second.passTime(.seconds(10))
        let isReady = second.dialer.isReady
        #expect(!isReady)
        #expect(second.dialer.outcome?.code != nil)
    }

    @Test("records that are reflected to their sender end the channel")
    func reflectedRecords() throws {
        let pair = try PinnedPeers().pair()
        pair.run()
        _ = try pair.dialer.queue([1, 2, 3])
        pair.deliver(pair.take(.dialer), to: .dialer)
        #expect(pair.dialer.outcome?.code == .authenticationFailed)
        #expect(pair.dialer.takeMessage(now: pair.now) == nil)
    }

    @Test("records of another session between the same peers end the channel")
    func otherSession() throws {
        let pinned = try PinnedPeers()
        let first = try pinned.pair()
        let second = try pinned.pair()
        first.run()
        second.run()
        _ = try first.dialer.queue([1, 2, 3])
        second.deliver(first.take(.dialer), to: .acceptor)
        #expect(second.acceptor.outcome?.code == .authenticationFailed)
        #expect(second.acceptor.takeMessage(now: second.now) == nil)
    }

    @Test(
        "a dialer and an acceptor with the same identity key never become ready",
        arguments: ["Noise_XX_25519_ChaChaPoly_SHA256", "Noise_IK_25519_ChaChaPoly_SHA256"],
        [true, false])
    func ownIdentity(offer: String, sharesDials: Bool) throws {
        let identity = try IdentityKey.generate()
        func configuration() throws -> ChannelConfiguration {
            var configuration = ChannelConfiguration(
                identity: identity, trust: .pinned([try PeerKey(publicKey: identity.publicKey)]))
            configuration.protocols = [offer]
            // Two processes, or two devices with a copied key, do not know each other's dials.
            if !sharesDials { configuration.pendingDials = PendingDials() }
            return configuration
        }
        let run = try AttackRun((configuration(), configuration()))
        #expect(!run.dialer.wasReady && !run.acceptor.wasReady)
        let failures = [run.dialer.failure, run.acceptor.failure]
        #expect(failures.contains(.selfConnection))
        // In one process the acceptor refuses the first message. The dialer sees only the end of
        // its link, but knows the reason.
        if sharesDials { #expect(failures == [.selfConnection, .selfConnection]) }
    }

    @Test(
        "a device that dials itself in direct mode gets the error selfConnection on both sides",
        arguments: [
            "Noise_XX_25519_ChaChaPoly_SHA256", "Noise_NN_25519_ChaChaPoly_SHA256", "TLS1.3",
        ])
    func ownDirectDial(offer: String) throws {
        let isTLS = offer == "TLS1.3"
        var configuration =
            try isTLS
            ? CertificateFixture.shared().configuration(.dialer)
            : PinnedPeers().configurations(offer).dialer
        if offer.contains("NN") { configuration.identity = nil }
        configuration.protocols = [offer]
        configuration.mode = .direct
        let pair = try MachinePair(dialer: configuration, acceptor: configuration)
        pair.run()
        #expect(pair.acceptor.outcome?.code == .selfConnection)
        pair.dialer.linkEnded(nil, now: pair.now)
        #expect(pair.dialer.outcome?.code == .selfConnection)
    }

    @Test("a hello that also reaches the dialer's own listener does not change how the dial ends")
    func relayedToOwnListener() throws {
        let pinned = try PinnedPeers()
        let pair = try MachinePair(
            dialer: pinned.configuration(.dialer), acceptor: pinned.configuration(.acceptor))
        // What the dialer has sent arrives at a listener of the same device, too.
        var ownAcceptor = ChannelMachine(
            role: .acceptor, configuration: try pinned.configuration(.dialer), maximumSDU: 4_096,
            now: pair.now)
        try ownAcceptor.begin()
        let hello = pair.take(.dialer)
        ownAcceptor.arrive(hello, now: pair.now)
        #expect(ownAcceptor.outcome?.code == .selfConnection)
        // The peer answers as well. How the dial ends depends on the peer alone.
        pair.deliver(hello, to: .acceptor)
        pair.deliver(pair.take(.acceptor), to: .dialer)
        pair.dialer.linkEnded(nil, now: pair.now)
        #expect(pair.dialer.outcome?.code == .truncated)
    }

    @Test("a device without an identity detects by the ephemeral key that it has dialed itself")
    func ownDial() throws {
        let configurations = try PinnedPeers().configurations("Noise_NN_25519_ChaChaPoly_SHA256")
        var dialer = configurations.dialer
        var acceptor = configurations.acceptor
        dialer.identity = nil
        acceptor.identity = nil
        let run = try AttackRun((dialer, acceptor))
        #expect(run.acceptor.failure == .selfConnection)
        #expect(run.dialer.failure == .selfConnection)
        #expect(!run.dialer.wasReady && !run.acceptor.wasReady)
    }

    @Test("a dial that is ready or has failed is no longer among the pending dials")
    func forgottenDials() throws {
        let dials = PendingDials()
        let pinned = try PinnedPeers()
        var dialer = try pinned.configuration(.dialer)
        dialer.pendingDials = dials
        let pair = try MachinePair(dialer: dialer, acceptor: pinned.configuration(.acceptor))
        let message = try #require(pair.dialer.stage as? Negotiation).transcript.early
        #expect(dials.contains(message, by: dialer.ownKeys))
        pair.run()
        #expect(!dials.contains(message, by: dialer.ownKeys))
        let failingPair = try MachinePair(dialer: dialer, acceptor: pinned.configuration(.acceptor))
        let failingMessage = try #require(failingPair.dialer.stage as? Negotiation).transcript.early
        #expect(dials.contains(failingMessage, by: dialer.ownKeys))
        failingPair.passTime(.seconds(5))
        #expect(!dials.contains(failingMessage, by: dialer.ownKeys))
    }
}

extension HashAlgorithm {
    /// The hash function that the name of a protocol contains.
    init(ofProtocol offer: String) throws { self = try ProtocolName(offer).hash }
}
