/// How a link went that has ended, as far as the next one is concerned.
///
/// A peer that hangs up at once must not have this side dial without pause, whatever the link has
/// carried; and a radio that cuts link after link must not keep two peers apart that get something
/// across each time.
package enum LinkOutcome: Sendable, Hashable {
    /// It has lasted, or has carried a message and lasted as long as the first backoff: the next one may
    /// begin at once, and failures before it are forgotten.
    case stable
    /// It has carried a message, but ended before that: the next one waits for the first backoff, and
    /// failures before it are forgotten.
    case short
    /// It was of no use: one failure more.
    case failed

    /// How a link went that has `lasted` so long.
    ///
    /// - Parameters:
    ///   - hasCarried: whether a message has come, or was acknowledged.
    ///   - stableAfter: what lasts so long was stable in any case.
    ///   - backoff: how long the waits after failures are.
    package init(lasted: Duration, hasCarried: Bool, stableAfter: Duration, backoff: Backoff) {
        if lasted >= stableAfter {
            self = .stable
        } else if hasCarried {
            self = lasted >= backoff.first ? .stable : .short
        } else {
            self = .failed
        }
    }

    /// How many failures in a row there are then, if there were `count` before.
    package func failures(after count: Int) -> Int {
        switch self {
        case .stable: 0
        case .short: 1
        case .failed: count + 1
        }
    }
}
