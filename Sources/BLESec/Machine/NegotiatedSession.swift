internal import BLESecChannelCore
internal import BLESecDelivery

/// The session's interface to the layer above the channel, which delivers each message once, over
/// several links if necessary (`docs/delivery.md`). The session carries this layer's records, and
/// calls the port on the channel's loop.
protocol DeliveryPort: AnyObject {
    /// Whether the next record of the peer may be passed to ``receive(_:)`` now.
    var wantsRecords: Bool { get }
    /// Returns the next record for the peer, which the session seals at once. The record has at
    /// most `limit` bytes of data, and no data if `limit` is nil. If `onlyWhole`, data that is
    /// longer than `limit` is not begun. The port calls `confirms` with the number of messages that
    /// the program has confirmed and the peer has not been told of. `confirms` returns whether the
    /// port has to tell the peer now.
    func nextRecord(
        atMost limit: Int?, onlyWhole: Bool, _ outlook: inout PortOutlook,
        confirms: (_ owed: UInt64) -> Bool
    ) -> DeliveryRecord?
    /// Takes a record of the peer. A thrown error ends the channel.
    func receive(_ record: DeliveryRecord) throws(DeliveryError) -> ReceivedRecord
    /// Called after the last of the records that have arrived together, if any of them had an
    /// effect; `effect` is the greatest of their effects. If the channel ends before the last
    /// record is processed, this call may be missing.
    func didReceiveAll(_ effect: ReceivedRecord.Effect)
}

/// What a port expects after a call of ``DeliveryPort/nextRecord(atMost:onlyWhole:_:confirms:)``.
struct PortOutlook {
    /// Whether streams are open.
    var hasStreams = false
    /// Whether the port may have another record now, without getting anything new to send.
    var mayHaveMore = false
}

/// The result of ``DeliveryPort/receive(_:)``.
struct ReceivedRecord {
    /// Whether the record shows that messages of either side make progress.
    var showsProgress = false
    /// Whether more of a message that has begun on this link is still to arrive.
    var isMidMessage = false
    /// What the record has changed for the program.
    var effect = Effect.none
    /// The new value of ``DeliveryPort/wantsRecords``.
    var wantsRecords = true
    /// Whether the port may have a record to send because of the received record.
    var mayHaveAnswer = false

    /// What has changed for the program.
    enum Effect: Comparable {
        /// Nothing.
        case none
        /// A whole message has arrived, and nothing else has changed.
        case message
        /// Anything may have changed.
        case other
    }
}

extension ChannelError {
    fileprivate init(_ error: DeliveryError) {
        switch error {
        case .violation(let what): self = .violation(what)
        case .noMemory: self = .tooMuchUnderWay
        case .tooLong(let length):
            self.init(
                .limitExceeded,
                "the peer announces a message of \(length) bytes, which is longer than this side "
                    + "allows")
        case .sessionLost:
            self.init(
                .sessionLost, "the peer was started again after it had sent everything")
        }
    }
}

/// A session in negotiated mode: records with types, acknowledgements, an explicit end and
/// keep-alives (`docs/wire-format.md`, "Records").
final class NegotiatedSession: Session {
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    private(set) var acknowledgements: AcknowledgementState
    /// The reason of the peer's end; nil before that end.
    private var peerEnd: EndReason?
    /// The payload of the peer's ping that this side must answer.
    private var owedPong: [UInt8]?
    /// Whether a ping of this side waits to be sealed.
    private var owesPing = false
    /// Whether padding waits to be sealed. A side that does not read sends padding in place of a ping.
    private var owesPadding = false
    /// The payload of this side's ping that the peer has not answered.
    private(set) var outstandingPing: UInt64?
    /// When this side last decided to send padding.
    private var lastPaddingTime: UInt64 = 0
    /// When the latest piece of a still incomplete message arrived, or when this side read again
    /// after a pause, if that was later.
    private var lastPieceTime: UInt64?
    /// Times in nanoseconds: those of ``ChannelTimeouts``, and how long an `ack` may wait.
    private let idleTimeout, messageTimeout, ackDelay: UInt64
    /// Whether a record of delivery may exceed ``bulkPayload`` by the length of its header.
    private let hasRoomForHeader: Bool
    /// Whether the channel carries the records of delivery, and no messages of its own.
    private let carriesDelivery: Bool
    /// Where the records of delivery go; the peer's first record waits until there is a port.
    private var port: (any DeliveryPort)?
    /// The bytes of a record of delivery without data; the next such record reuses the memory.
    private var shortRecord: [UInt8] = []
    /// Since when this side has owed the peer a confirmation; nil if it owes none.
    private var confirmationOwedSince: UInt64?
    /// Whether a record of delivery has shown that messages make progress.
    private var hasCarriedDelivery = false
    /// The greatest effect of the records that the port has got since the last
    /// ``DeliveryPort/didReceiveAll(_:)``.
    private var effect = ReceivedRecord.Effect.none
    /// Whether the port has said that it has no further record. The port is asked again after a
    /// record of the peer that may have an answer, after ``portMayHaveRecords()``, and when a
    /// confirmation is due.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    private var isPortEmpty = false

