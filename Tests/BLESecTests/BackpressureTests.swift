import BLESecChannelCore
import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESec

@Suite("Backpressure")
struct BackpressureTests {
    @Test("a sender waits while its peer receives nothing; memory is bounded and nothing is lost")
    func receivesNothing() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels(capacity: 20_000) { _, configuration in
            configuration.limits.readAhead = 30_000
            configuration.limits.sendAhead = 10_000
        }
        let sending = Task(executorPreference: fixture.loop) {
            for index in 0..<500 {
                try await dialer.send([UInt8](repeating: UInt8(index & 0xFF), count: 1_000))
            }
        }
        await fixture.clock.settle()
        // The link and the buffers of both sides hold about 60 messages of 1,000 bytes. The limit
        // of 120 allows twice as many.
        let queued = await dialer.traffic.queuedMessages
        #expect(queued < 120)
        #expect(await dialer.traffic.unsealedBytes <= 12_000)
        #expect(await acceptor.traffic.unreceivedBytes <= 32_000)
        // In an hour neither side times out, and nothing more is queued.
        await fixture.clock.advance(by: .seconds(3_600))
        #expect(await dialer.traffic.queuedMessages == queued)
        #expect(await dialer.failure == nil)
        #expect(await acceptor.failure == nil)
        for index in 0..<500 {
            #expect(
                try await acceptor.receive()
                    == [UInt8](repeating: UInt8(index & 0xFF), count: 1_000))
        }
        try await sending.value
    }

    @Test("when the kernel has no memory for a send, the send is repeated after 20 ms")
    func noMemory() async throws {
        let fixture = try ChannelFixture()
        let (near, far) = await fixture.links()
        let link = CountingLink(near)
        let dialer = try fixture.channel(over: link, .dialer)
        let acceptor = try fixture.channel(over: far, .acceptor)
        for opening in [fixture.opening(dialer), fixture.opening(acceptor)] {
            try await opening.value
        }
        let attemptsBefore = await fixture.loop.run { () -> Int in
            link.failuresLeft = 3
            return link.attempts
        }
        for index in 0..<10 as Range<UInt8> { try await dialer.send([index]) }
        for attempts in 1...3 {
            await fixture.clock.settle()
            #expect(await fixture.loop.run { link.attempts } == attemptsBefore + attempts)
            #expect(await acceptor.traffic.unreceivedBytes == 0)
            await fixture.clock.advance(by: .milliseconds(20))
        }
        for index in 0..<10 as Range<UInt8> { #expect(try await acceptor.receive() == [index]) }
        #expect(await dialer.failure == nil)
        // A channel that ends does not wait for another attempt: `fixture.finish` expects that no
        // timer is left.
        await fixture.loop.run { link.failuresLeft = .max }
        try await dialer.send([10])
        await fixture.clock.settle()
        await dialer.abort()
        await acceptor.abort()
        await fixture.finish()
    }

    @Test("a message longer than every buffer arrives if the peer waits for it")
    func longMessage() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels(capacity: 20_000) { _, configuration in
            configuration.limits.readAhead = 30_000
            configuration.limits.sendAhead = 10_000
        }
        let message = [UInt8](repeating: 9, count: 1_000_000)
        let sending = Task(executorPreference: fixture.loop) { try await dialer.send(message) }
        #expect(try await acceptor.receive() == message)
        try await sending.value
    }

    @Test("if both sides at once send more than all buffers hold, every message arrives")
    func bothWays() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels(capacity: 20_000) { _, configuration in
            configuration.limits.readAhead = 30_000
            configuration.limits.sendAhead = 10_000
        }
        let tasks = [dialer, acceptor].flatMap { channel in
            [
                Task(executorPreference: fixture.loop) {
                    for index in 0..<300 {
                        try await channel.send([UInt8](repeating: UInt8(index & 0xFF), count: 777))
                    }
                },
                Task(executorPreference: fixture.loop) {
                    for index in 0..<300 {
                        let message = try await channel.receive()
                        #expect(message == [UInt8](repeating: UInt8(index & 0xFF), count: 777))
                    }
                },
            ]
        }
        for task in tasks { try await task.value }
    }
}
