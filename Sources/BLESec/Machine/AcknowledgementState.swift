internal import BLESecChannelCore

/// Counts of the messages sent, received and acknowledged; an `end` counts as one message.
struct AcknowledgementState {
    /// Which of the peer's messages this side acknowledges.
    enum Rule {
        /// The messages that have arrived: the rule of automatic acknowledgement for a peer without
        /// ``ChannelFeatures/acknowledgesTaken``.
        case arrived
        /// The messages that ``didTake(now:)`` has counted.
        case taken
        /// The messages that ``didConfirm(through:now:)`` has confirmed.
        case confirmed
    }

    let rule: Rule
    /// Messages that this side has sealed completely.
    private(set) var sent: UInt64 = 0
    /// Messages that this side has sent and the peer has acknowledged.
    private(set) var acknowledged: UInt64 = 0
    /// Whole messages received from the peer.
    private(set) var received: UInt64 = 0
    /// Messages that this side has received and handed to the program.
    private(set) var taken: UInt64 = 0
    /// Messages that the program has taken and confirmed.
    private(set) var confirmed: UInt64 = 0
    /// Messages that this side has received and acknowledged.
    private(set) var ackSent: UInt64 = 0
    private(set) var hasSentEnd = false
    private(set) var hasReceivedEnd = false
    /// Since when this side has had an acknowledgement to send; nil if it has none.
    private(set) var ackPendingSince: UInt64?
    init(rule: Rule) { self.rule = rule }
    /// Whether this side has sent its end, and the peer has acknowledged everything.
    var isSendingComplete: Bool { hasSentEnd && acknowledged == sent }
    /// Whether the peer has sent its end, and this side has acknowledged everything.
    var isReceivingComplete: Bool { hasReceivedEnd && ackSent == received }

    /// How many messages may be acknowledged now. The peer's `end` counts as one more, as soon as
    /// every message before it may be acknowledged.
    private var acknowledgeable: UInt64 {
        let count =
            switch rule {
            case .arrived: received
            case .taken: taken
            case .confirmed: confirmed
            }
        return hasReceivedEnd && count == received - 1 ? received : count
    }

    mutating func didSend() { sent += 1 }

    mutating func didSendEnd() {
        sent += 1
        hasSentEnd = true
    }

    mutating func didReceive(now: UInt64) {
        received += 1
        notePending(now: now)
    }

    mutating func didReceiveEnd(now: UInt64) {
        hasReceivedEnd = true
        didReceive(now: now)
    }

    mutating func didTake(now: UInt64) {
        taken += 1
        notePending(now: now)
    }

    /// Records that the program has confirmed the first `count` of the messages that it has taken.
    mutating func didConfirm(through count: UInt64, now: UInt64) {
        confirmed = max(confirmed, min(count, taken))
        notePending(now: now)
    }

    private mutating func notePending(now: UInt64) {
        if ackPendingSince == nil, acknowledgeable > ackSent { ackPendingSince = now }
    }

    /// Returns the count for the next acknowledgement, and records it as sent.
    mutating func takeAck() -> UInt64 {
        ackSent = acknowledgeable
        ackPendingSince = nil
        return ackSent
    }

    mutating func peerAcknowledged(_ count: UInt64) throws(ChannelError) {
        guard count > acknowledged, count <= sent else {
            throw ChannelError(
                .protocolViolation, "the peer acknowledges nothing new, or messages never sent")
        }
        acknowledged = count
    }

    private static let ackDelay = Record.ackDelay.wholeNanoseconds

    /// Whether an acknowledgement is due: by count, by time, because of the peer's `end`, or
    /// because this side is about to send its own `end`.
    func owesAck(now: UInt64, isEnding: Bool) -> Bool {
        guard let ackPendingSince else { return false }
        let count = acknowledgeable
        return isEnding || (hasReceivedEnd && count == received)
            || count - ackSent >= Record.messagesPerAck
            || now >= ackPendingSince.after(Self.ackDelay)
    }
}

extension Duration {
    /// The duration in whole nanoseconds; 0 if negative, `UInt64.max` if too long.
    var wholeNanoseconds: UInt64 {
        guard self > .zero else { return 0 }
        // `components` traps if the seconds exceed the range of `Int64`.
        guard self < .seconds(Int64.max) else { return .max }
        let (seconds, attoseconds) = components
        let (product, overflow) = UInt64(seconds).multipliedReportingOverflow(by: 1_000_000_000)
        return overflow ? .max : product.addingSaturating(UInt64(attoseconds / 1_000_000_000))
    }

    /// The duration as text for an error message, such as `2 s` or `0.5 s`, to the millisecond.
    var inSeconds: String {
        let milliseconds = wholeNanoseconds / 1_000_000
        let (seconds, rest) = (milliseconds / 1_000, milliseconds % 1_000)
        guard rest > 0 else { return "\(seconds) s" }
        var fraction = String(String(1_000 + rest).dropFirst())
        while fraction.hasSuffix("0") { fraction.removeLast() }
        return "\(seconds).\(fraction) s"
    }
}
