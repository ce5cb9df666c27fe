import BLESecChannelCore
import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESec

@Suite("Memory that a proven peer can take")
struct MemoryBoundTests {
    @Test("empty messages that are not received stop the reading, too")
    func emptyMessages() throws {
        let forger = try MaliciousNoisePeer.ready { $0.limits.readAhead = 64_000 }
        for _ in 0..<2_000 where forger.victim.wantsBytes { try forger.send(.data) }
        #expect(forger.victim.wantsBytes == false)
        var count = 0
        while forger.victim.nextMessage() != nil { count += 1 }
        #expect(count == 1_000)
        #expect(forger.victim.unreceivedBytes == 0)
    }

    @Test("empty messages that wait to be sent use up the room for sending")
    func emptyOutgoing() throws {
        let forger = try MaliciousNoisePeer.ready { $0.limits.sendAhead = 64_000 }
        for _ in 0..<2_000 where forger.victim.hasRoom { _ = try forger.victim.queue([]) }
        #expect(forger.victim.hasRoom == false)
        #expect(forger.victim.queued == 1_000)
        try forger.pump()
        #expect(forger.victim.unsealedBytes == 0)
    }

    @Test("complete records that wait behind a full inbox are read when the link ends")
    func drainsWaitingRecords() throws {
        let forger = try MaliciousNoisePeer.ready { $0.limits.readAhead = 1_000 }
        var flood: [UInt8] = []
        for _ in 0..<100 { flood += try forger.sealed(0, Array(repeating: 1, count: 1_400)) }
        forger.victim.arrive(flood, now: forger.now)
        #expect(!forger.victim.wantsBytes && forger.victim.unprocessedBytes > 130_000)
        forger.victim.linkWasLost(now: forger.now)
        #expect(forger.victim.unprocessedBytes == 0 && forger.victim.wantsBytes)
        forger.victim.linkEnded(nil, now: forger.now)
        for _ in 0..<100 { #expect(forger.victim.nextMessage()?.count == 1_400) }
    }

    @Test("a link that ends while the program does not receive loses nothing that it still held")
    func hangUpWhileFull() async throws {
        let friends = try PinnedPeers()
        let loop = EventLoop(name: "test")
        let (first, second) = await loop.run {
            MemoryLink.pair(loop: loop, capacity: 1_100_000)
        }
        var receiving = try friends.configuration(.acceptor)
        receiving.limits.readAhead = 1_000
        async let dialing = SecureChannel.open(
            over: first, role: .dialer, configuration: friends.configuration(.dialer))
        async let accepting = SecureChannel.open(
            over: second, role: .acceptor, configuration: receiving)
        let (dialer, acceptor) = try await (dialing, accepting)
        let messages = (0..<1_000).map { [UInt8](repeating: UInt8($0 & 0xFF), count: 1_000) }
        try await Task(executorPreference: loop) { try await dialer.sendAtOnce(messages) }.value
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

    @Test("a message above the limit ends the channel, and its memory is given back")
    func tooLong() throws {
        let budget = ReassemblyBudget(bytes: 100_000, share: 100_000)
        let forger = try MaliciousNoisePeer.ready(budget: budget) {
            $0.limits.maximumMessageLength = 50_000
        }
        for _ in 0..<3 { try forger.send(.dataMore, Array(repeating: 1, count: 16_000)) }
        #expect(forger.failure == nil)
        try forger.send(.data, Array(repeating: 1, count: 2_001))
        #expect(forger.failure == .limitExceeded)
        #expect(budget.bytesLeft == 100_000)
    }

    @Test("a message of exactly the limit is received")
    func longest() throws {
        let budget = ReassemblyBudget(bytes: 50_000, share: 50_000)
        let forger = try MaliciousNoisePeer.ready(budget: budget) {
            $0.limits.maximumMessageLength = 50_000
        }
        for _ in 0..<2 {
            for _ in 0..<3 { try forger.send(.dataMore, Array(repeating: 1, count: 16_000)) }
            try forger.send(.data, Array(repeating: 1, count: 2_000))
            #expect(forger.victim.nextMessage()?.count == 50_000)
        }
        #expect(forger.failure == nil)
        #expect(budget.bytesLeft == 50_000)
    }

    @Test("incomplete messages on all channels share a budget, and a channel that exceeds it ends")
    func sharedBudget() throws {
        let budget = ReassemblyBudget(bytes: 50_000, share: 50_000)
        let forgers = try (0..<3).map { _ in try MaliciousNoisePeer.ready(budget: budget) }
        for forger in forgers {
            try forger.send(.dataMore, Array(repeating: 1, count: 20_000))
        }
        #expect(forgers.map(\.failure) == [nil, nil, .limitExceeded])
        try forgers[0].send(.data)
        #expect(forgers[0].victim.nextMessage()?.count == 20_000)
        try forgers[1].send(.dataMore, Array(repeating: 1, count: 30_000))
        #expect(forgers[1].failure == nil)
    }
}

extension SecureChannel {
    /// Sends without leaving the loop, so that all messages lie in the link before the other end
    /// reads any.
    fileprivate func sendAtOnce(_ messages: [[UInt8]]) async throws {
        for message in messages { try await send(message) }
    }
}
