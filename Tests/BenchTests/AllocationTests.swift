import BLESec
import BLESecNoiseEngine
import CAllocationCounter
import Testing

/// What records and messages cost in heap allocations, once everything is warm.
@Suite struct AllocationTests {
    static let protocols = [
        "Noise_XX_25519_ChaChaPoly_SHA256", "Noise_XX_25519_AESGCM_SHA256",
    ]

    @Test(
        "a record costs an engine no allocation, whatever its size",
        .enabled(if: blesec_counts_allocations()), arguments: protocols)
    func engine(_ name: String) throws {
        var pair = try EnginePair(name)
        for size in [0, 64, 255, 256, 384, 1_024, 16_384, Record.maximumPayload] {
            let payload = [UInt8](repeating: 1, count: size)
            // The first record of a kind makes the context for it.
            try pair.pass(payload)
            let before = blesec_allocations()
            for _ in 0..<100 { try pair.pass(payload) }
            #expect(blesec_allocations() == before, "\(size) bytes")
        }
    }

    /// What may be allocated for a piece of news from the link: the way into the channel's
    /// isolation, which the optimizer makes shorter.
    #if DEBUG
        static let perNews = 2
    #else
        static let perNews = 1
    #endif

    /// The loop's thread counts, and everything happens there.
    @Test(
        "a message costs a channel its own bytes and the news of it, and no more the longer it is",
        .enabled(if: blesec_counts_allocations()), arguments: protocols)
    func channel(_ name: String) async throws {
        let loop = EventLoop(name: "test")
        let messages = 3_200
        let counts = try await Task(executorPreference: loop) {
            let (dialer, acceptor) = try await ChannelPair.open(name, loop: loop)
            var counts: [Int: Int] = [:]
            for size in [1, 64, 1_024, 8_000] {
                let message = [UInt8](repeating: 1, count: size)
                for _ in 0..<200 { try await ChannelPair.pass(message, dialer, acceptor) }
                let before = blesec_allocations()
                for _ in 0..<messages { try await ChannelPair.pass(message, dialer, acceptor) }
                counts[size] = Int(blesec_allocations() - before)
            }
            return counts
        }.value
        await loop.shutdown()
        // News: each message, each 32nd one's acknowledgement, and what time brings on a busy
        // machine.
        let news = messages + messages / Int(Record.messagesPerAck) + 32
        for (size, count) in counts {
            #expect(count >= messages, "the counter counts")
            #expect(count <= messages + Self.perNews * news, "\(size) bytes")
        }
    }
}
