import BLESecChannelCore
import Testing

@testable import BLESec

@Suite("The handshake of two machines")
struct HandshakeTests {
    static let protocols = [
        "Noise_XX_25519_ChaChaPoly_SHA256", "Noise_XX_25519_AESGCM_SHA256",
        "Noise_IK_25519_ChaChaPoly_SHA256", "Noise_KK_25519_ChaChaPoly_SHA256",
    ]

    @Test("both sides become ready, and each reports the other's key", arguments: protocols)
    func becomeReady(name: String) throws {
        let pinned = try PinnedPeers()
        let pair = try pinned.pair([name])
        pair.run()
        #expect(pair.dialer.isReady && pair.acceptor.isReady)
        #expect(pair.dialer.peer?.fingerprint == pinned.acceptor.fingerprint)
        #expect(pair.acceptor.peer?.fingerprint == pinned.dialer.fingerprint)
        #expect(pair.dialer.handshakeHash == pair.acceptor.handshakeHash)
        #expect(!pair.dialer.handshakeHash.isEmpty)
    }

    @Test("XX takes four flights, and each travels as one SDU")
    func flights() throws {
        let pair = try PinnedPeers().pair()
        pair.run()
        #expect(pair.sent[.dialer]?.count == 2)
        #expect(pair.sent[.acceptor]?.count == 2)
    }

    @Test("a handshake whose bytes arrive one by one succeeds", arguments: protocols)
    func bytewise(name: String) throws {
        let pair = try PinnedPeers().pair([name])
        pair.run(piece: 1)
        #expect(pair.dialer.isReady && pair.acceptor.isReady)
    }

    @Test("messages go both ways, and each is acknowledged 50 ms after the program has taken it")
    func messages() throws {
        let pair = try PinnedPeers().pair()
        pair.run()
        let first = try pair.dialer.queue([1, 2, 3])
        let second = try pair.acceptor.queue([])
        pair.run()
        #expect(pair.acceptor.takeMessage(now: pair.now) == [1, 2, 3])
        #expect(pair.dialer.takeMessage(now: pair.now) == [])
        #expect(pair.dialer.acknowledged == 0 && pair.acceptor.acknowledged == 0)
        pair.passTime(.milliseconds(50))
        pair.run()
        #expect(pair.dialer.acknowledged == first && pair.acceptor.acknowledged == second)
    }

    @Test("the channel completes when the end record of each side is sent and acknowledged")
    func completes() throws {
        let pair = try PinnedPeers().pair()
        pair.run()
        _ = try pair.dialer.queue(Array(repeating: 7, count: 100_000))
        pair.dialer.end()
        pair.acceptor.end()
        pair.run()
        #expect(pair.dialer.permittedLinkShutdown(canHalfClose: false, now: pair.now) == .stay)
        #expect(pair.acceptor.takeMessage(now: pair.now)?.count == 100_000)
        pair.run()
        #expect(
            pair.dialer.permittedLinkShutdown(canHalfClose: false, now: pair.now)
                == .closeWhenDrained)
        pair.dialer.didCloseLink()
        pair.acceptor.linkEnded(nil, now: pair.now)
        guard case .complete = pair.dialer.outcome, case .complete = pair.acceptor.outcome else {
            Issue.record("\(String(describing: pair.acceptor.outcome))")
            return
        }
    }
}

@Suite("Long messages")
struct BulkTests {
    @Test(
        "a message of 3,000,000 bytes arrives complete with SDUs of 1,000 to 32,768 bytes",
        arguments: [1_000, 8_192, 32_768])
    func long(sdu: Int) throws {
        let pair = try PinnedPeers().pair(maximumSDU: sdu)
        pair.run()
        let message = (0..<3_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }
        _ = try pair.dialer.queue(message)
        pair.run(piece: 40_000)
        #expect(pair.acceptor.outcome == nil)
        #expect(pair.acceptor.takeMessage(now: pair.now) == message)
    }
}
