internal import BLESecChannelCore
internal import BLESecNoise

/// A session in direct mode: each record that is not empty is a message.
///
/// An empty record is the last that its sender sends: the sender's end. Over TLS, the peer's empty
/// record has to arrive before the link ends. Over Noise, the link may end without an empty record.
/// Also over Noise, a side's first record may be empty because it only proves a key; such a record
/// is no end.
///
/// If the link cannot be half-closed, a dialer that has sent its empty record closes the link when
/// the peer's empty record has arrived. Over Noise that record may never come. So the dialer
/// also closes the link after a second in which nothing arrives, if the program has room for more
/// and no record is incomplete.
final class DirectSession: Session {
    private var takenCount: UInt64 = 0
    /// When this side's end was sealed; nil while it is not sealed.
    private var endTime: UInt64?
    private var peerHasEnded = false

    /// Returns the next stage: ``DirectProof`` if the peer must still prove its key with its first
    /// message, and the session otherwise.
    static func begin(
        after handshake: Handshake, _ agreement: Agreement, now: UInt64
    ) throws(ChannelError) -> ChannelStage {
        handshake.records.engine.isPeerProven
            ? try DirectSession(afterProofIn: handshake, agreement, now: now)
            : DirectProof(after: handshake, agreement, now: now)
    }

    init(
        afterProofIn previous: UnauthenticatedStage, _ agreement: Agreement, now: UInt64
    ) throws(ChannelError) {
        super.init(after: previous, agreement, now: now)
        returnedDial = previous.returnedDial
        // This side proves its key at once, with an empty record, because the application may have
        // nothing to send first.
        if records.engine.owesProof { try seal([UInt8]().span) }
    }

    private func seal(_ payload: Span<UInt8>) throws(ChannelError) {
        try records.seal(payload)
    }

    // MARK: - Session

    override var hasSealedEnd: Bool { endTime != nil }
    override var hasPeerEnded: Bool { peerHasEnded }
    override var taken: UInt64 { takenCount }
    override func didTakeMessage(now: UInt64) { takenCount += 1 }

    override func check(_ message: [UInt8]) throws(ChannelError) {
        guard !message.isEmpty else {
            throw ChannelError(
                .configuration, "an empty message cannot be told from the end in direct mode")
        }
    }

    override func sealNext(now: UInt64) throws(ChannelError) -> Bool {
        if !outbox.isEmpty {
            // Plain Noise messages have no way to announce a new key.
            if records.engine.announcesRekey, needsRekey { try records.rekeySending() }
            _ = try outbox.take(atMost: bulkPayload) { piece, _ throws(ChannelError) in
                try seal(piece)
            }
            return true
        }
        guard requestedEnd != nil, !hasSealedEnd else { return false }
        try seal([UInt8]().span)
        endTime = now
        didSealEnd()
        return true
    }

    override func receive(_ plaintext: Range<Int>, now: UInt64) throws(ChannelError) {
        guard !peerHasEnded else { throw .violation("data after its end") }
        if plaintext.isEmpty {
            peerHasEnded = true
        } else {
            try keep(plaintext, isLast: true)
        }
    }

    // MARK: - The end

    /// From when this side may close a link that cannot be half-closed, although the peer has not
    /// ended. Nil over TLS, for an acceptor, and before this side's end.
    ///
    /// Also nil while this side does not read, since the peer may then have sent more; and while
    /// bytes of an incomplete record wait, since closing the link would discard them.
    private var quietTime: UInt64? {
        guard let endTime, parameters.role == .dialer, !records.engine.provesEnd, wantsBytes,
            records.inbound.isEmpty
        else { return nil }
        return max(endTime, activity.lastActivity).after(.seconds(1))
    }

    override func nextTimeout(now: UInt64) -> UInt64 {
        let next = super.nextTimeout(now: now)
        guard let quietTime, quietTime > now else { return next }
        return min(next, quietTime)
    }

    /// Fails and sends no end. In direct mode an end has no reason, so an end would tell the peer that
    /// everything was sent.
    override func expire(now: UInt64) throws(ChannelError) {
        throw .late("the session has reached its maximum age of", configuration.timeouts.session)
    }

    override func handleTimeout(now: UInt64) throws(ChannelError) -> Step {
        let step = try super.handleTimeout(now: now)
        try checkRecordDeadline(now: now)
        return step
    }

