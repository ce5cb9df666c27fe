import BLESecChannelCore
import Testing

@testable import BLESec

@Suite("Noise Pipes")
struct FallbackTests {
    static let pipes = ["Noise_IK_25519_ChaChaPoly_SHA256", "Noise_XX_25519_ChaChaPoly_SHA256"]

    @Test("IK to the acceptor's current key succeeds in four flights")
    func known() throws {
        let pair = try PinnedPeers().pair(Self.pipes)
        pair.run()
        #expect(pair.dialer.isReady && pair.acceptor.isReady)
        #expect(pair.dialer.protocolName == Self.pipes[0])
    }

    @Test("IK to an old key falls back to XX on the same ephemeral, without another flight")
    func oldKey() throws {
        let friends = try PinnedPeers()
        let old = try IdentityKey.generate()
        var dialer = try friends.configuration(.dialer, Self.pipes)
        dialer.trust = .pinned([
            try PeerKey(publicKey: old.publicKey),
            PeerKey(fingerprint: friends.acceptor.fingerprint),
        ])
        let pair = try MachinePair(
            dialer: dialer, acceptor: friends.configuration(.acceptor, Self.pipes))
        pair.run()
        #expect(pair.dialer.isReady && pair.acceptor.isReady)
        #expect(pair.dialer.protocolName == "Noise_XXfallback_25519_ChaChaPoly_SHA256")
        #expect(pair.acceptor.protocolName == pair.dialer.protocolName)
        #expect(pair.dialer.peer?.fingerprint == friends.acceptor.fingerprint)
        #expect(pair.acceptor.peer?.fingerprint == friends.dialer.fingerprint)
        #expect(pair.dialer.handshakeHash == pair.acceptor.handshakeHash)
        #expect(pair.sent[.dialer]?.count == 2 && pair.sent[.acceptor]?.count == 2)
        _ = try pair.dialer.queue([1])
        _ = try pair.acceptor.queue([2])
        pair.run()
        #expect(
            pair.acceptor.takeMessage(now: pair.now) == [1]
                && pair.dialer.takeMessage(now: pair.now) == [2])
    }

    @Test("an acceptor that supports only XX answers an IK dialer with the fallback")
    func onlyXX() throws {
        let friends = try PinnedPeers()
        let pair = try MachinePair(
            dialer: friends.configuration(.dialer, Self.pipes),
            acceptor: friends.configuration(.acceptor, [Self.pipes[1]]))
        pair.run()
        #expect(pair.dialer.isReady && pair.acceptor.isReady)
        #expect(pair.dialer.protocolName == "Noise_XXfallback_25519_ChaChaPoly_SHA256")
    }

    @Test("without XX among the offers an unreadable IK message ends the handshake")
    func noFallback() throws {
        let friends = try PinnedPeers()
        var dialer = try friends.configuration(.dialer, [Self.pipes[0]])
        dialer.trust = .pinned([try PeerKey(publicKey: IdentityKey.generate().publicKey)])
        let pair = try MachinePair(
            dialer: dialer, acceptor: friends.configuration(.acceptor, Self.pipes))
        pair.run()
        guard case .failed(let error) = pair.acceptor.outcome else {
            Issue.record("the acceptor goes on")
            return
        }
        #expect(error.code == .authenticationFailed)
        #expect(pair.sent[.acceptor]?.isEmpty == true)
        let isReady = pair.dialer.isReady
        #expect(!isReady)
    }

    @Test(
        "where ciphers differ and no fallback is possible, a switch costs one more flight each way")
    func switches() throws {
        let friends = try PinnedPeers()
        let offers = ["Noise_KK_25519_AESGCM_SHA256", "Noise_IK_25519_ChaChaPoly_SHA256"]
        let pair = try MachinePair(
            dialer: friends.configuration(.dialer, offers),
            acceptor: friends.configuration(.acceptor, [offers[1]]))
        pair.run()
        #expect(pair.dialer.isReady && pair.acceptor.isReady)
        #expect(pair.dialer.protocolName == offers[1])
    }

    @Test("a fallback to an offer without one breaks the protocol")
    func wrongFallback() throws {
        let friends = try PinnedPeers()
        let offers = ["Noise_XX_25519_ChaChaPoly_SHA256", "Noise_IK_25519_ChaChaPoly_SHA256"]
        let pair = try friends.pair(offers)
        pair.deliver(Answer(.fallback, index: 1).encoded, to: .dialer)
        guard case .failed(let error) = pair.dialer.outcome else {
            Issue.record("the dialer goes on")
            return
        }
        #expect(error.code == .protocolViolation)
    }
}