    override init(after previous: UnauthenticatedStage, _ agreement: Agreement, now: UInt64) {
        let parameters = previous.parameters
        let rule: AcknowledgementState.Rule =
            switch parameters.configuration.acknowledgement {
            case .manual: .confirmed
            case .automatic: agreement.features.contains(.acknowledgesTaken) ? .taken : .arrived
            }
        acknowledgements = AcknowledgementState(rule: rule)
        let timeouts = parameters.configuration.timeouts
        idleTimeout = timeouts.idle.wholeNanoseconds
        messageTimeout = timeouts.message.wholeNanoseconds
        ackDelay = Record.ackDelay.wholeNanoseconds
        carriesDelivery = agreement.features.contains(.delivery)
        // With Noise, a record may exceed ``bulkPayload`` by the header of a record of delivery.
        // With TLS, a bulk record fills one TLS record, and the header would begin another one.
        hasRoomForHeader = previous.records.engine.bulkPayload >= Record.bulkPayload
        super.init(after: previous, agreement, now: now)
        takesRecords = !carriesDelivery
    }

    /// Passes the records of delivery through this port from now on; call
    /// ``ChannelMachine/portDidResume(now:)`` next.
    func use(_ port: some DeliveryPort) {
        precondition(carriesDelivery, "only a channel that has agreed on delivery has a port")
        self.port = port
    }

    override func portMayHaveRecords() { isPortEmpty = false }

    /// Asks the port whether it takes records.
    func updateTakesRecords() { if let port { takesRecords = port.wantsRecords } }

    override func check(_ message: [UInt8]) throws(ChannelError) {
        guard carriesDelivery else { return }
        throw ChannelError(
            .configuration, "this channel carries a connection's records, and no other messages")
    }

    // MARK: - Session

    override var hasSealedEnd: Bool { acknowledgements.hasSentEnd }
    override var hasPeerEnded: Bool { acknowledgements.hasReceivedEnd }
    override var peerEndReason: EndReason? { peerEnd }
    override var taken: UInt64 { acknowledgements.taken }
    override var acknowledged: UInt64 { acknowledgements.acknowledged }
    override var isSendingComplete: Bool { acknowledgements.isSendingComplete }
    override var ackPendingSince: UInt64? { acknowledgements.ackPendingSince }
    override var hasCarriedMessage: Bool {
        // The counts include each side's `end`.
        hasCarriedDelivery || acknowledgements.received > (acknowledgements.hasReceivedEnd ? 1 : 0)
            || acknowledgements.acknowledged > (acknowledgements.isSendingComplete ? 1 : 0)
    }

    override func didTakeMessage(now: UInt64) {
        acknowledgements.didTake(now: now)
        restartCloseAfterEnd(now: now)
    }

    override func confirm(through count: UInt64, now: UInt64) {
        acknowledgements.didConfirm(through: count, now: now)
        restartCloseAfterEnd(now: now)
    }

    /// After the peer's end, restarts the close deadline, because fewer messages are left to
    /// acknowledge. Before its end, the peer may send messages without limit, and could so postpone
    /// the deadline for ever.
    private func restartCloseAfterEnd(now: UInt64) {
        if acknowledgements.hasReceivedEnd { restartClosing(now: now) }
    }

    override func owesAck(now: UInt64) -> Bool {
        acknowledgements.owesAck(
            now: now,
            isEnding: outbox.isEmpty && requestedEnd != nil && !acknowledgements.hasSentEnd)
    }

    // MARK: - Sending

