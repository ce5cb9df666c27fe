internal import BLESecChannelCore

/// The times from which a channel's timeouts are counted, in nanoseconds of a monotonic clock.
struct ChannelClocks {
    let timeouts: ChannelTimeouts
    /// The timeouts that are checked with every message, in nanoseconds.
    let session, idle, halfIdle, record, message, ackDelay: UInt64
    /// When the channel took over the link.
    let start: UInt64
    /// When hello and answer were complete, when the policy was asked, and when this side's
    /// handshake was over.
    var negotiated: UInt64?
    var awaitingTrustDecision: UInt64?
    var handshakeDone: UInt64?
    /// When both sides became ready.
    var ready: UInt64?
    /// When a closing phase with a deadline began, or last made progress.
    var closing: UInt64?
    /// When this side began to close.
    var closeBegan: UInt64?
    /// When bytes last arrived, and when the link last took bytes after it had been full.
    var lastArrival: UInt64
    var lastProgress: UInt64
    /// When a keep-alive was last queued while nothing was read.
    var lastKeepAlive: UInt64 = 0
    /// When the first byte of a still incomplete record arrived.
    var recordBegan: UInt64?
    /// When the last piece of a still incomplete message arrived, or when reading resumed.
    var messageMoved: UInt64?
    /// Whether the link has refused bytes since it last took some.
    var isBlocked = false

    init(now: UInt64, timeouts: ChannelTimeouts) {
        self.timeouts = timeouts
        session = timeouts.session.wholeNanoseconds
        idle = timeouts.idle.wholeNanoseconds
        halfIdle = idle / 2
        record = timeouts.record.wholeNanoseconds
        message = timeouts.message.wholeNanoseconds
        ackDelay = Record.ackDelay.wholeNanoseconds
        start = now
        lastArrival = now
        lastProgress = now
    }

    /// When bytes last arrived, or when the link last took bytes after it had been full.
    var lastSign: UInt64 { max(lastArrival, lastProgress) }

    mutating func didArrive(now: UInt64) { lastArrival = now }

    mutating func didSend(now: UInt64) {
        if isBlocked { lastProgress = now }
        isBlocked = false
    }
}

extension UInt64 {
    /// The time `duration` later, at most `UInt64.max`.
    func after(_ duration: Duration) -> UInt64 { after(duration.wholeNanoseconds) }

    /// The time `nanoseconds` later, at most `UInt64.max`.
    func after(_ nanoseconds: UInt64) -> UInt64 {
        let (sum, overflow) = addingReportingOverflow(nanoseconds)
        return overflow ? .max : sum
    }
}

/// The records and bytes of one direction under its current key.
struct DirectionCount {
    var records: UInt64 = 0
    var bytes: UInt64 = 0

    mutating func add(_ count: Int) {
        records += 1
        bytes += UInt64(count)
    }

    mutating func reset() { self = DirectionCount() }
}

/// Control records that wait to be sealed, at most one of each kind.
struct PendingControl {
    /// Whether the 32-byte `ready` waits to be sealed.
    var ready = false
    var reject: RejectCode?
    var pong: [UInt8]?
    var ping = false
    /// Padding, sent by a side that does not read and so cannot ping.
    var keepAlive = false
    /// The ping that has no pong yet.
    var outstandingPing: UInt64?
}
