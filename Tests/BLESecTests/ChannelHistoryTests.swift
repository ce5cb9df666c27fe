import BLESecLinks
import Testing

@testable import BLESec

@Suite("Two channels to one peer")
struct ChannelHistoryTests {
    static let start = MonotonicTime(nanoseconds: 1_000_000_000_000)

    static func side(_ began: Int, _ ready: Int, _ hash: [UInt8]) -> ChannelHistory {
        .init(
            began: start.advanced(by: .milliseconds(began)),
            ready: start.advanced(by: .milliseconds(ready)), hash: hash)
    }

    @Test("if two handshakes overlapped, the channel with the lower hash stays")
    func overlapping() {
        let low = Self.side(0, 500, [1, 9])
        let high = Self.side(100, 600, [2, 0])
        #expect(low.stays(insteadOf: high))
        #expect(!high.stays(insteadOf: low))
    }

    @Test("both sides keep the same channel, even if they saw slightly different times")
    func bothSides() {
        // One side saw the first `ready` before the second handshake began, the other side after
        // it.
        for shift in stride(from: -1_500, through: 1_500, by: 100) {
            let first = Self.side(0, 2_000, [7])
            let second = Self.side(2_000 + shift, 5_000, [5])
            #expect(second.stays(insteadOf: first))
            let third = Self.side(2_000 + shift, 5_000, [9])
            #expect(!third.stays(insteadOf: first))
        }
    }

    @Test("if two handshakes did not overlap, the newer channel stays")
    func newer() {
        let old = Self.side(0, 500, [0])
        let new = Self.side(60_000, 60_500, [255])
        #expect(new.stays(insteadOf: old))
    }
}