    override func sealNext(now: UInt64) throws(ChannelError) -> Bool {
        if try sealControl(now: now) { return true }
        if !outbox.isEmpty {
            let isLast = try outbox.take(atMost: bulkPayload) {
                piece, isLast throws(ChannelError) in
                try records.seal(isLast ? .data : .dataMore, piece)
            }
            if isLast { acknowledgements.didSend() }
            return true
        }
        guard !acknowledgements.hasSentEnd else { return false }
        // The records of delivery, such as the last confirmations, come before this side's end.
        if try sealDelivery(now: now) { return true }
        guard let reason = requestedEnd else { return false }
        try records.seal(.end, [reason.rawValue])
        acknowledgements.didSendEnd()
        didSealEnd()
        return true
    }

    /// Seals the next record of delivery. Once the end is requested, no part of a message is
    /// sealed.
    private func sealDelivery(now: UInt64) throws(ChannelError) -> Bool {
        guard let port else { return false }
        if isPortEmpty, requestedEnd == nil, !isConfirmationDue(now: now) { return false }
        // While a stream is open, only data that fits whole into a short record is sealed behind
        // waiting records. More data in the same SDU would delay the waiting records, because the
        // peer gets an SDU only when all of the SDU has arrived.
        let isShort = keepsQueueShort && !records.outbound.isEmpty
        var outlook = PortOutlook()
        let nextRecord = port.nextRecord(
            atMost: requestedEnd == nil ? dataLimit(isShort: isShort) : nil, onlyWhole: isShort,
            &outlook
        ) { confirms($0, now: now) }
        keepsQueueShort = outlook.hasStreams
        guard let record = nextRecord else {
            // A port that had nothing short may still have longer data, which waits until the link
            // has taken the waiting records.
            isPortEmpty = !isShort
            return false
        }
        isPortEmpty = !outlook.mayHaveMore
        if let head = record.dataHead {
            try records.seal(head.bytes.span.extracting(0..<head.count), record.data.span)
            return true
        }
        // The bytes are moved out of the property, because a span of the property would be an
        // access to the whole session.
        var bytes = exchange(&shortRecord, with: [])
        defer { shortRecord = bytes }
        bytes.removeAll(keepingCapacity: true)
        record.append(to: &bytes)
        try records.seal(RecordType(rawValue: record.kind.rawValue), bytes.span)
        return true
    }

    /// The most bytes of data in one record of delivery. While a stream is open, a record fits into
    /// one SDU (unless SDUs are tiny), so that an urgent record does not wait long; if `isShort`, a
    /// record has at most ``Record/leastBulkPayload``. Without streams no record is urgent, so
    /// records may be long.
    private func dataLimit(isShort: Bool) -> Int {
        let longest = bulkPayload - (hasRoomForHeader ? 0 : DeliveryRecord.longestDataHeader)
        if isShort { return min(longest, Record.leastBulkPayload) }
        guard keepsQueueShort else { return longest }
        let overhead = records.engine.sealedLength(1 + DeliveryRecord.longestDataHeader)
        return min(longest, max(Record.leastBulkPayload, parameters.maximumSDU - overhead))
    }

    /// Whether a confirmation is sent now. A confirmation may be delayed like an `ack`, so that one
    /// confirmation covers several messages.
    private func confirms(_ owed: UInt64, now: UInt64) -> Bool {
        guard owed > 0 else {
            confirmationOwedSince = nil
            return false
        }
        confirmationOwedSince = confirmationOwedSince ?? now
        guard
            owed >= Record.messagesPerAck || requestedEnd != nil || isConfirmationDue(now: now)
        else { return false }
        confirmationOwedSince = nil
        return true
    }

    private func isConfirmationDue(now: UInt64) -> Bool {
        confirmationOwedSince.map { now >= $0.after(ackDelay) } ?? false
    }

    private func sealControl(now: UInt64) throws(ChannelError) -> Bool {
        if needsRekey {
            try records.rekeySending()
            return true
        }
        if owesAck(now: now) {
            try records.seal(.ack, number: acknowledgements.takeAck())
            return true
        }
        if let pong = owedPong {
            owedPong = nil
            try records.seal(.pong, pong)
            return true
        }
        if owesPadding {
            owesPadding = false
            try records.seal(.padding, [])
            return true
        }
        if owesPing {
            owesPing = false
            outstandingPing = now
            try records.seal(.ping, number: now)
            return true
        }
        return false
    }

    // MARK: - Receiving

