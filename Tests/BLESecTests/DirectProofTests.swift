import BLESecChannelCore
import BLESecLinks
import BLESecLocking
import BLESecNoise
import BLESecPrimitives
import BLESecTesting
import Testing

@testable import BLESec

/// Direct mode has no `ready`. If the handshake does not prove the peer, the peer's first transport
/// message does.
@Suite("Proof of the peer in direct mode")
struct DirectProofTests {
    private static func name(_ pattern: String) -> String {
        "Noise_\(pattern)_25519_ChaChaPoly_SHA256"
    }

    /// The configurations of two peers that pin each other's keys and use a pattern in direct mode.
    private static func configurations(
        _ pattern: String, _ pinned: PinnedPeers
    ) throws -> (dialer: ChannelConfiguration, acceptor: ChannelConfiguration) {
        var both = try pinned.configurations(name(pattern))
        both.dialer.mode = .direct
        both.acceptor.mode = .direct
        both.dialer.allowsExposedIdentity = true
        return both
    }

    private static func pair(_ pattern: String) throws -> MachinePair {
        let both = try configurations(pattern, PinnedPeers())
        return try MachinePair(dialer: both.dialer, acceptor: both.acceptor)
    }

    /// Expects that a side waits for its peer's proof, sends nothing meanwhile, reports no peer,
    /// and fails with `unproven` after 60 seconds.
    private static func expectUnproven(_ pair: MachinePair, _ role: ChannelRole) {
        func outcome() -> ChannelError.Code? {
            role == .dialer ? pair.dialer.outcome?.code : pair.acceptor.outcome?.code
        }
        _ = try? role == .dialer ? pair.dialer.queue([1]) : pair.acceptor.queue([1])
        #expect(pair.take(role) == [])
        let isReady = role == .dialer ? pair.dialer.isReady : pair.acceptor.isReady
        #expect(!isReady)
        #expect((role == .dialer ? pair.dialer.peer : pair.acceptor.peer) == nil)
        #expect((role == .dialer ? pair.dialer.phase : pair.acceptor.phase) == .proving)
        pair.passTime(.milliseconds(59_999))
        #expect(outcome() == nil)
        #expect(pair.take(role) == [])
        pair.passTime(.milliseconds(1))
        #expect(outcome() == .unproven)
        #expect((role == .dialer ? pair.dialer.peer : pair.acceptor.peer) == nil)
    }

    // MARK: - Attacks

    @Test(
        "a first message that is replayed proves nothing",
        arguments: ["IK", "KK", "IKpsk1", "NNpsk0", "KNpsk0", "KX", "IX"])
    func replay(pattern: String) throws {
        let both = try Self.configurations(pattern, PinnedPeers())
        let first = try MachinePair(dialer: both.dialer, acceptor: both.acceptor)
        let recorded = first.take(.dialer)
        let second = try MachinePair(dialer: both.dialer, acceptor: both.acceptor)
        second.deliver(recorded, to: .acceptor)
        // The acceptor answers with its own handshake message.
        #expect(second.take(.acceptor).isEmpty == false)
        Self.expectUnproven(second, .acceptor)
    }

    @Test(
        "random bytes, even with a known peer's public key, prove nothing",
        arguments: ["KN", "KX", "IN", "IX", "KK1", "IK1"])
    func randomBytes(pattern: String) throws {
        let pinned = try PinnedPeers()
        let both = try Self.configurations(pattern, pinned)
        let pair = try MachinePair(dialer: both.dialer, acceptor: both.acceptor)
        var random = SeededGenerator(seed: 3)
        var message = random.bytes(32)
        message[31] &= 0x7F
        if pattern.hasPrefix("I") { message += pinned.dialer.publicKey }
        pair.deliver(MaliciousNoisePeer.framed(message), to: .acceptor)
        #expect(pair.take(.acceptor).isEmpty == false)
        Self.expectUnproven(pair, .acceptor)
    }

