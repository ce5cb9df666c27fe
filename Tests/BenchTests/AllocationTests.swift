import BLESec
import BLESecNoiseEngine
import CAllocationCounter
import Testing

/// Heap allocations for records and messages, after a warm-up.
@Suite struct AllocationTests {
    static let protocols = [
        "Noise_XX_25519_ChaChaPoly_SHA256", "Noise_XX_25519_AESGCM_SHA256",
    ]

    @Test(
        "an engine makes no allocation for a record, except for the first of each size",
        .enabled(if: blesec_counts_allocations()), arguments: protocols)
    func engine(_ name: String) throws {
        var pair = try EnginePair(name)
        for size in [0, 64, 255, 256, 384, 1_024, 16_384, Record.maximumPayload] {
            let payload = [UInt8](repeating: 1, count: size)
            // The first record of a size may create a context.
            try pair.pass(payload)
            let countBefore = blesec_allocations()
            for _ in 0..<100 { try pair.pass(payload) }
            #expect(blesec_allocations() == countBefore, "\(size) bytes")
        }
    }

    /// The maximum number of allocations per event on the loop. A call allocates when it enters the
    /// channel's isolation; an optimized build makes fewer.
    #if DEBUG
        static let allocationsPerEvent = 2
    #else
        static let allocationsPerEvent = 1
    #endif

    /// Allocations are counted on the loop's thread, where all work runs.
    @Test(
        "a channel's allocations for a message do not grow with the message's length",
        .enabled(if: blesec_counts_allocations()), arguments: protocols)
    func channel(_ name: String) async throws {
        let loop = EventLoop(name: "test")
        let messageCount = 3_200
        let counts = try await Task(executorPreference: loop) {
            let (dialer, acceptor) = try await ChannelPair.open(name, loop: loop)
            var counts: [Int: Int] = [:]
            for size in [1, 64, 1_024, 8_000] {
                let message = [UInt8](repeating: 1, count: size)
                for _ in 0..<200 { try await ChannelPair.pass(message, from: dialer, to: acceptor) }
                let countBefore = blesec_allocations()
                for _ in 0..<messageCount {
                    try await ChannelPair.pass(message, from: dialer, to: acceptor)
                }
                counts[size] = Int(blesec_allocations() - countBefore)
            }
            return counts
        }.value
        await loop.shutdown()
        // A received message takes one allocation for its array; an event takes at most
        // `allocationsPerEvent`. Events are the messages, an acknowledgement for every 32nd message,
        // and timers, of which a busy machine fires some.
        let timerAllowance = 32
        let events =
            messageCount + messageCount / Int(Record.messagesPerAck) + timerAllowance
        for (size, count) in counts {
            #expect(count >= messageCount, "allocations of received messages were not counted")
            #expect(count <= messageCount + Self.allocationsPerEvent * events, "\(size) bytes")
        }
    }
}
