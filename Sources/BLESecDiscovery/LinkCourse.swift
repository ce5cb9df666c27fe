/// How a link went that has ended, as far as the next one is concerned.
///
/// A peer that hangs up at once must not have this side dial without pause, whatever the link has
/// carried; and a radio that cuts link after link must not keep two peers apart that get something
/// across each time.
public enum LinkCourse: Sendable, Hashable {
    /// It has lasted, or has carried a message and lasted as long as the first backoff: the next one may
    /// begin at once, and failures before it are forgotten.
    case good
    /// It has carried a message, but ended before that: the next one waits for the first backoff, and
    /// failures before it are forgotten.
    case brief
    /// It was of no use: one failure more.
    case fruitless

    /// How a link went that has `lasted` so long.
    ///
    /// - Parameters:
    ///   - hasCarried: whether a message has come, or was acknowledged.
    ///   - goodAfter: what lasts so long was good in any case.
    ///   - backoff: how long the waits after failures are.
    public init(lasted: Duration, hasCarried: Bool, goodAfter: Duration, backoff: Backoff) {
        if lasted >= goodAfter {
            self = .good
        } else if hasCarried {
            self = lasted >= backoff.first ? .good : .brief
        } else {
            self = .fruitless
        }
    }

    /// How many failures in a row there are then, if there were `count` before.
    public func failures(after count: Int) -> Int {
        switch self {
        case .good: 0
        case .brief: 1
        case .fruitless: count + 1
        }
    }
}
