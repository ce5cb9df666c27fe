internal import BLESecChannelCore

/// When bytes last arrived, and when the link last took bytes, in nanoseconds of a monotonic clock.
/// From these times a session sees whether its peer is alive, and when to send padding.
struct LinkActivity {
    /// When bytes last arrived on the link.
    private(set) var lastArrival: UInt64
    /// When the link last took bytes.
    private(set) var lastSend: UInt64
    /// When the link last took bytes after it had been full.
    private var lastProgress: UInt64
    /// Whether the link has refused bytes since it last took some.
    private var isBlocked = false

    init(now: UInt64) {
        lastArrival = now
        lastSend = now
        lastProgress = now
    }

    /// When bytes last arrived, or when the link last took some after it had been full, whichever
    /// was later.
    var lastActivity: UInt64 { max(lastArrival, lastProgress) }
    mutating func didReceive(now: UInt64) { lastArrival = now }

    mutating func didSend(now: UInt64) {
        lastSend = now
        if isBlocked { lastProgress = now }
        isBlocked = false
    }

    mutating func didBlock() { isBlocked = true }
}

extension UInt64 {
    /// The time `duration` later, at most `UInt64.max`.
    func after(_ duration: Duration) -> UInt64 { after(duration.wholeNanoseconds) }

    /// The time `nanoseconds` later, at most `UInt64.max`.
    func after(_ nanoseconds: UInt64) -> UInt64 { addingSaturating(nanoseconds) }
}

extension FixedWidthInteger {
    /// The sum with `other`, which is not negative; at most `max`.
    func addingSaturating(_ other: Self) -> Self {
        let (sum, overflow) = addingReportingOverflow(other)
        return overflow ? .max : sum
    }
}
