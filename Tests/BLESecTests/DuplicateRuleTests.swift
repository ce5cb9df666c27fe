import BLESecLinks
import Testing

@testable import BLESec

@Suite("two channels to one peer")
struct DuplicateRuleTests {
    static let start = MonotonicTime(nanoseconds: 1_000_000_000_000)

    static func side(_ began: Int, _ ready: Int, _ hash: [UInt8]) -> DuplicateRule.Side {
        .init(
            began: start.advanced(by: .milliseconds(began)),
            ready: start.advanced(by: .milliseconds(ready)), hash: hash)
    }

    @Test("of two whose handshakes overlapped the lower hash stays, whichever was ready first")
    func overlapping() {
        let low = Self.side(0, 500, [1, 9])
        let high = Self.side(100, 600, [2, 0])
        #expect(DuplicateRule.keeps(low, insteadOf: high))
        #expect(!DuplicateRule.keeps(high, insteadOf: low))
    }

    @Test("both sides keep the same one, though each saw the times a little differently")
    func bothSides() {
        // One side has seen the first ready before the second began, the other one after it.
        for shift in stride(from: -1_500, through: 1_500, by: 100) {
            let first = Self.side(0, 2_000, [7])
            let second = Self.side(2_000 + shift, 5_000, [5])
            #expect(DuplicateRule.keeps(second, insteadOf: first))
            let third = Self.side(2_000 + shift, 5_000, [9])
            #expect(!DuplicateRule.keeps(third, insteadOf: first))
        }
    }

    @Test("of two whose handshakes did not overlap the newer stays")
    func newer() {
        let old = Self.side(0, 500, [0])
        let new = Self.side(60_000, 60_500, [255])
        #expect(DuplicateRule.keeps(new, insteadOf: old))
    }
}
