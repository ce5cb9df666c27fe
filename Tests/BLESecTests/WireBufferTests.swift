import BLESecChannelCore
import Testing

@testable import BLESec

/// What a buffer does with more bytes than it has room for.
@Suite("Wire buffers")
struct WireBufferTests {
    @Test("appending more than a buffer has room for throws, and leaves its bytes unchanged")
    func full() throws {
        var buffer = WireBuffer(pool: WireBufferPool(size: 100))
        try buffer.append([UInt8](repeating: 1, count: 60))
        #expect(throws: ChannelError(.limitExceeded, "")) {
            try buffer.append([UInt8](repeating: 2, count: 41))
        }
        var wasCalled = false
        #expect(throws: ChannelError(.limitExceeded, "")) {
            try buffer.append(room: 41) { _ throws(ChannelError) in wasCalled = true }
        }
        #expect(!wasCalled && buffer.count == 60)
        buffer.consume(59)
        try buffer.append([UInt8](repeating: 2, count: 99))
        #expect(buffer.count == 100)
        #expect(throws: ChannelError(.limitExceeded, "")) { try buffer.append([3]) }
        #expect(buffer.withBytes { $0.span.array } == [1] + [UInt8](repeating: 2, count: 99))
        buffer.removeAll()
        try buffer.append([UInt8](repeating: 4, count: 100))
        #expect(buffer.count == 100)
    }

    @Test("appending more than the outbound buffer has room for leaves the channel usable")
    func tooLong() throws {
        let pair = try PinnedPeers().pair()
        #expect(throws: ChannelError(.limitExceeded, "")) {
            try pair.acceptor.stage?.records.outbound.append([UInt8](repeating: 0, count: 67_000))
        }
        pair.run()
        #expect(pair.isReady)
    }
}
