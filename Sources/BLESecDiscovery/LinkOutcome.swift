/// How an ended link went. The outcome decides when the next dial may begin.
///
/// If a peer hangs up at once, this side must not dial again without a pause, whatever the link
/// carried. If the radio cuts every link, but each link carries messages, the pauses must not grow.
package enum LinkOutcome: Sendable, Hashable {
    /// The link lasted at least `stableAfter`, or it carried a message and lasted at least
    /// ``Backoff/first``. The next dial need not wait, and earlier failures are forgotten.
    case stable
    /// The link carried a message, but lasted less than ``Backoff/first``. The next dial waits as
    /// after a first failure, and earlier failures are forgotten.
    case short
    /// The link carried no message, and lasted less than `stableAfter`. It counts as one more
    /// failure.
    case failed

    /// By default a link that lasts this long is stable, even if it has carried no message.
    package static let stableAfter = Duration.seconds(10)

    /// Classifies a link by its duration and by what it carried: `lasted` is the time until this
    /// side noticed the end of the link, and `hasCarriedMessage` is true if a message was received,
    /// or a sent message was acknowledged.
    package init(
        lasted: Duration, hasCarriedMessage: Bool, stableAfter: Duration = stableAfter,
        backoff: Backoff
    ) {
        let isStable = lasted >= stableAfter || hasCarriedMessage && lasted >= backoff.first
        self = isStable ? .stable : hasCarriedMessage ? .short : .failed
    }

    /// The number of failures in a row after this link, given the number before it.
    package func failures(after count: Int) -> Int {
        switch self {
        case .stable: 0
        case .short: 1
        case .failed: count + 1
        }
    }
}
