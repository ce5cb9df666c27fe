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
