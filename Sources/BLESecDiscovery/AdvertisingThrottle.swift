package import BLESecLinks

/// Whether so many unauthenticated peers dial in vain that it is better not to be found for a while.
///
/// Has no clock of its own.
package struct AdvertisingThrottle: Sendable {
    /// How many of them are too many; 32.
    package var threshold = 32
    /// Within which time; 10 s.
    package var window = Duration.seconds(10)
    /// For how long nobody is invited then; 30 s.
    package var cooldown = Duration.seconds(30)

    private var failures: [MonotonicTime] = []
    private var reopening: MonotonicTime?

    /// Open, with the numbers above.
    package init() {}

    /// Someone dialed and proved nothing.
    package mutating func failed(at now: MonotonicTime) {
        failures.removeAll { $0.advanced(by: window) <= now }
        failures.append(now)
        guard failures.count >= threshold else { return }
        failures = []
        reopening = now.advanced(by: cooldown)
    }

    /// When it opens again; nil while it is open.
    package func reopens(at now: MonotonicTime) -> MonotonicTime? {
        reopening.flatMap { $0 > now ? $0 : nil }
    }
}
