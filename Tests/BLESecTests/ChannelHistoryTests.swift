import BLESecLinks
import Testing

@testable import BLESec

@Suite("Two channels to one peer")
struct ChannelHistoryTests {
    static let start = MonotonicTime(nanoseconds: 1_000_000_000_000)

    /// The history of a channel, with its times in milliseconds after ``start``.
    static func history(_ began: Int, _ ready: Int, _ hash: [UInt8]) -> ChannelHistory {
        .init(
            began: start.advanced(by: .milliseconds(began)),
            ready: start.advanced(by: .milliseconds(ready)), hash: hash)
    }

    @Test("if two handshakes overlapped, the channel with the lower hash stays")
    func overlapping() {
        let low = Self.history(0, 500, [1, 9])
        let high = Self.history(100, 600, [2, 0])
        #expect(low.stays(insteadOf: high))
        #expect(!high.stays(insteadOf: low))
    }

    @Test("both sides keep the same channel, even if they see times that differ by 1.5 seconds")
    func bothSides() {
        // The second channel begins up to 1.5 seconds before or after the first becomes ready: each
        // side may see a different order.
        for shift in stride(from: -1_500, through: 1_500, by: 100) {
            let first = Self.history(0, 2_000, [7])
            let second = Self.history(2_000 + shift, 5_000, [5])
            #expect(second.stays(insteadOf: first))
            let third = Self.history(2_000 + shift, 5_000, [9])
            #expect(!third.stays(insteadOf: first))
        }
    }

    @Test("if two handshakes did not overlap, the newer channel stays")
    func newer() {
        let old = Self.history(0, 500, [0])
        let new = Self.history(60_000, 60_500, [255])
        #expect(new.stays(insteadOf: old))
    }
}
