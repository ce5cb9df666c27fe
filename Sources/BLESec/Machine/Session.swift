internal import BLESecChannelCore
internal import BLESecPrimitives

/// What the driver must do with the link, now that nothing is left to send.
enum LinkShutdown: Sendable {
    /// Nothing yet.
    case stay
    /// Half-close the link if it supports that; the peer then closes it.
    case halfClose
    /// Close the link as soon as its own queue is empty.
    case closeWhenDrained
}

/// The stage in which both sides are proven, and send and receive messages; see
/// ``NegotiatedSession`` and ``DirectSession``.
///
/// The object outlives the channel's end: messages that have arrived can still be received.
class Session: ChannelStage {
    final var agreement: Agreement
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    final var outbox = Outbox()
    /// How many messages have been queued so far.
    private(set) final var queued: UInt64 = 0
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    final var inbox: Inbox
    final var activity: LinkActivity
    /// Whether the ``DeliveryPort`` takes the peer's records now; true if the channel carries no
    /// records of delivery.
    final var takesRecords = true
    /// Whether streams are open, whose records may be urgent. If so, little is sealed ahead, and
    /// the link keeps its own queue short, so that urgent records do not wait.
    final var keepsQueueShort = false
    /// Whether the link is lost. The bytes that arrived before the loss are still read, and the
    /// inbox may then hold more than usual.
    final var isLinkLost = false
    /// How many calls wait for the peer's acknowledgement.
    final var acknowledgementWaiters = 0
    /// Ends the channel when its part of the memory budget is revoked; called on any thread.
    final var onBudgetRevoked: @Sendable () -> Void = {}

    /// The reason for this side's end, once the end is requested.
    private(set) final var requestedEnd: EndReason?
    /// How many bytes the link still has to take up to and including this side's end; nil until the
    /// end is sealed.
    private var bytesThroughEnd: Int?
    /// When closing began, and when it last made progress; nil before closing.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    private var closing: (began: UInt64, lastProgress: UInt64)?
    /// When the session began; the channel has been ready since then.
    final let readyTime: UInt64
    /// How long closing may go without progress.
    private(set) final var closeTimeout: Duration
    /// When the first byte of a still incomplete record arrived.
    private var recordStart: UInt64?
    /// When the session reaches its maximum age.
    private let expiry: UInt64
    /// ``ChannelTimeouts/record`` in nanoseconds.
    private let recordTimeout: UInt64
    private let limits: ChannelLimits
    /// The maximum payload of a bulk record: smaller if the link's SDUs are small, so that other
    /// records do not wait long behind a bulk record.
    final let bulkPayload: Int

    init(after previous: UnauthenticatedStage, _ agreement: Agreement, now: UInt64) {
        let parameters = previous.parameters
        self.agreement = agreement
        readyTime = now
        limits = parameters.configuration.limits
        bulkPayload = min(
            previous.records.engine.bulkPayload,
            max(Record.leastBulkPayload, 4 * parameters.maximumSDU))
        inbox = Inbox(maximumMessageLength: limits.maximumMessageLength)
        activity = LinkActivity(now: now)
        let timeouts = parameters.configuration.timeouts
        closeTimeout = timeouts.close
        expiry = parameters.start.after(timeouts.session)
        recordTimeout = timeouts.record.wholeNanoseconds
        super.init(parameters, previous.records)
    }

    // MARK: - What the two modes do differently

