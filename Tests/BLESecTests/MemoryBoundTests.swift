import BLESecChannelCore
import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESec

@Suite("Memory that a proven peer can take")
struct MemoryBoundTests {
    @Test(
        "each empty message that the program has not taken takes 64 bytes of the read-ahead limit"
    )
    func emptyMessages() throws {
        let peer = try MaliciousNoisePeer.ready { $0.limits.readAhead = 64_000 }
        for _ in 0..<2_000 where peer.victim.wantsBytes { try peer.send(.data) }
        #expect(peer.victim.wantsBytes == false)
        var count = 0
        while peer.victim.nextMessage() != nil { count += 1 }
        #expect(count == 1_000)
        #expect(peer.victim.unreceivedBytes == 0)
    }

    @Test("each empty message that waits to be sent takes 64 bytes of the send-ahead limit")
    func emptyOutgoing() throws {
        let peer = try MaliciousNoisePeer.ready { $0.limits.sendAhead = 64_000 }
        for _ in 0..<2_000 where peer.victim.hasRoom { _ = try peer.victim.queue([]) }
        #expect(peer.victim.hasRoom == false)
        #expect(peer.victim.queued == 1_000)
        try peer.pump()
        #expect(peer.victim.unsealedBytes == 0)
    }

    @Test("complete records that wait because the inbox is full are read when the link ends")
    func drainsWaitingRecords() throws {
        let peer = try MaliciousNoisePeer.ready { $0.limits.readAhead = 1_000 }
        var flood: [UInt8] = []
        for _ in 0..<100 {
            flood += try peer.sealed(RecordType.data.rawValue, Array(repeating: 1, count: 1_400))
        }
        peer.victim.feed(flood, now: peer.now)
        #expect(!peer.victim.wantsBytes && peer.victim.unprocessedBytes > 130_000)
        peer.victim.linkWasLost(now: peer.now)
        #expect(peer.victim.unprocessedBytes == 0 && peer.victim.wantsBytes)
        peer.victim.linkEnded(nil, now: peer.now)
        for _ in 0..<100 { #expect(peer.victim.nextMessage()?.count == 1_400) }
    }

    @Test("messages that are in the link when it ends can be received, even if the inbox was full")
    func hangUpWhileFull() async throws {
        let pinned = try PinnedPeers()
        let loop = EventLoop(name: "test")
        let (first, second) = await loop.run { MemoryLink.pair(loop: loop, capacity: 1_100_000) }
        var acceptorConfiguration = try pinned.configuration(.acceptor)
        acceptorConfiguration.limits.readAhead = 1_000
        async let dialing = SecureChannel.open(
            over: first, role: .dialer, configuration: pinned.configuration(.dialer))
        async let accepting = SecureChannel.open(
            over: second, role: .acceptor, configuration: acceptorConfiguration)
        let (dialer, acceptor) = try await (dialing, accepting)
        let messages = (0..<1_000).map { [UInt8](repeating: UInt8($0 & 0xFF), count: 1_000) }
        // The acceptor's inbox is full after its first read, so the messages that follow stay in
        // the link.
        try await Task(executorPreference: loop) {
            try await dialer.sendAll(messages)
        }.value
        await loop.settle()
        await dialer.abort()
        for index in 0..<1_000 {
            #expect(
                try await acceptor.receive()
                    == [UInt8](repeating: UInt8(index & 0xFF), count: 1_000))
        }
        await #expect(throws: ChannelError(.truncated, "")) { try await acceptor.receive() }
        await loop.shutdown()
    }

    @Test("a message longer than the limit ends the channel, and its memory returns to the budget")
    func tooLong() throws {
        let budget = ReassemblyBudget(bytes: 100_000, share: 100_000)
        let peer = try MaliciousNoisePeer.ready(budget: budget) {
            $0.limits.maximumMessageLength = 50_000
        }
        for _ in 0..<3 { try peer.send(.dataMore, Array(repeating: 1, count: 16_000)) }
        #expect(peer.victimFailure == nil)
        try peer.send(.data, Array(repeating: 1, count: 2_001))
        #expect(peer.victimFailure == .limitExceeded)
        #expect(budget.bytesLeft == 100_000)
    }

    @Test("a message of exactly the limit is received")
    func longest() throws {
        let budget = ReassemblyBudget(bytes: 50_000, share: 50_000)
        let peer = try MaliciousNoisePeer.ready(budget: budget) {
            $0.limits.maximumMessageLength = 50_000
        }
        for _ in 0..<2 {
            for _ in 0..<3 { try peer.send(.dataMore, Array(repeating: 1, count: 16_000)) }
            try peer.send(.data, Array(repeating: 1, count: 2_000))
            #expect(peer.victim.nextMessage()?.count == 50_000)
        }
        #expect(peer.victimFailure == nil)
        #expect(budget.bytesLeft == 50_000)
    }

    @Test(
        "of equally long incomplete messages, the one whose new piece exceeds the budget ends its channel"
    )
    func sharedBudget() throws {
        let budget = ReassemblyBudget(bytes: 50_000, share: 50_000)
        let peers = try (0..<3).map { _ in try MaliciousNoisePeer.ready(budget: budget) }
        for peer in peers { try peer.send(.dataMore, Array(repeating: 1, count: 20_000)) }
        #expect(peers.map(\.victimFailure) == [nil, nil, .limitExceeded])
        try peers[0].send(.data)
        #expect(peers[0].victim.nextMessage()?.count == 20_000)
        try peers[1].send(.dataMore, Array(repeating: 1, count: 30_000))
        #expect(peers[1].victimFailure == nil)
    }
}

extension SecureChannel {
    /// Sends all messages, in order.
    fileprivate func sendAll(_ messages: [[UInt8]]) async throws {
        for message in messages { try await send(message) }
    }
}