    @Test(
        "an attacker that has only the acceptor's public key proves nothing to a dialer",
        arguments: ["NX1", "XX1", "KX1", "K1X1", "IX1", "I1X1"])
    func publicKeyAlone(pattern: String) throws {
        let pinned = try PinnedPeers()
        let both = try Self.configurations(pattern, pinned)
        let pair = try MachinePair(dialer: both.dialer, acceptor: both.acceptor)
        let impostor = try Impostor(
            ProtocolName(Self.name(pattern)), .responder, prologue: [],
            keys: .init(shown: pinned.acceptor.publicKey, victim: pinned.dialer.publicKey))
        try impostor.read(Array(pair.take(.dialer).dropFirst(2)))
        pair.deliver(MaliciousNoisePeer.framed(try impostor.write()), to: .dialer)
        // The dialer sends its last handshake message, which the real acceptor could read.
        #expect(pair.take(.dialer).isEmpty == false)
        Self.expectUnproven(pair, .dialer)
    }

    @Test(
        "an attacker with the acceptor's stolen key can compute ss, but proves nothing",
        arguments: ["IK", "KK"])
    func stolen(pattern: String) throws {
        let pinned = try PinnedPeers()
        let both = try Self.configurations(pattern, pinned)
        let pair = try MachinePair(dialer: both.dialer, acceptor: both.acceptor)
        let impostor = try Impostor(
            ProtocolName(Self.name(pattern)), .initiator, prologue: [],
            keys: .init(
                shown: pinned.dialer.publicKey, victim: pinned.acceptor.publicKey,
                stolen: pinned.acceptor.keyPair))
        pair.deliver(MaliciousNoisePeer.framed(try impostor.write()), to: .acceptor)
        #expect(pair.take(.acceptor).isEmpty == false)
        Self.expectUnproven(pair, .acceptor)
    }

    @Test(
        "a replay occupies one handshake place, enrols no peer, and makes no channel ready",
        .timeLimit(.minutes(1)))
    func enrolment() async throws {
        let store = EmptyStore()
        let pinned = try PinnedPeers()
        let both = try Self.configurations("IK", pinned)
        let recorded = try MachinePair(dialer: both.dialer, acceptor: both.acceptor).take(.dialer)
        let fixture = try await ListenerFixture {
            $0 = both.acceptor
            $0.trust = .enrolled(store, window: TrustPolicy.PairingWindow(for: .seconds(600)))
        }
        let attacker = await fixture.rawPeer()
        await attacker.send(recorded)
        // The listener asks the store on another thread, and answers the attacker after that.
        while await attacker.receive().isEmpty {
            try Task.checkCancellation()
            await fixture.clock.settle()
        }
        var load = await fixture.listener.load
        #expect(load.handshakes == 1 && load.ready == 0)
        await fixture.clock.advance(by: .seconds(61))
        await fixture.clock.settle()
        load = await fixture.listener.load
        #expect(load.handshakes == 0 && load.ready == 0)
        #expect(fixture.failures.all == [.unproven])
        #expect(store.boundKeys.withLock { $0 } == [])
        await fixture.finish()
    }

    @Test(
        "if the link ends before the proof, the channel fails with unproven",
        arguments: [true, false])
    func cut(canSend: Bool) throws {
        let both = try Self.configurations("IK", PinnedPeers())
        let pair = try MachinePair(dialer: both.dialer, acceptor: both.acceptor)
        pair.deliver(pair.take(.dialer), to: .acceptor)
        pair.acceptor.linkEnded(nil, canSend: canSend, now: pair.now)
        #expect(pair.acceptor.outcome?.code == .unproven)
    }

    // MARK: - Honest peers

    @Test(
        "two machines prove themselves to each other without messages from their applications",
        arguments: [
            "KN", "KK", "KX", "IN", "IK", "IX", "NX1", "X1N", "XX1", "KX1", "IX1", "XX", "NN",
            "NNpsk0", "NNpsk2", "XXpsk3", "IKpsk2",
        ])
    func byThemselves(pattern: String) throws {
        let pair = try Self.pair(pattern)
        pair.run()
        #expect(pair.isReady)
        // The proof is an empty message. An empty message is also how a direct side ends, so the
        // proof must not be taken for the peer's end, whichever side is ready first.
        #expect([pair.dialer.hasPeerEnded, pair.acceptor.hasPeerEnded] == [false, false])
        let (answer, question) = (
            [UInt8](repeating: 5, count: 70_000), [UInt8](repeating: 6, count: 9)
        )
        _ = try pair.acceptor.queue(answer)
        _ = try pair.dialer.queue(question)
        pair.dialer.end()
        pair.acceptor.end()
        pair.run()
        var received: [UInt8] = []
        while let piece = pair.dialer.nextMessage() { received += piece }
        #expect(received == answer)
        #expect(pair.acceptor.nextMessage() == question)
        #expect(pair.dialer.hasPeerEnded && pair.acceptor.hasPeerEnded)
    }