    /// Whether this side's end is sealed.
    var hasSealedEnd: Bool { false }
    /// Whether the peer has sent its end, so that no more messages arrive.
    var hasPeerEnded: Bool { false }
    /// The reason of the peer's end; nil before that end, and in direct mode.
    var peerEndReason: EndReason? { nil }
    /// How many of the peer's messages the program has taken.
    var taken: UInt64 { 0 }
    /// How many of this side's messages the peer has acknowledged.
    var acknowledged: UInt64 { 0 }
    /// Whether the peer has acknowledged everything, including this side's end.
    var isSendingComplete: Bool { false }
    /// Whether the peer has sent a message on this channel, or has acknowledged a message.
    var hasCarriedMessage: Bool { false }
    /// Since when this side has had an acknowledgement to send; `nil` if it has none.
    var ackPendingSince: UInt64? { nil }
    /// Whether an acknowledgement is to be sent now.
    func owesAck(now: UInt64) -> Bool { false }
    /// Refuses a message that cannot be sent.
    func check(_ message: [UInt8]) throws(ChannelError) {}
    /// Acts on a record that was opened in `records.inbound`.
    func receive(_ plaintext: Range<Int>, now: UInt64) throws(ChannelError) {}
    /// Called when the program has taken the next message completely.
    func didTakeMessage(now: UInt64) {}
    /// Called when the program has confirmed the peer's first `count` messages.
    func confirm(through count: UInt64, now: UInt64) {}
    /// How far the driver may close the link, now that nothing waits to be sent.
    func permittedLinkShutdown(canHalfClose: Bool, now: UInt64) -> LinkShutdown { .stay }
    /// Called when the session has reached its maximum age, unless it is already closing.
    func expire(now: UInt64) throws(ChannelError) {
        end(.expired)
        beginClosing(now: now)
    }
    /// The result when the close deadline passes.
    func closeTimedOut() throws(ChannelError) -> Step {
        throw .late("the peer did not end its side within", closeTimeout)
    }

    // MARK: - Sending

    /// Whether the sending key has to be changed before the next record, by the limits for one key.
    final var needsRekey: Bool {
        records.sending.records >= Record.leastRekeyInterval
            && (records.sending.records >= limits.rekeyAfterRecords
                || records.sending.bytes >= limits.rekeyAfterBytes)
    }

    final var hasRoom: Bool { outbox.isEmpty || outbox.byteCount < limits.sendAhead }

    /// Queues a message, and returns its number. The message is delivered when the count of
    /// acknowledged messages reaches that number.
    final func queue(_ message: consuming [UInt8]) throws(ChannelError) -> UInt64 {
        guard requestedEnd == nil else {
            throw ChannelError(.closed, "the channel has been ended on this side")
        }
        guard message.count <= limits.maximumMessageLength else {
            throw ChannelError(
                .limitExceeded,
                "a message of \(message.count) bytes is longer than the "
                    + "\(limits.maximumMessageLength) bytes allowed")
        }
        try check(message)
        outbox.append(message)
        queued += 1
        return queued
    }

    final func end(_ reason: EndReason) { if requestedEnd == nil { requestedEnd = reason } }

    /// Called when this side's end is sealed.
    final func didSealEnd() { bytesThroughEnd = records.outbound.count }

    final override func didSend(_ count: Int, now: UInt64) {
        // Until the link has taken this side's end, sending restarts the close deadline. The bytes
        // before the end are limited. Those after it are not: the peer's pings cause pongs.
        if bytesThroughEnd != 0 { closing?.lastProgress = now }
        bytesThroughEnd = bytesThroughEnd.map { max(0, $0 - count) }
        activity.didSend(now: now)
        didProgress(now: now)
    }

    final override func didBlock() { activity.didBlock() }
    /// Called after bytes were sent or processed, and after an end of the link that does not end
    /// the session.
    func didProgress(now: UInt64) {}

    /// Called when a ``DeliveryPort`` may have got records to send.
    func portMayHaveRecords() {}

    // MARK: - Receiving

    override var phase: ChannelPhase { hasSealedEnd || hasPeerEnded ? .closing : .established }
    final override var claimedKey: Fingerprint? { agreement.peer.fingerprint }
    /// False while enough messages wait for the program, or the layer above takes no records.
    final override var wantsBytes: Bool { takesRecords && inbox.byteCount < readAhead }

