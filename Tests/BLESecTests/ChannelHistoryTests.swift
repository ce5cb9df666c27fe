import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESec

@Suite("Two channels to one peer")
struct ChannelHistoryTests {
    static let start = MonotonicTime(nanoseconds: 1_000_000_000_000)

    /// The history of a channel, with its times in milliseconds after ``start``.
    static func history(began: Int, ready: Int, hash: [UInt8]) -> ChannelHistory {
        .init(
            beginTime: start.advanced(by: .milliseconds(began)),
            readyTime: start.advanced(by: .milliseconds(ready)), hash: hash)
    }

    @Test("if two handshakes overlapped, the channel with the lower hash stays")
    func overlapping() {
        let low = Self.history(began: 0, ready: 500, hash: [1, 9])
        let high = Self.history(began: 100, ready: 600, hash: [2, 0])
        #expect(low.stays(insteadOf: high))
        #expect(!high.stays(insteadOf: low))
    }

    @Test("both sides keep the same channel, even if they see times that differ by 1.5 seconds")
    func bothSides() {
        // The second channel begins up to 1.5 seconds before or after the first becomes ready. The
        // two sides may see different orders, so the hashes must decide in either order.
        for shift in stride(from: -1_500, through: 1_500, by: 100) {
            let first = Self.history(began: 0, ready: 2_000, hash: [7])
            let lowerSecond = Self.history(began: 2_000 + shift, ready: 5_000, hash: [5])
            #expect(lowerSecond.stays(insteadOf: first))
            let higherSecond = Self.history(began: 2_000 + shift, ready: 5_000, hash: [9])
            #expect(!higherSecond.stays(insteadOf: first))
        }
    }

    @Test("if two handshakes did not overlap, the newer channel stays")
    func newer() {
        let old = Self.history(began: 0, ready: 500, hash: [0])
        let new = Self.history(began: 60_000, ready: 60_500, hash: [255])
        #expect(new.stays(insteadOf: old))
        #expect(!old.stays(insteadOf: new))
    }

    @Test("a channel's ready time is when its handshake ended, and not when it is compared")
    func readyTime() async throws {
        let fixture = try ChannelFixture()
        let handshakeTime = fixture.clock.now
        let (dialer, acceptor) = try await fixture.channels()
        await fixture.clock.advance(by: .seconds(10))
        for channel in [dialer, acceptor] {
            #expect(await ChannelHistory(of: channel).readyTime == handshakeTime)
            await channel.abort()
        }
        await fixture.finish()
    }
}
