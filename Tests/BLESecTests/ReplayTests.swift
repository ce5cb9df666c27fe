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
        arguments: ["XX", "IK", "KK", "IX", "XX1", "X1X1"], [true, false])
    func ownIdentity(pattern: String, sharesDials: Bool) throws {
        let identity = try IdentityKey.generate()
        func configuration() throws -> ChannelConfiguration {
            var configuration = ChannelConfiguration(
                identity: identity, trust: .pinned([try PeerKey(publicKey: identity.publicKey)]))
            configuration.protocols = ["Noise_\(pattern)_25519_ChaChaPoly_SHA256"]
            configuration.allowsExposedIdentity = true
            // Two processes, or two devices with a copied key, do not know each other's dials.
            if !sharesDials { configuration.pendingDials = PendingDials() }
            return configuration
        }
        let run = try AttackRun((configuration(), configuration()))
        #expect(!run.dialer.wasReady && !run.acceptor.wasReady)
        let failures = [run.dialer.failure, run.acceptor.failure]
        #expect(failures.contains(.selfConnection))
        // In one process the dialer recognizes the acceptor's answer. The acceptor sees only the
        // end of its link, but knows the reason.
        if sharesDials { #expect(failures == [.selfConnection, .selfConnection]) }
    }

    @Test(
        "a device that dials itself gets the error selfConnection on both sides, in every pattern",
        arguments: [ChannelConfiguration.Mode.negotiated, .direct])
    func ownDialInEveryPattern(mode: ChannelConfiguration.Mode) throws {
        let identity = try IdentityKey.generate()
        let own = try PeerKey(publicKey: identity.publicKey)
        let psk = try ConfigurationTests.psk()
        for properties in SourceProperties.all where !properties.isOneWay {
            for variant in [
                properties, properties.withPSKs([0]),
                properties.withPSKs([properties.handshake.count]),
            ] {
                let pattern = try ProtocolName(variant.protocolName).pattern
                func configuration(provesPeer: Bool) -> ChannelConfiguration {
                    var configuration = ChannelConfiguration(
                        identity: identity, trust: provesPeer ? .pinned([own]) : .anyone)
                    configuration.protocols = [variant.protocolName]
                    configuration.mode = mode
                    configuration.presharedKeys = [psk]
                    configuration.allowsExposedIdentity = true
                    return configuration
                }
                let dialer = configuration(provesPeer: pattern.authenticates(.responder))
                let acceptor = configuration(provesPeer: pattern.authenticates(.initiator))
                let run = try AttackRun((dialer, acceptor))
                #expect(run.dialer.failure == .selfConnection, "\(variant.protocolName)")
                #expect(run.acceptor.failure == .selfConnection, "\(variant.protocolName)")
                #expect(!run.dialer.wasReady)
                // In direct mode an acceptor is ready after its answer, if that is the last message
                // and the dialer has nothing to prove.
                let isReadyAtOnce =
                    mode == .direct && pattern.messages.count == 2
                    && pattern.isProven(.initiator, after: 2)
                #expect(run.acceptor.wasReady == isReadyAtOnce, "\(variant.protocolName)")
            }
        }
    }

    @Test("a device that dials itself over TLS in direct mode gets selfConnection on both sides")
    func ownDirectTLSDial() throws {
        var configuration = try CertificateFixture.shared().configuration(.dialer)
        configuration.mode = .direct
        for piece in [1, 20, 65_536] {
            let pair = try MachinePair(dialer: configuration, acceptor: configuration)
            pair.run(piece: piece)
            #expect(pair.dialer.outcome?.code == .selfConnection)
            pair.acceptor.linkEnded(nil, now: pair.now)
            #expect(pair.acceptor.outcome?.code == .selfConnection)
        }
    }

    @Test(
        "a device that dials itself with a message to another key gets selfConnection on both sides",
        arguments: [ChannelConfiguration.Mode.negotiated, .direct])
    func ownUnreadableDial(mode: ChannelConfiguration.Mode) throws {
        // Both sides use the dialer's configuration, which pins the acceptor's key.
        var configuration = try PinnedPeers().configurations("Noise_IK_25519_ChaChaPoly_SHA256")
            .dialer
        configuration.mode = mode
        let run = try AttackRun((configuration, configuration))
        #expect(run.dialer.failure == .selfConnection)
        #expect(run.acceptor.failure == .selfConnection)
        #expect(run.sent[.acceptor] == [])
    }

    @Test(
        "a device that dials itself and answers with a switch or a fallback gets selfConnection on both sides"
    )
    func ownDialWithOtherOffer() throws {
        let pinned = try PinnedPeers()
        let xx = "Noise_XX_25519_ChaChaPoly_SHA256"
        for (first, status) in [
            ("Noise_XX_25519_AESGCM_SHA256", Answer.Status.switch),
            ("Noise_IK_25519_ChaChaPoly_SHA256", .fallback),
        ] {
            let dialer = try pinned.configuration(.dialer, [first, xx])
            let acceptor = try pinned.configuration(.dialer, [xx])
            let run = try AttackRun((dialer, acceptor))
            #expect(run.dialer.failure == .selfConnection)
            #expect(run.acceptor.failure == .selfConnection)
            let sent = run.sent[.acceptor, default: []]
            let answer = try Answer(prefixOf: sent.span, offerCount: 2)
            #expect(answer?.status == status)
        }
    }

    @Test(
        "a first message that is replayed to the device that has sent it is answered like any other",
        arguments: ["XX", "IX", "NN", "NNpsk0", "KN", "IK", "IK, XX"])
    func replayedToOwnListener(patterns: String) throws {
        let pinned = try PinnedPeers()
        let key = try PeerKey(publicKey: pinned.acceptor.publicKey)
        let psk = try ConfigurationTests.psk()
        func configuration(
            _ identity: IdentityKey?, _ mode: ChannelConfiguration.Mode, isDialer: Bool
        ) -> ChannelConfiguration {
            let needsKey = patterns.hasPrefix("IK") || (!isDialer && patterns == "KN")
            var configuration = ChannelConfiguration(
                identity: identity, trust: needsKey ? .pinned([key]) : .anyone)
            configuration.protocols = patterns.split(separator: ", ").map {
                "Noise_\($0)_25519_ChaChaPoly_SHA256"
            }
            configuration.mode = mode
            configuration.presharedKeys = [psk]
            configuration.allowsExposedIdentity = true
            return configuration
        }
        let modes: [ChannelConfiguration.Mode] =
            patterns.contains(",") ? [.negotiated] : [.negotiated, .direct]
        for mode in modes {
            for hasKey in patterns.contains("NN") ? [true, false] : [true] {
                let own = hasKey ? pinned.dialer : nil
                var dialer = ChannelMachine(
                    role: .dialer, configuration: configuration(own, mode, isDialer: true),
                    maximumSDU: 8_192, now: 1)
                try dialer.begin()
                let flight = dialer.transmit(now: 1)
                // The dialer's own listener, and another one.
                let listeners: [IdentityKey?] = [own, try IdentityKey.generate()]
                var lengths: [Int] = []
                for identity in listeners {
                    var listener = ChannelMachine(
                        role: .acceptor,
                        configuration: configuration(identity, mode, isDialer: false),
                        maximumSDU: 8_192, now: 1)
                    try listener.begin()
                    listener.feed(flight, now: 1)
                    lengths.append(listener.transmit(now: 1).count)
                    // Neither listener can read IK's message, which is for a third key.
                    let isOver = listener.isOver
                    #expect(isOver == (patterns == "IK"))
                }
                #expect(lengths[0] == lengths[1])
                #expect((lengths[0] == 0) == (patterns == "IK"))
                let isDialerOver = dialer.isOver
                #expect(!isDialerOver)
            }
        }
    }

    @Test("a first TLS flight that is replayed to the device that has sent it is answered")
    func replayedTLSToOwnListener() throws {
        for mode in [ChannelConfiguration.Mode.negotiated, .direct] {
            var configuration = try CertificateFixture.shared().configuration(.dialer)
            configuration.mode = mode
            let pair = try MachinePair(dialer: configuration, acceptor: configuration)
            pair.deliver(pair.take(.dialer), to: .acceptor)
            #expect(!pair.take(.acceptor).isEmpty)
            #expect(pair.acceptor.outcome == nil)
            // Whoever replays the flight cannot continue the handshake.
            pair.passTime(.seconds(10))
            #expect(pair.acceptor.outcome?.code == .timedOut)
        }
    }

    @Test("a hello with the first message of the listener's own dial is refused like any other")
    func ownMessageInOtherHello() throws {
        let pinned = try PinnedPeers()
        let pair = try MachinePair(
            dialer: pinned.configuration(.dialer), acceptor: pinned.configuration(.dialer))
        let early = try #require(pair.dialer.stage as? Negotiation).transcript.early
        let hello = try Hello(offers: ["Noise_XX_25519_AESGCM_SHA256"])
        pair.deliver(hello.encoded + MaliciousNoisePeer.framed(early), to: .acceptor)
        let sent = pair.take(.acceptor)
        let answer = try Answer(prefixOf: sent.span, offerCount: 1)
        #expect(answer?.status == .refused)
    }

    @Test(
        "a peer that claims this side's own key is treated like one that claims any other, until it proves the key",
        arguments: [("XX1", ChannelRole.dialer), ("X1X1", .dialer), ("IX", .acceptor)])
    func claimedOwnKey(pattern: String, role: ChannelRole) throws {
        let name = try ProtocolName("Noise_\(pattern)_25519_ChaChaPoly_SHA256")
        let victim = try IdentityKey.generate()
        var lengths: [Int] = []
        for claimed in [victim, try IdentityKey.generate()] {
            var configuration = ChannelConfiguration(identity: victim, trust: .anyone)
            configuration.protocols = [name.description]
            configuration.allowsExposedIdentity = true
            var machine = ChannelMachine(
                role: role, configuration: configuration, maximumSDU: 8_192, now: 1)
            try machine.begin()
            let keys = Impostor.Keys(
                shown: claimed.publicKey, own: try DHKeyPair.generate(.x25519),
                victim: victim.publicKey)
            var transcript = NegotiationTranscript(context: [])
            let impostor: Impostor
            if role == .dialer {
                let flight = machine.transmit(now: 1)
                transcript.hello = try #require(try Hello(prefixOf: flight.span)).encoded
                impostor = try Impostor(
                    name, .responder, prologue: transcript.prologue(for: .accept), keys: keys)
                try impostor.read(Array(flight.dropFirst(transcript.hello.count + 2)))
                let message = MaliciousNoisePeer.framed(try impostor.write())
                machine.feed(Answer(.accept).encoded + message, now: 1)
            } else {
                transcript.hello = try Hello(offers: [name.description]).encoded
                impostor = try Impostor(
                    name, .initiator, prologue: transcript.prologue(for: .accept), keys: keys)
                let message = MaliciousNoisePeer.framed(try impostor.write())
                machine.feed(transcript.hello + message, now: 1)
            }
            lengths.append(machine.transmit(now: 1).count)
            // The impostor does not have the key that it claims, so it can seal nothing.
            machine.feed(MaliciousNoisePeer.framed([UInt8](repeating: 1, count: 100)), now: 1)
            let failure = machine.outcome?.code
            #expect(failure == .authenticationFailed)
        }
        #expect(lengths[0] == lengths[1] && lengths[0] > 0)
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
        ownAcceptor.feed(hello, now: pair.now)
        let ownAnswer = ownAcceptor.transmit(now: pair.now)
        #expect(!ownAnswer.isEmpty)
        // The peer answers as well. How the dial ends depends on the peer alone.
        pair.deliver(hello, to: .acceptor)
        pair.deliver(pair.take(.acceptor), to: .dialer)
        pair.dialer.linkEnded(nil, now: pair.now)
        #expect(pair.dialer.outcome?.code == .truncated)
        ownAcceptor.linkEnded(nil, now: pair.now)
        #expect(ownAcceptor.outcome?.code == .truncated)
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
