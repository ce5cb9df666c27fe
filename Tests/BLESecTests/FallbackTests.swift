import BLESecChannelCore
import Testing

@testable import BLESec

@Suite("Noise Pipes")
struct FallbackTests {
    static let pipes = ["Noise_IK_25519_ChaChaPoly_SHA256", "Noise_XX_25519_ChaChaPoly_SHA256"]

    @Test("IK to the acceptor's current key needs no fallback")
    func known() throws {
        let pair = try PinnedPeers().pair(Self.pipes)
        pair.run()
        #expect(pair.dialer.isReady && pair.acceptor.isReady)
        #expect(pair.dialer.protocolName == Self.pipes[0])
    }

    @Test("IK to an old key falls back to XX, and each side still sends two flights")
    func oldKey() throws {
        let pinned = try PinnedPeers()
        let old = try IdentityKey.generate()
        var dialer = try pinned.configuration(.dialer, Self.pipes)
        dialer.trust = .pinned([
            try PeerKey(publicKey: old.publicKey),
            PeerKey(fingerprint: pinned.acceptor.fingerprint),
        ])
        let pair = try MachinePair(
            dialer: dialer, acceptor: pinned.configuration(.acceptor, Self.pipes))
        pair.run()
        #expect(pair.dialer.isReady && pair.acceptor.isReady)
        #expect(pair.dialer.protocolName == "Noise_XXfallback_25519_ChaChaPoly_SHA256")
        #expect(pair.acceptor.protocolName == pair.dialer.protocolName)
        #expect(pair.dialer.peer?.fingerprint == pinned.acceptor.fingerprint)
        #expect(pair.acceptor.peer?.fingerprint == pinned.dialer.fingerprint)
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
        let pinned = try PinnedPeers()
        let pair = try MachinePair(
            dialer: pinned.configuration(.dialer, Self.pipes),
            acceptor: pinned.configuration(.acceptor, [Self.pipes[1]]))
        pair.run()
        #expect(pair.dialer.isReady && pair.acceptor.isReady)
        #expect(pair.dialer.protocolName == "Noise_XXfallback_25519_ChaChaPoly_SHA256")
    }

    @Test("if the dialer does not offer XX, an IK message that cannot be read ends the handshake")
    func noFallback() throws {
        let pinned = try PinnedPeers()
        var dialer = try pinned.configuration(.dialer, [Self.pipes[0]])
        dialer.trust = .pinned([try PeerKey(publicKey: IdentityKey.generate().publicKey)])
        let pair = try MachinePair(
            dialer: dialer, acceptor: pinned.configuration(.acceptor, Self.pipes))
        pair.run()
        guard case .failed(let error) = pair.acceptor.outcome else {
            Issue.record("the acceptor has not failed")
            return
        }
        #expect(error.code == .authenticationFailed)
        #expect(pair.sent[.acceptor]?.isEmpty == true)
        let isReady = pair.dialer.isReady
        #expect(!isReady)
    }

    @Test(
        "an acceptor switches to a second offer that is not XX, since only XX has a fallback")
    func switches() throws {
        let pinned = try PinnedPeers()
        let offers = ["Noise_KK_25519_AESGCM_SHA256", "Noise_IK_25519_ChaChaPoly_SHA256"]
        let pair = try MachinePair(
            dialer: pinned.configuration(.dialer, offers),
            acceptor: pinned.configuration(.acceptor, [offers[1]]))
        pair.run()
        #expect(pair.dialer.isReady && pair.acceptor.isReady)
        #expect(pair.dialer.protocolName == offers[1])
    }

    @Test("a dialer fails if the answer is a fallback to an offer that is not XX")
    func wrongFallback() throws {
        let pinned = try PinnedPeers()
        let offers = ["Noise_XX_25519_ChaChaPoly_SHA256", "Noise_IK_25519_ChaChaPoly_SHA256"]
        let pair = try pinned.pair(offers)
        pair.deliver(Answer(.fallback, index: 1).encoded, to: .dialer)
        guard case .failed(let error) = pair.dialer.outcome else {
            Issue.record("the dialer has not failed")
            return
        }
        #expect(error.code == .protocolViolation)
    }
}