    private var readAhead: Int {
        // A lost link gets the extra room twice: the messages that arrived during an earlier wait for
        // an acknowledgement may already fill the first extra room.
        let extraRooms = isLinkLost ? 2 : awaitsAcknowledgement ? 1 : 0
        return limits.readAhead.addingSaturating(extraRooms * ChannelLimits.extraReadAhead)
    }

    /// Whether this side waits for an acknowledgement, which may arrive after the peer's messages.
    private var awaitsAcknowledgement: Bool {
        acknowledgementWaiters > 0 || (closing != nil && !isSendingComplete)
    }

    /// Whether this side waits for an acknowledgement that it cannot read, because the peer's
    /// unread messages fill even the extra room. The program has to receive a message first.
    final var cannotReadAcknowledgements: Bool {
        awaitsAcknowledgement && !wantsBytes && !isLinkLost
    }

    final override func didReceive(_ count: Int, now: UInt64) throws(ChannelError) {
        if count > 0 { activity.didReceive(now: now) }
    }

    final override func step(now: UInt64) throws(ChannelError) -> Step {
        while !records.inbound.isEmpty, wantsBytes {
            guard let record = try records.open() else {
                if recordStart == nil { recordStart = now }
                return .wait
            }
            if let plaintext = record.plaintext {
                recordStart = nil
                try receive(plaintext, now: now)
            }
            records.inbound.consume(record.consumed)
            if records.inbound.isEmpty { recordStart = nil }
        }
        return .wait
    }

    final override func didProcess(now: UInt64) throws(ChannelError) { didProgress(now: now) }

    /// Appends a part of the opened record to the inbox, as the next piece of a message.
    final func keep(_ range: Range<Int>, isLast: Bool) throws(ChannelError) {
        try records.inbound.withBytes { bytes throws(ChannelError) in
            try inbox.append(bytes.span.extracting(range), isLast: isLast)
        }
    }

    /// Called when this side reads again: restarts the time limits for the peer's silence and for
    /// an incomplete record.
    func didResumeReading(now: UInt64) {
        activity.didReceive(now: now)
        if recordStart != nil { recordStart = now }
    }

    // MARK: - Time

    override func nextTimeout(now: UInt64) -> UInt64 {
        // While the session closes, the close deadline replaces `expiry`, and already takes
        // `expiry` into account.
        var next = closing == nil ? expiry : closeDeadline
        if wantsBytes, let recordStart { next = min(next, recordStart.after(recordTimeout)) }
        return next
    }

    override func handleTimeout(now: UInt64) throws(ChannelError) -> Step {
        if now >= closeDeadline { return try closeTimedOut() }
        if closing == nil, now >= expiry { try expire(now: now) }
        return .wait
    }

    final func checkRecordDeadline(now: UInt64) throws(ChannelError) {
        guard wantsBytes, let recordStart, now >= recordStart.after(recordTimeout) else { return }
        throw .late("a record was begun and not finished within", configuration.timeouts.record)
    }

    // MARK: - Closing

    final var isClosing: Bool { closing != nil }

    /// The time at which closing has taken too long. Progress after ``expiry`` does not postpone this
    /// time.
    private var closeDeadline: UInt64 {
        guard let closing else { return .max }
        return min(closing.lastProgress, max(expiry, closing.began)).after(closeTimeout)
    }

    /// Sends `end` after the queued messages, and starts the close deadline now. `limit` replaces
    /// ``ChannelTimeouts/close``.
    final func close(within limit: Duration?, now: UInt64) {
        if let limit { closeTimeout = limit }
        end(.done)
        beginClosing(now: now)
    }

    /// Starts the close deadline, unless it runs already.
    final func beginClosing(now: UInt64) {
        guard closing == nil else { return }
        let wasFull = !wantsBytes
        closing = (now, now)
        // A side that closes has more room to read.
        if wasFull, wantsBytes { didResumeReading(now: now) }
    }

    /// Restarts the close deadline, because the peer or the program has made progress.
    final func restartClosing(now: UInt64) { closing?.lastProgress = now }
}
