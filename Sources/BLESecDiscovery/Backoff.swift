/// Computes how long to wait before another attempt.
///
/// The longest wait doubles after each failure, up to ``most``. The actual wait is a random time
/// from half of the longest wait to the longest wait, so that two peers that failed together do not
/// collide again.
public struct Backoff: Sendable, Hashable {
    /// The longest wait after the first failure.
    public var first: Duration
    /// The longest wait after any number of failures.
    public var most: Duration

    /// One second at first, a minute at most.
    public init(first: Duration = .seconds(1), most: Duration = .seconds(60)) {
        self.first = first
        self.most = most
    }

    /// The wait after `count` failures in a row: a random time from half of the longest wait to the
    /// longest wait; zero if `count` is 0.
    public func delay(
        afterFailures count: Int, using generator: inout some RandomNumberGenerator
    ) -> Duration {
        guard count > 0 else { return .zero }
        let most = max(most, .zero)
        var bound = min(max(first, .zero), most)
        for _ in 1..<min(count, 32) { bound = bound > most / 2 ? most : bound * 2 }
        return bound / 2 + bound / 2 * Double.random(in: 0...1, using: &generator)
    }
}
