import Testing

@testable import BLESecFiles

/// The rate of a transfer, and the time that is left.
@Suite("Files: the rate meter")
struct RateMeterTests {
    private let start = ContinuousClock.now

    /// What a meter says of a transfer of `total` bytes when `moved` bytes have moved in `seconds`.
    private func measure(
        _ moved: UInt64, of total: UInt64, in seconds: Int
    ) -> (rate: Double?, timeLeft: Duration?) {
        var meter = RateMeter()
        _ = meter.measure(0, of: total, held: 0, isTransferring: true, now: start)
        return meter.measure(
            moved, of: total, held: 0, isTransferring: true, now: start + .seconds(seconds))
    }

    @Test("the time left is the time that the remaining bytes take at the present rate")
    func timeLeft() {
        let (rate, timeLeft) = measure(200, of: 1_000, in: 2)
        #expect(rate == 100)
        #expect(timeLeft == .seconds(8))
    }

    @Test("if the time left is too long to be told, it is nil, and the rate is still told")
    func endless() {
        let (rate, timeLeft) = measure(1, of: FileFrame.greatestSizeOrTime, in: 90)
        #expect(rate == 1.0 / 90)
        #expect(timeLeft == nil)
        #expect(measure(1, of: 1_000_000_001, in: 1_000).timeLeft != nil)
        #expect(measure(1, of: 1_000_000_002, in: 1_000).timeLeft == nil)
    }
}