    override func receive(_ plaintext: Range<Int>, now: UInt64) throws(ChannelError) {
        guard !plaintext.isEmpty else { throw .violation("a record without a type") }
        let type = RecordType(rawValue: records.inbound.withBytes { $0[plaintext.lowerBound] })
        let range = plaintext.dropFirst()
        if carriesDelivery, let kind = DeliveryRecord.Kind(rawValue: type.rawValue) {
            try refuseAfterEnd()
            return try receive(kind, range, now: now)
        }
        switch type {
        case .data:
            try refuseMessages()
            try keep(range, isLast: true)
            lastPieceTime = nil
            acknowledgements.didReceive(now: now)
        case .dataMore:
            try refuseMessages()
            guard !range.isEmpty else { throw .violation("an empty piece of a message") }
            if inbox.part == nil {
                inbox.part = parameters.budget.part(for: agreement.peer, revoke: onBudgetRevoked)
            }
            lastPieceTime = now
            try keep(range, isLast: false)
        case .end:
            try refuseAfterEnd()
            guard range.count == 1, !inbox.isMidMessage else {
                throw .violation("an end that is malformed or cuts a message")
            }
            peerEnd = EndReason(rawValue: records.inbound.withBytes { $0[range.lowerBound] })
            acknowledgements.didReceiveEnd(now: now)
            restartClosing(now: now)
        case .ping:
            guard range.count <= Record.maximumPing, owedPong == nil else {
                throw .violation("a ping that is too long or does not wait for its pong")
            }
            // Once both sides are done, a pong would only delay the closing of the link.
            if !isComplete { owedPong = records.inbound.withBytes { $0.span.array(in: range) } }
        case .pong:
            guard let ping = outstandingPing, number(in: range) == ping else {
                throw .violation("a pong to no ping")
            }
            outstandingPing = nil
        case .rekey:
            guard range.isEmpty, records.receiving.records > Record.leastRekeyInterval,
                !records.engine.announcesRekey
            else { throw .violation("a rekey that is malformed or too soon after the last") }
            try records.rekeyReceiving()
        case .ack:
            guard let count = number(in: range) else { throw .violation("a malformed ack") }
            try acknowledgements.peerAcknowledged(count)
            restartClosing(now: now)
        case .ready: throw .wrongReady
        case .reject: throw .violation("a malformed reject")
        default:
            guard type.isIgnorable else { throw .violation("a record of an unknown type") }
        }
    }

    private func receive(
        _ kind: DeliveryRecord.Kind, _ range: Range<Int>, now: UInt64
    ) throws(ChannelError) {
        guard let port else { preconditionFailure("without a port, no record is opened") }
        do throws(DeliveryError) {
            let record = try records.inbound.withBytes { bytes throws(DeliveryError) in
                try DeliveryRecord(kind, bytes.span.extracting(range))
            }
            let received = try port.receive(record)
            effect = max(effect, received.effect)
            if received.showsProgress { hasCarriedDelivery = true }
            if received.mayHaveAnswer { isPortEmpty = false }
            takesRecords = received.wantsRecords
            if !received.isMidMessage {
                lastPieceTime = nil
            } else if kind == .chunk {
                lastPieceTime = now
            }
        } catch {
            throw ChannelError(error)
        }
    }

    /// Throws if the channel carries no messages, or if the peer has sent its end.
    private func refuseMessages() throws(ChannelError) {
        guard !carriesDelivery else { throw .violation("a message beside the records of delivery") }
        try refuseAfterEnd()
    }

    private func refuseAfterEnd() throws(ChannelError) {
        guard !acknowledgements.hasReceivedEnd else { throw .violation("data after its end") }
    }

    /// A big-endian number of eight bytes; nil for another length.
    private func number(in range: Range<Int>) -> UInt64? {
        guard range.count == 8 else { return nil }
        return records.inbound.withBytes { bytes in
            var number: UInt64 = 0
            for index in range { number = number << 8 | UInt64(bytes[index]) }
            return number
        }
    }

    override func didResumeReading(now: UInt64) {
        super.didResumeReading(now: now)
        if lastPieceTime != nil { lastPieceTime = now }
    }

    // MARK: - Time

    private var idleDeadline: UInt64 { activity.lastActivity.after(idleTimeout) }
    /// Whether no ping of this side waits to be sealed or to be answered.
    private var mayPing: Bool { !owesPing && outstandingPing == nil }
    private var pingTime: UInt64 { activity.lastArrival.after(idleTimeout / 2) }
    private var paddingTime: UInt64 {
        max(activity.lastSend, lastPaddingTime).after(idleTimeout / 2)
    }

