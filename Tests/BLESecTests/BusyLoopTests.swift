import BLESecChannelCore
import BLESecLinks
import BLESecTesting
import Glibc
import Testing

@testable import BLESec

/// Channels on a loop that has much to do, or whose thread stops.
@Suite("Busy loops", .timeLimit(.minutes(2)))
struct BusyLoopTests {
    /// The two ends of a ready channel over a socket pair. `faults` apply to the acceptor's end of
    /// the link; `change` changes the dialer's configuration.
    private static func channel(
        _ pinned: PinnedPeers, _ loop: EventLoop, faults: [Fault] = [],
        change: (inout ChannelConfiguration) -> Void = { _ in }
    ) async throws -> (dialer: SecureChannel, acceptor: SecureChannel) {
        let (near, far) = try await SocketLink.pair(.stream, loop: loop)
        var configuration = try pinned.configuration(.dialer)
        change(&configuration)
        let reader: any Link = faults.isEmpty ? far : FaultyLink(far, faults)
        async let dialed = SecureChannel.open(
            over: near, role: .dialer, configuration: configuration)
        async let accepted = SecureChannel.open(
            over: reader, role: .acceptor, configuration: try pinned.configuration(.acceptor))
        return try await (dialed, accepted)
    }

    private static func receiveAll(_ channel: SecureChannel) async throws -> [[UInt8]] {
        var messages: [[UInt8]] = []
        while let batch = try await channel.receive(upTo: 64) { messages += batch }
        return messages
    }

    @Test("a peer that reads one byte at a time delays no other channel, and loses nothing")
    func slowReader() async throws {
        let loop = EventLoop(name: "busy")
        let pinned = try PinnedPeers()
        let slow = try await Self.channel(pinned, loop, faults: [.shortReads(1)]) {
            $0.limits.sendAhead = 2_000
        }
        var busy: [(dialer: SecureChannel, acceptor: SecureChannel)] = []
        for _ in 0..<100 { busy.append(try await Self.channel(pinned, loop)) }
        let slowMessages = (0..<40).map { [UInt8](repeating: $0, count: 1_000) }
        let slowSending = Task(executorPreference: loop) {
            try await slow.dialer.send(contentsOf: slowMessages)
            try await slow.dialer.finish()
        }
        let slowReceiving = Task(executorPreference: loop) {
            try await Self.receiveAll(slow.acceptor)
        }
        let messages = (0..<64).map { [UInt8](repeating: $0, count: 1_000) }
        try await withThrowingTaskGroup { group in
            for (dialer, acceptor) in busy {
                group.addTask(executorPreference: loop) {
                    try await dialer.send(contentsOf: messages)
                    try await dialer.finish()
                }
                group.addTask(executorPreference: loop) {
                    let received = try await Self.receiveAll(acceptor)
                    #expect(received == messages)
                }
            }
            try await group.waitForAll()
        }
        // The slow peer has not read everything yet. The dialer holds at most `sendAhead` bytes and
        // one message, which counts as 1,064 bytes.
        #expect(await slow.acceptor.lastReceived < 40)
        #expect(await slow.dialer.traffic.unsealedBytes <= 3_064)
        let received = try await slowReceiving.value
        #expect(received == slowMessages)
        try await slowSending.value
        for (dialer, acceptor) in busy + [slow] {
            await dialer.abort()
            await acceptor.abort()
        }
        await loop.shutdown()
    }

    @Test("a million messages of 0 bytes wait in bounded memory, and all of them arrive")
    func emptyMessages() async throws {
        let loop = EventLoop(name: "busy")
        let (dialer, acceptor) = try await Self.channel(try PinnedPeers(), loop)
        let count = 1_000_000
        let sending = Task(executorPreference: loop) {
            let messages = [[UInt8]](repeating: [], count: 1_000)
            for _ in 0..<count / 1_000 { try await dialer.send(contentsOf: messages) }
            try await dialer.finish()
        }
        // Waits until the sender is blocked: then the number of queued messages stays the same.
        var queued: UInt64 = 0
        repeat {
            queued = await dialer.traffic.queuedMessages
            try await loop.sleep(for: .milliseconds(50))
        } while await dialer.traffic.queuedMessages != queued
        // In both buffers each message counts as 64 bytes, and a socket holds some 200 KiB of
        // records.
        let limits = ChannelLimits()
        #expect(await dialer.traffic.unsealedBytes <= limits.sendAhead)
        #expect(await acceptor.traffic.unreceivedBytes <= limits.readAhead + (32 << 10))
        #expect(queued < 60_000)
        var received = 0
        while let batch = try await acceptor.receive(upTo: 1_000) {
            received += batch.count { $0.isEmpty }
        }
        #expect(received == count)
        try await sending.value
        await dialer.abort()
        await acceptor.abort()
        await loop.shutdown()
    }

