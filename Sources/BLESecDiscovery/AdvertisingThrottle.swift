package import BLESecLinks

/// Decides when to stop advertising for a while because too many peers connect and fail to
/// authenticate.
///
/// It has no clock: the caller passes the present time in.
package struct AdvertisingThrottle: Sendable {
    /// The number of failed peers that stops advertising; 32 by default.
    package var threshold = 32
    /// The period in which failed peers are counted; 10 s by default.
    package var window = Duration.seconds(10)
    /// How long advertising then stops; 30 s by default.
    package var cooldown = Duration.seconds(30)

    private var failures: [MonotonicTime] = []
    private var stoppedUntil: MonotonicTime?

    /// Makes a throttle that allows advertising, with the defaults above.
    package init() {}

    /// Counts a failed peer: it connected and proved no identity. While advertising is stopped,
    /// failures do not count, so that nobody can prolong the stop.
    ///
    /// - Returns: whether advertising has to stop now.
    @discardableResult
    package mutating func peerFailed(at now: MonotonicTime) -> Bool {
        guard resumptionTime(asOf: now) == nil else { return false }
        failures.removeAll { $0.advanced(by: window) <= now }
        failures.append(now)
        guard failures.count >= threshold else { return false }
        failures = []
        stoppedUntil = now.advanced(by: cooldown)
        return true
    }

    /// When advertising may start again; nil if it is allowed now.
    package func resumptionTime(asOf now: MonotonicTime) -> MonotonicTime? {
        stoppedUntil.flatMap { $0 > now ? $0 : nil }
    }
}
