import BLESecChannelCore
import BLESecLocking
import BLESecTesting
import Testing

@testable import BLESec

@Suite("Incomplete messages")
struct ReassemblyTests {
    @Test(
        "when incomplete messages fill the budget, another peer still gets room for a message")
    func share() throws {
        let budget = ReassemblyBudget(bytes: 100_000, share: 60_000)
        let peers = try (0..<4).map { _ in try Self.readyPeer(budget) }
        for peer in peers {
            for _ in 0..<3 where peer.victimFailure == nil {
                try peer.send(.dataMore, Array(repeating: 1, count: 10_000))
            }
        }
        // Each peer has one channel. When the budget is used up, the channel with the largest
        // incomplete message ends, and not the channel of the peer that needs memory.
        let other = try MaliciousNoisePeer.ready(budget: budget)
        for _ in 0..<2 { try other.send(.dataMore, Array(repeating: 1, count: 10_000)) }
        try other.send(.data)
        #expect(other.victimFailure == nil)
        #expect(other.victim.nextMessage()?.count == 20_000)
    }

    @Test("the incomplete messages on all channels of one peer take at most one share")
    func onePeer() throws {
        let pinned = try PinnedPeers()
        let budget = ReassemblyBudget(bytes: 1_000_000, share: 50_000)
        let channels = try (0..<3).map { _ in try Self.readyPeer(budget, pinned: pinned) }
        for channel in channels {
            try channel.send(.dataMore, Array(repeating: 1, count: 16_000))
            try channel.send(.dataMore, Array(repeating: 1, count: 4_000))
        }
        #expect(channels.map(\.victimFailure) == [nil, nil, .limitExceeded])
    }

    @Test("each channel of a peer without a key has a share of its own")
    func peersWithoutKey() {
        let budget = ReassemblyBudget(bytes: 200, share: 60)
        let parts = (0..<3).map { _ in budget.part(for: .anonymous) {} }
        for part in parts { #expect(part.take(60, maximumMessageLength: 0)) }
        #expect(budget.bytesLeft == 20)
    }

    @Test("one message may be as long as the message limit, even if the share is smaller")
    func oneMessage() throws {
        let budget = ReassemblyBudget(bytes: 1_000_000, share: 10_000)
        let peer = try MaliciousNoisePeer.ready(budget: budget) {
            $0.limits.maximumMessageLength = 90_000
        }
        for _ in 0..<9 { try peer.send(.dataMore, Array(repeating: 1, count: 10_000)) }
        #expect(peer.victimFailure == nil)
    }

    @Test("the channel with the largest incomplete message ends when another peer needs the memory")
    func revoked() async throws {
        let budget = ReassemblyBudget(bytes: 100, share: 100)
        let ended = Locked<[String]>([])
        func part(_ name: String) -> ReassemblyBudget.Part {
            budget.part(for: nil) { ended.withLock { $0.append(name) } }
        }
        let (large, middle, small) = (part("large"), part("middle"), part("small"))
        #expect(large.take(60, maximumMessageLength: 0))
        #expect(middle.take(30, maximumMessageLength: 0))
        #expect(small.take(10, maximumMessageLength: 0))
        #expect(small.take(20, maximumMessageLength: 0))
        #expect(ended.withLock { $0 } == ["large"])
        #expect(!large.take(1, maximumMessageLength: 0), "a revoked part gets no more memory")
        #expect(budget.bytesLeft == 40)
        // With 70 more bytes, `middle` would hold the most memory itself, so it gets none.
        #expect(!middle.take(70, maximumMessageLength: 0))
        #expect(ended.withLock { $0 } == ["large"])
        middle.giveBackAll()
        #expect(budget.bytesLeft == 70)
    }

    @Test("a channel whose memory is revoked ends with limitExceeded")
    func revokedChannelEnds() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        await fixture.loop.run {
            acceptor.assumeIsolated { $0.driver.machine.session?.onBudgetRevoked() }
        }
        await fixture.clock.settle()
        #expect(await acceptor.failure == .limitExceeded)
        await dialer.abort()
        await fixture.finish()
    }

    @Test("60 seconds without a new piece of a message end the channel, even if pongs arrive")
    func stalled() throws {
        let peer = try MaliciousNoisePeer.ready()
        try peer.send(.dataMore, [1])
        try peer.keepAlive(for: .seconds(50))
        try peer.send(.dataMore, [1])
        try peer.keepAlive(for: .seconds(59))
        #expect(peer.victimFailure == nil)
        try peer.keepAlive(for: .seconds(2))
        #expect(peer.victimFailure == .timedOut)
    }

    @Test("after the program has not read for five minutes, a new message does not time out")
    func notReading() throws {
        let peer = try MaliciousNoisePeer.ready { $0.limits.readAhead = 1_000 }
        try peer.send(.data, Array(repeating: 1, count: 1_000))
        #expect(peer.victim.wantsBytes == false)
        try peer.passTime(.seconds(300))
        _ = peer.victim.popMessage()
        peer.victim.didResumeReading(now: peer.now)
        try peer.passTime(.seconds(59))
        try peer.send(.dataMore, [1])
        try peer.passTime(.seconds(59))
        try peer.send(.data, [2])
        #expect(peer.victimFailure == nil)
    }

    private static func readyPeer(
        _ budget: ReassemblyBudget, pinned: PinnedPeers? = nil
    ) throws -> MaliciousNoisePeer {
        let peer = try MaliciousNoisePeer(pinned: pinned, budget: budget) {
            $0.limits.maximumMessageLength = 40_000
        }
        try peer.shakeHands()
        try peer.send(.ready, peer.transcript.ready(from: .dialer))
        #expect(peer.isVictimReady)
        return peer
    }
}