    @Test("one complete transport message is the proof, even if it is empty")
    func proof() throws {
        for length in [0, 1, 40_000, 65_519] {
            let pinned = try PinnedPeers()
            let both = try Self.configurations("IX", pinned)
            let pair = try MachinePair(dialer: both.dialer, acceptor: both.acceptor)
            let peer = try Impostor(
                ProtocolName(Self.name("IX")), .initiator, prologue: [],
                keys: .init(
                    shown: pinned.dialer.publicKey, own: pinned.dialer.keyPair,
                    victim: pinned.acceptor.publicKey))
            pair.deliver(MaliciousNoisePeer.framed(try peer.write()), to: .acceptor)
            try peer.read(Array(pair.take(.acceptor).dropFirst(2)))
            let message = [UInt8](repeating: 4, count: length)
            let sealed = try peer.seal(message)
            pair.deliver(Array(sealed.dropLast()), to: .acceptor, piece: 10_000)
            var isReady = pair.acceptor.isReady
            #expect(!isReady && pair.acceptor.outcome == nil)
            pair.deliver(sealed.suffix(1), to: .acceptor)
            isReady = pair.acceptor.isReady
            #expect(isReady)
            #expect(pair.acceptor.peer == .publicKey(pinned.dialer.publicKey, curve: .x25519))
            #expect(pair.acceptor.nextMessage() == (length == 0 ? nil : message))
            #expect(pair.acceptor.hasPeerEnded == false)
            pair.deliver(try peer.seal([]), to: .acceptor)
            #expect(pair.acceptor.hasPeerEnded == true)
        }
    }

    @Test("a first transport message that does not authenticate ends the channel")
    func forgedProof() throws {
        let both = try Self.configurations("KN", PinnedPeers())
        let pair = try MachinePair(dialer: both.dialer, acceptor: both.acceptor)
        pair.deliver(pair.take(.dialer), to: .acceptor)
        pair.deliver(MaliciousNoisePeer.framed([UInt8](repeating: 0, count: 16)), to: .acceptor)
        #expect(pair.acceptor.outcome?.code == .authenticationFailed)
    }

    @Test("the byte limit of an unproven peer rises by the length of the longest transport message")
    func byteLimit() throws {
        var both = try Self.configurations("KN", PinnedPeers())
        both.acceptor.limits.unauthenticatedBytes = 4_096
        let pair = try MachinePair(dialer: both.dialer, acceptor: both.acceptor)
        #expect(pair.acceptor.unauthenticatedLimit == 4_096)
        pair.deliver(pair.take(.dialer), to: .acceptor)
        #expect(pair.acceptor.unauthenticatedLimit == 4_096 + 2 + 65_535)
        pair.deliver(
            [0xFF, 0xFF] + [UInt8](repeating: 0, count: 65_534), to: .acceptor, piece: 1_000)
        #expect(pair.acceptor.outcome == nil)
        pair.deliver([0], to: .acceptor)
        #expect(pair.acceptor.outcome?.code == .authenticationFailed)
    }

    @Test("the time limit for the proof can be configured")
    func deadline() throws {
        var both = try Self.configurations("IK", PinnedPeers())
        both.acceptor.timeouts.proof = .seconds(3)
        let pair = try MachinePair(dialer: both.dialer, acceptor: both.acceptor)
        pair.deliver(pair.take(.dialer), to: .acceptor)
        pair.passTime(.milliseconds(2_999))
        #expect(pair.acceptor.outcome == nil)
        pair.passTime(.milliseconds(1))
        #expect(pair.acceptor.outcome?.code == .unproven)
    }
}

/// A store that knows no peers, and records the keys that it was told to bind.
private final class EmptyStore: TrustStore {
    let boundKeys = Locked<[Fingerprint]>([])
    func key(named name: String) -> Fingerprint? { nil }
    func bind(_ name: String, to key: Fingerprint) { boundKeys.withLock { $0.append(key) } }
    func contains(_ key: Fingerprint) -> Bool { false }
}