    override func nextTimeout(now: UInt64) -> UInt64 {
        var next = super.nextTimeout(now: now)
        if let pending = acknowledgements.ackPendingSince, !owesAck(now: now) {
            next = min(next, pending.after(ackDelay))
        }
        // A confirmation that is due is sealed as soon as the link has room, so it needs no timer.
        if let due = confirmationOwedSince?.after(ackDelay), due > now { next = min(next, due) }
        guard wantsBytes else { return owesPadding ? next : min(next, paddingTime) }
        next = min(next, idleDeadline)
        if mayPing { next = min(next, pingTime) }
        if let lastPieceTime { next = min(next, lastPieceTime.after(messageTimeout)) }
        return next
    }

    override func handleTimeout(now: UInt64) throws(ChannelError) -> Step {
        if case .complete = try super.handleTimeout(now: now) { return .complete }
        guard wantsBytes else {
            // A side that does not read blocks its peer. The padding shows the peer that this side
            // is alive.
            if !owesPadding, now >= paddingTime {
                owesPadding = true
                lastPaddingTime = now
            }
            return .wait
        }
        if now >= idleDeadline {
            throw .late(
                "the peer has been silent and took nothing for", configuration.timeouts.idle)
        }
        try checkRecordDeadline(now: now)
        if let lastPieceTime, now >= lastPieceTime.after(messageTimeout) {
            throw .late(
                "no further piece of a message came within", configuration.timeouts.message)
        }
        if mayPing, now >= pingTime { owesPing = true }
        return .wait
    }

    // MARK: - The end

    private var isComplete: Bool {
        acknowledgements.isSendingComplete && acknowledgements.isReceivingComplete
    }

    /// Reports to the port what has arrived. Once each side has acknowledged the other's `end`,
    /// starts the close deadline. The acceptor waits until this deadline for the dialer to close the
    /// link.
    override func didProgress(now: UInt64) {
        if effect != .none { port?.didReceiveAll(exchange(&effect, with: .none)) }
        guard isComplete else { return }
        if records.outbound.isEmpty { hasLinkTakenAll = true }
        beginClosing(now: now)
    }

    /// Whether both sides are done, and the link has taken this side's last acknowledgement. What is
    /// sealed after that does not matter.
    private var hasLinkTakenAll = false

    /// The dialer closes the link once its last acknowledgement has left, because the acceptor
    /// needs that acknowledgement.
    override func permittedLinkShutdown(canHalfClose: Bool, now: UInt64) -> LinkShutdown {
        isComplete && parameters.role == .dialer ? .closeWhenDrained : .stay
    }

    override func closeTimedOut() throws(ChannelError) -> Step {
        let limit = closeTimeout
        if isComplete {
            guard hasLinkTakenAll else {
                throw ChannelError(
                    .unacknowledged,
                    "the link did not take the last acknowledgement, so the peer does not know "
                        + "that everything was taken here")
            }
            return .complete
        }
        if acknowledgements.acknowledged < queued {
            throw .late(
                "the fate of what the peer has not acknowledged is unknown; no acknowledgement "
                    + "came within", limit, .unacknowledged)
        }
        if acknowledgements.isReceivingComplete {
            throw .late(
                "everything from the peer has arrived here, but the peer did not acknowledge this "
                    + "side's end within", limit)
        }
        if acknowledgements.hasReceivedEnd {
            throw .late(
                "this side did not receive and confirm all of the peer's messages within", limit)
        }
        return try super.closeTimedOut()
    }

    override func linkEnded(_ error: ChannelError?, canSend: Bool) throws(ChannelError) -> Step {
        // Nothing is missing once the link has taken this side's last acknowledgement.
        if hasLinkTakenAll { return .complete }
        guard acknowledgements.hasReceivedEnd else {
            throw ChannelError(
                .truncated, "the link ended before the peer said that it was done",
                underlying: error?.underlying)
        }
        let missing =
            acknowledgements.isSendingComplete
            ? "the peer knew that everything was taken here"
            : "the peer acknowledged everything; the fate of the rest is unknown"
        throw ChannelError(
            .unacknowledged, "the link ended before \(missing)", underlying: error?.underlying)
    }
}
