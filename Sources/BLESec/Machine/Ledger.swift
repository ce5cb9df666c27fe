internal import ChannelCore

/// Who has said what of which messages: counts of messages, in which an `end` counts as one.
struct Ledger {
    /// Sealed by this side.
    private(set) var sent: UInt64 = 0
    /// Of those, acknowledged by the peer.
    private(set) var acknowledged: UInt64 = 0
    /// Whole messages from the peer.
    private(set) var received: UInt64 = 0
    /// Of those, acknowledged to the peer.
    private(set) var confirmed: UInt64 = 0
    private(set) var endSent = false
    private(set) var endReceived = false
    /// When the oldest unconfirmed message came.
    private(set) var oldestUnconfirmed: UInt64?

    /// This side has ended, and the peer has everything.
    var isSendingComplete: Bool { endSent && acknowledged == sent }
    /// The peer has ended, and it was told that everything is here.
    var isReceivingComplete: Bool { endReceived && confirmed == received }

    mutating func didSend() { sent += 1 }
    mutating func didSendEnd() {
        sent += 1
        endSent = true
    }

    mutating func didReceive(now: UInt64) {
        received += 1
        if oldestUnconfirmed == nil { oldestUnconfirmed = now }
    }

    mutating func didReceiveEnd(now: UInt64) {
        didReceive(now: now)
        endReceived = true
    }

    mutating func didConfirm() {
        confirmed = received
        oldestUnconfirmed = nil
    }

    mutating func peerAcknowledged(_ count: UInt64) throws(ChannelError) {
        guard count > acknowledged, count <= sent else {
            throw ChannelError(
                .protocolViolation, "the peer acknowledges messages that it cannot have received")
        }
        acknowledged = count
    }

    private static let ackDelay = Record.ackDelay.wholeNanoseconds

    /// Whether an acknowledgement is due by count, by time or because of an `end`.
    func owesAck(now: UInt64) -> Bool {
        guard let oldestUnconfirmed else { return false }
        return endReceived || received - confirmed >= Record.messagesPerAck
            || now >= oldestUnconfirmed.after(Self.ackDelay)
    }
}

extension Duration {
    /// The duration in nanoseconds, 0 when negative, and saturating.
    var wholeNanoseconds: UInt64 {
        let (seconds, attoseconds) = components
        guard seconds >= 0, attoseconds >= 0 else { return 0 }
        let (product, overflow) = UInt64(seconds).multipliedReportingOverflow(by: 1_000_000_000)
        return overflow ? .max : product + UInt64(attoseconds / 1_000_000_000)
    }
}