    /// Starts the close deadline when both sides have ended, and the link has taken everything. From
    /// then on, the driver only waits until the link's own queue is empty. The deadline limits this
    /// wait.
    override func didProgress(now: UInt64) {
        if hasSealedEnd, peerHasEnded, records.outbound.isEmpty { beginClosing(now: now) }
    }

    override func closeTimedOut() throws(ChannelError) -> Step {
        if peerHasEnded {
            throw .late("the link did not pass on everything that was sent within", closeTimeout)
        }
        if !wantsBytes {
            throw .late(
                "this side did not receive all of the peer's messages within", closeTimeout)
        }
        return try super.closeTimedOut()
    }

    override func permittedLinkShutdown(canHalfClose: Bool, now: UInt64) -> LinkShutdown {
        guard hasSealedEnd else { return .stay }
        if peerHasEnded { return .closeWhenDrained }
        if canHalfClose { return .halfClose }
        guard let quietTime else { return .stay }
        return now >= quietTime ? .closeWhenDrained : .stay
    }

    override func linkEnded(_ error: ChannelError?, canSend: Bool) throws(ChannelError) -> Step {
        if returnedDial?.isSelfConnection == true { throw .talksToItself }
        if let error { throw error }
        guard records.inbound.isEmpty else {
            throw ChannelError(.truncated, "the link ended inside a message")
        }
        guard peerHasEnded || !records.engine.provesEnd else {
            throw ChannelError(.truncated, "the link ended before the peer said that it was done")
        }
        peerHasEnded = true
        // The peer may have ended only its direction, and may wait for what this side still sends.
        if canSend { return .wait }
        guard outbox.isEmpty, records.outbound.isEmpty else {
            throw ChannelError(.truncated, "the peer closed the link before everything was sent")
        }
        return .complete
    }
}

/// The stage in direct mode in which the handshake is over, and the peer still has to prove its key
/// with its first transport message. Until then, no application data is sent, and the peer's
/// identity is not reported.
final class DirectProof: UnauthenticatedStage {
    private let agreement: Agreement

    init(after handshake: Handshake, _ agreement: Agreement, now: UInt64) {
        self.agreement = agreement
        super.init(after: handshake, now: now)
    }

    override var phase: ChannelPhase { .proving }
    override var claimedKey: Fingerprint? { agreement.peer.fingerprint }

    /// The proof may be as long as the longest transport message; its u16 length takes 2 more bytes.
    override var unauthenticatedLimit: Int {
        super.unauthenticatedLimit.addingSaturating(2 + HandshakeState.maximumMessageLength)
    }

    override func step(now: UInt64) throws(ChannelError) -> Step {
        guard !records.inbound.isEmpty, let record = try records.open() else { return .wait }
        guard let plaintext = record.plaintext else {
            records.inbound.consume(record.consumed)
            return .again
        }
        guard records.engine.isPeerProven else {
            throw .unproven("the peer's first message proves nothing")
        }
        try refuseOwnKey(ClaimedIdentity(agreement.peer))
        let session = try DirectSession(afterProofIn: self, agreement, now: now)
        // An empty message that serves as the proof is not an end.
        if !plaintext.isEmpty { try session.receive(plaintext, now: now) }
        session.records.inbound.consume(record.consumed)
        return .next(session)
    }

    override func nextTimeout(now: UInt64) -> UInt64 {
        beginTime.after(configuration.timeouts.proof)
    }

    override func handleTimeout(now: UInt64) throws(ChannelError) -> Step {
        guard now >= nextTimeout(now: now) else { return .wait }
        let limit = configuration.timeouts.proof.inSeconds
        throw .unproven("the peer sent no message to prove its key within \(limit)")
    }

    override func linkEnded(_ error: ChannelError?, canSend: Bool) throws(ChannelError) -> Step {
        // A reset gives the same error: a peer that closes a socket with unread bytes resets it.
        var unproven = ChannelError.unproven("the peer closed the link before it proved its key")
        unproven.underlying = error?.underlying
        throw unproven
    }
}

extension ChannelError {
    /// An error that says what was missing, and what an honest peer must send.
    fileprivate static func unproven(_ what: String) -> ChannelError {
        ChannelError(
            .unproven,
            "\(what); with this pattern in direct mode the peer proves its key with its first "
                + "message, which may be empty")
    }
}