    /// Sends until the link and the buffers of both sides are full in both directions. Returns the
    /// tasks that send; each goes on until its channel ends.
    private static func fill(
        _ channels: [SecureChannel], _ loop: EventLoop
    ) async throws -> [Task<Void, any Error>] {
        let tasks = channels.map { channel in
            Task(executorPreference: loop) {
                while true { try await channel.send([UInt8](repeating: 7, count: 10_000)) }
            }
        }
        for channel in channels {
            var queued: UInt64 = 0
            repeat {
                queued = await channel.traffic.queuedMessages
                try await loop.sleep(for: .milliseconds(50))
            } while await channel.traffic.queuedMessages != queued
        }
        return tasks
    }

    @Test("a lost link whose messages wait for the program does not keep the loop busy")
    func lostWhileFull() async throws {
        let loop = EventLoop(name: "busy")
        let pinned = try PinnedPeers()
        let (near, far) = await loop.run { MemoryLink.pair(loop: loop, capacity: 4 << 20) }
        async let dialed = SecureChannel.open(
            over: near, role: .dialer, configuration: try pinned.configuration(.dialer))
        async let accepted = SecureChannel.open(
            over: far, role: .acceptor, configuration: try pinned.configuration(.acceptor))
        let (dialer, acceptor) = try await (dialed, accepted)
        let tasks = try await Self.fill([dialer, acceptor], loop)
        await acceptor.abort()
        let turn = await loop.run { loop.turn }
        try await loop.sleep(for: .milliseconds(200))
        #expect(await loop.run { loop.turn } < turn + 100)
        // More waits in the link than the dialer reads ahead. So the dialer reaches the end of the
        // link, and fails, only after its program has received messages.
        #expect(await dialer.failure == nil)
        await #expect(throws: ChannelError(.truncated, "")) { try await Self.receiveAll(dialer) }
        for task in tasks { #expect(await failure(of: task) != nil) }
        await dialer.abort()
        await loop.shutdown()
    }

    @Test("a side learns of a lost link even if its buffers are full after a failed delivery")
    func lostAfterWaiting() async throws {
        let loop = EventLoop(name: "busy")
        let (dialer, acceptor) = try await Self.channel(try PinnedPeers(), loop)
        let delivering = Task(executorPreference: loop) {
            _ = try await dialer.deliver([1], within: .seconds(600))
        }
        let tasks = try await Self.fill([dialer, acceptor], loop)
        #expect(await failure(of: delivering) == .limitExceeded)
        await acceptor.abort()
        for task in tasks { #expect(await failure(of: task) != nil) }
        await dialer.abort()
        await loop.shutdown()
    }

    @Test("a loop whose thread stopped for 5 s reads what has arrived before it checks for silence")
    func stoppedThread() async throws {
        let pinned = try PinnedPeers()
        let loops = (0..<2).map { EventLoop(name: "loop \($0)") }
        let path = "/tmp/blesec-test-\(UInt64.random(in: 0...UInt64.max)).sock"
        var configuration = try pinned.configuration(.acceptor)
        configuration.timeouts.idle = .seconds(3)
        let listener = try await SecureListener.listen(
            on: try Endpoint(parsing: "unix:\(path)"), configuration: configuration, loop: loops[0])
        async let dialing = SecureChannel.dial(
            listener.localEndpoint, configuration: pinned.configuration(.dialer), loop: loops[1])
        let accepted = try await listener.accept()
        let dialed = try await dialing
        let receiving = Task(executorPreference: loops[0]) { try await Self.receiveAll(accepted) }
        // The channel reads this message before its thread stops. So when the thread continues,
        // timers of the channel are due, and the channel's last read has found the socket empty.
        try await dialed.send([0])
        try await loops[0].sleep(for: .milliseconds(200))
        loops[0].execute { sleep(5) }
        for second in 1...4 {
            try await dialed.send([UInt8(second)])
            try await loops[1].sleep(for: .seconds(1))
        }
        try await dialed.finish()
        let received = try await receiving.value
        #expect(received == (0...4).map { [$0] })
        async let closing: Void = accepted.close()
        try await dialed.close()
        try await closing
        await listener.close()
        for loop in loops { await loop.shutdown() }
    }
}
