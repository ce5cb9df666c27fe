/// A point in time on a clock that never goes back.
///
/// It counts nanoseconds from an arbitrary origin. Compare only values of the same clock.
public struct MonotonicTime: Sendable, Comparable, Hashable {
    /// Nanoseconds since the clock's origin.
    public let nanoseconds: UInt64

    /// Makes the point in time `nanoseconds` after the clock's origin.
    public init(nanoseconds: UInt64) { self.nanoseconds = nanoseconds }

    /// Later than every other time. A deadline with this value never comes.
    public static let distantFuture = MonotonicTime(nanoseconds: .max)

    /// The point in time that lies `duration` later, or earlier if `duration` is negative.
    ///
    /// The result is never before the origin, and never after ``distantFuture``. From
    /// ``distantFuture``, the result is always ``distantFuture``.
    public func advanced(by duration: Duration) -> MonotonicTime {
        if self == .distantFuture { return self }
        let offset = duration.clampedNanoseconds
        if offset >= 0 {
            let (sum, overflow) = nanoseconds.addingReportingOverflow(UInt64(offset))
            return overflow ? .distantFuture : MonotonicTime(nanoseconds: sum)
        }
        let (difference, overflow) = nanoseconds.subtractingReportingOverflow(offset.magnitude)
        return MonotonicTime(nanoseconds: overflow ? 0 : difference)
    }

    /// How much later this time is than `earlier`; negative if this time is the earlier one.
    public func duration(since earlier: MonotonicTime) -> Duration {
        let distance = max(nanoseconds, earlier.nanoseconds) - min(nanoseconds, earlier.nanoseconds)
        let magnitude = Int64(clamping: distance)
        return .nanoseconds(self >= earlier ? magnitude : -magnitude)
    }

    /// Orders by time.
    public static func < (left: MonotonicTime, right: MonotonicTime) -> Bool {
        left.nanoseconds < right.nanoseconds
    }
}

extension Duration {
    /// The duration in whole nanoseconds, limited to the range of `Int64` (± 292 years).
    var clampedNanoseconds: Int64 {
        // `components` traps if the seconds exceed the range of `Int64`.
        let limit = Duration.seconds(Int64.max)
        guard self < limit else { return .max }
        guard self > .zero - limit else { return .min }
        let (seconds, attoseconds) = components
        let (product, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
        if overflow { return seconds < 0 ? .min : .max }
        let (sum, carried) = product.addingReportingOverflow(attoseconds / 1_000_000_000)
        return carried ? (seconds < 0 ? .min : .max) : sum
    }
}
