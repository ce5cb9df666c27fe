import BLESec
import CAllocationCounter
import NoiseEngine
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

    /// The loop's thread counts, and everything happens there.
    @Test(
        "a message costs a channel a few allocations, and no more the longer it is",
        .enabled(if: blesec_counts_allocations()), arguments: protocols)
    func channel(_ name: String) async throws {
        let loop = EventLoop(name: "test")
        let counts = try await Task(executorPreference: loop) {
            let (dialer, acceptor) = try await ChannelPair.open(name, loop: loop)
            var counts: [Int: Double] = [:]
            for size in [0, 64, 1_024, 8_192, 16_384] {
                let message = [UInt8](repeating: 1, count: size)
                for _ in 0..<200 { try await ChannelPair.pass(message, dialer, acceptor) }
                let before = blesec_allocations()
                for _ in 0..<1_000 { try await ChannelPair.pass(message, dialer, acceptor) }
                counts[size] = Double(blesec_allocations() - before) / 1_000
            }
            return counts
        }.value
        await loop.shutdown()
        for (size, count) in counts { #expect(count <= 12, "\(size) bytes") }
    }
}
