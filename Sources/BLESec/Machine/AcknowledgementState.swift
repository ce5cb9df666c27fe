internal import BLESecChannelCore

/// Who has said what of which messages: counts of messages, in which an `end` counts as one.
struct AcknowledgementState {
    /// Which of the peer's messages this side acknowledges.
    enum Rule {
        /// Those that have arrived: all that a peer without ``ChannelFeatures/acknowledgesTaken``
        /// expects.
        case arrived
        /// Those that ``didTake(now:)`` has counted.
        case taken
        /// Those that ``didConfirm(through:now:)`` has named.
        case confirmed
    }

    var rule = Rule.arrived
    /// Sealed by this side.
    private(set) var sent: UInt64 = 0
    /// Of those, acknowledged by the peer.
    private(set) var acknowledged: UInt64 = 0
    /// Whole messages from the peer.
    private(set) var received: UInt64 = 0
    /// Of those, handed to the program.
    private(set) var taken: UInt64 = 0
    /// Of those, confirmed by the program.
    private(set) var confirmed: UInt64 = 0
    /// Of those received, acknowledged to the peer.
    private(set) var ackSent: UInt64 = 0
    private(set) var endSent = false
    private(set) var endReceived = false
    /// Since when there is something to acknowledge.
    private(set) var ackPendingSince: UInt64?

    /// This side has ended, and the peer has everything.
    var isSendingComplete: Bool { endSent && acknowledged == sent }
    /// The peer has ended, and it was told that everything is here.
    var isReceivingComplete: Bool { endReceived && ackSent == received }

    /// How many messages may be acknowledged now. The `end` is acknowledged with the last of them.
    private var acknowledgeable: UInt64 {
        let count =
            switch rule {
            case .arrived: received
            case .taken: taken
            case .confirmed: confirmed
            }
        return endReceived && count == received - 1 ? received : count
    }

    mutating func didSend() { sent += 1 }
    mutating func didSendEnd() {
        sent += 1
        endSent = true
    }

    mutating func didReceive(now: UInt64) {
        received += 1
        notePending(now: now)
    }

    mutating func didReceiveEnd(now: UInt64) {
        endReceived = true
        didReceive(now: now)
    }

    /// The program has taken the next message.
    mutating func didTake(now: UInt64) {
        taken += 1
        notePending(now: now)
    }

    /// The program has confirmed the first `count` of the messages that it has taken.
    mutating func didConfirm(through count: UInt64, now: UInt64) {
        confirmed = max(confirmed, min(count, taken))
        notePending(now: now)
    }

    private mutating func notePending(now: UInt64) {
        if ackPendingSince == nil, acknowledgeable > ackSent { ackPendingSince = now }
    }

    /// The count to acknowledge with.
    mutating func takeAck() -> UInt64 {
        ackSent = acknowledgeable
        ackPendingSince = nil
        return ackSent
    }

    mutating func peerAcknowledged(_ count: UInt64) throws(ChannelError) {
        guard count > acknowledged, count <= sent else {
            throw ChannelError(
                .protocolViolation, "the peer acknowledges messages that it cannot have received")
        }
        acknowledged = count
    }

    private static let ackDelay = Record.ackDelay.wholeNanoseconds

    /// Whether an acknowledgement is due: by count, by time, because of the peer's `end`, or because
    /// this side is about to send its own.
    func owesAck(now: UInt64, isEnding: Bool) -> Bool {
        guard let ackPendingSince else { return false }
        let count = acknowledgeable
        return isEnding || endReceived && count == received
            || count - ackSent >= Record.messagesPerAck
            || now >= ackPendingSince.after(Self.ackDelay)
    }
}

extension Duration {
    /// The duration in nanoseconds, 0 when negative, and saturating.
    var wholeNanoseconds: UInt64 {
        let (seconds, attoseconds) = components
        guard seconds >= 0, attoseconds >= 0 else { return 0 }
        let (product, overflow) = UInt64(seconds).multipliedReportingOverflow(by: 1_000_000_000)
        return overflow ? .max : product.after(UInt64(attoseconds / 1_000_000_000))
    }
}
