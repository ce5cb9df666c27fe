internal import BLESecChannelCore

// Deadlines, and the ways a channel ends.
extension ChannelMachine {
    /// When ``timeout(now:)`` must be called next; `UInt64.max` for never.
    func deadline(now: UInt64) -> UInt64 {
        guard outcome == nil else { return .max }
        var next = phaseEnd
        if clocks.ready != nil, stage == .records {
            // An action that is already due waits for something other than time, such as room on
            // the link.
            if clocks.closing == nil { next = min(next, start.after(clocks.session)) }
            if configuration.mode == .direct, acknowledgements.endSent, role == .dialer,
                quietTime > now
            {
                next = min(next, quietTime)
            }
            if let pending = acknowledgements.ackPendingSince, !owesAck(now: now) {
                next = min(next, pending.after(clocks.ackDelay))
            }
            if wantsBytes {
                if configuration.mode == .negotiated { next = min(next, deadDeadline) }
                if mayPing { next = min(next, pingTime) }
                if let began = clocks.recordBegan {
                    next = min(next, began.after(clocks.record))
                }
                if let moved = clocks.messageMoved {
                    next = min(next, moved.after(clocks.message))
                }
            } else if mayKeepAlive {
                next = min(next, keepAliveTime)
            }
        }
        return next
    }

    /// Performs what is due: an acknowledgement, a ping, a keep-alive, or the failure of a phase
    /// that took too long.
    mutating func timeout(now: UInt64) {
        guard outcome == nil else { return }
        if now >= phaseEnd { return phaseOver() }
        guard clocks.ready != nil, stage == .records else { return }
        if clocks.closing == nil, now >= start.after(clocks.session) {
            end(.expired)
            beginClosing(now: now)
        }
        guard wantsBytes else {
            // While this side does not read, the peer makes no progress and would take this side
            // for dead.
            if mayKeepAlive, now >= keepAliveTime {
                control.keepAlive = true
                clocks.lastKeepAlive = now
            }
            return
        }
        if configuration.mode == .negotiated, now >= deadDeadline {
            return fail(
                .late("the peer has been silent and took nothing for", clocks.timeouts.idle))
        }
        if let began = clocks.recordBegan, now >= began.after(clocks.record) {
            return fail(
                .late("a record was begun and not finished within", clocks.timeouts.record))
        }
        if let moved = clocks.messageMoved, now >= moved.after(clocks.message) {
            return fail(
                .late("a message was begun and came no further within", clocks.timeouts.message))
        }
        if mayPing, now >= pingTime { control.ping = true }
    }

    /// Records that the application reads again: the peer's silence is measured from now on.
    mutating func resumedReading(now: UInt64) {
        clocks.didArrive(now: now)
        if clocks.recordBegan != nil { clocks.recordBegan = now }
        if clocks.messageMoved != nil { clocks.messageMoved = now }
        process(arrived: 0, now: now)
    }

    /// Begins to close the channel; the close deadline starts now.
    mutating func close(now: UInt64) {
        end()
        beginClosing(now: now)
    }

    /// Starts the close deadline. A closing side waits for acknowledgements, so it has more room to
    /// read.
    private mutating func beginClosing(now: UInt64) {
        guard clocks.closing == nil else { return }
        let wasFull = !wantsBytes
        clocks.closing = now
        clocks.closeBegan = now
        if wasFull, wantsBytes { resumedReading(now: now) }
    }

    /// Restarts the close deadline, because fewer messages are left to acknowledge. This applies
    /// only after the peer's end, because the peer may send messages without limit before.
    mutating func restartClose(now: UInt64) {
        if acknowledgements.endReceived, clocks.closing != nil, stage == .records {
            clocks.closing = now
        }
    }

    /// Whether an acknowledgement is to be sent now.
    func owesAck(now: UInt64) -> Bool {
        acknowledgements.owesAck(
            now: now, isEnding: outbox.isEmpty && endRequested != nil && !acknowledgements.endSent)
    }

    /// Starts the last deadline once both ends are sent and acknowledged: an acceptor then waits a
    /// limited time for the dialer to close the link.
    mutating func noteCompletion(now: UInt64) {
        guard acknowledgements.isSendingComplete, acknowledgements.isReceivingComplete,
            clocks.closing == nil
        else {
            return
        }
        clocks.closing = now
    }

    /// Records that the link has ended; `error` is the cause, or `nil` if the peer closed the link.
    ///
    /// If `canSend` is true, perhaps only the peer's direction has ended; this matters in direct
    /// mode only.
    mutating func linkEnded(_ error: ChannelError?, canSend: Bool = false, now: UInt64) {
        guard outcome == nil else { return }
        if let refusal { return finish(.failed(refusal)) }
        guard stage == .records, isReady else {
            // An acceptor that detects a connection to itself closes the link without sending
            // anything.
            if unauthenticatedBytes == 0, dialToken?.cameBack == true {
                return fail(.talksToItself)
            }
            if awaitsProof {
                // A reset is reported in the same way: a peer that closes a socket with unread
                // bytes resets it.
                var unproven = ChannelError.unproven(
                    "the peer closed the link before it proved its key")
                unproven.underlying = error?.underlying
                return fail(unproven)
            }
            return fail(
                error ?? ChannelError(.truncated, "the peer closed the link during the handshake"))
        }
        if configuration.mode == .direct { return directLinkEnded(error, canSend: canSend) }
        if acknowledgements.isSendingComplete, acknowledgements.isReceivingComplete {
            return complete()
        }
        if acknowledgements.endReceived {
            let missing =
                acknowledgements.isSendingComplete
                ? "the peer knew that everything was taken here"
                : "the peer acknowledged everything; what it has not acknowledged is unknown"
            return fail(
                ChannelError(
                    .unacknowledged, "the link ended before \(missing)",
                    underlying: error?.underlying))
        }
        fail(
            ChannelError(
                .truncated, "the link ended before the peer said that it was done",
                underlying: error?.underlying))
    }

    private mutating func directLinkEnded(_ error: ChannelError?, canSend: Bool) {
        if let error { return fail(error) }
        guard inbound.isEmpty else {
            return fail(ChannelError(.truncated, "the link ended inside a message"))
        }
        guard directPeerEnded || !engine.provesEnd else {
            return fail(
                ChannelError(.truncated, "the link ended before the peer said that it was done"))
        }
        directPeerEnded = true
        // The peer may have ended only its direction, and may wait for what this side still sends.
        if canSend { return }
        guard outbox.isEmpty, outbound.isEmpty else {
            return fail(
                ChannelError(.truncated, "the peer closed the link before everything was sent"))
        }
        finish(.complete)
    }

    /// What the driver must do with the link, now that nothing is left to send.
    enum LinkShutdown: Sendable {
        /// Nothing yet.
        case stay
        /// Half-close the link if it supports that; the peer closes.
        case halfClose
        /// Close the link as soon as its own queue is empty.
        case closeWhenDrained
    }

    /// How far the driver may close the link. The dialer closes, because its last record is an
    /// acknowledgement that the acceptor needs.
    func linkShutdown(canHalfClose: Bool, now: UInt64) -> LinkShutdown {
        guard outcome == nil, outbound.isEmpty else { return .stay }
        if stage == .records, isReady, configuration.mode == .direct {
            guard acknowledgements.endSent else { return .stay }
            if directPeerEnded { return .closeWhenDrained }
            if canHalfClose { return .halfClose }
            let isQuiet = peerWentQuiet || now >= quietTime
            return role == .dialer && isQuiet ? .closeWhenDrained : .stay
        }
        let isDone = acknowledgements.isSendingComplete && acknowledgements.isReceivingComplete
        return isDone && role == .dialer ? .closeWhenDrained : .stay
    }

    /// Records that the driver has closed the link after ``LinkShutdown/closeWhenDrained``.
    mutating func didCloseLink() { complete() }

    /// When the current phase has taken too long.
    private var phaseEnd: UInt64 {
        let timeouts = clocks.timeouts
        switch stage {
        case .hello, .early, .answer: return start.after(timeouts.negotiate)
        case .handshake: return (clocks.negotiated ?? start).after(timeouts.handshake)
        case .awaitingTrustDecision:
            return (clocks.awaitingTrustDecision ?? start).after(timeouts.trustDecision)
        case .refusing: return (clocks.closing ?? start).after(Self.timeToGo)
        case .records where awaitsProof:
            return (clocks.handshakeDone ?? start).after(timeouts.proof)
        case .records where !isReady: return (clocks.handshakeDone ?? start).after(timeouts.ready)
        case .records:
            // The session's limit applies even if the peer acknowledges slowly.
            guard let closing = clocks.closing else { return .max }
            let last = max(start.after(clocks.session), clocks.closeBegan ?? closing)
            return min(closing, last).after(timeouts.close)
        }
    }

    /// Fails a phase that has taken too long, with an error that names what was missing.
    private mutating func phaseOver() {
        let timeouts = clocks.timeouts
        switch stage {
        case .hello, .early, .answer:
            fail(
                .late("the peer did not finish its hello or answer within", timeouts.negotiate))
        case .handshake:
            fail(.late("the handshake did not end within", timeouts.handshake))
        case .awaitingTrustDecision:
            fail(.late("the trust policy did not decide within", timeouts.trustDecision))
        case .refusing:
            fail(.late("the peer did not go within", Self.timeToGo))
        case .records where awaitsProof:
            let seconds = timeouts.proof.components.seconds
            fail(.unproven("the peer sent no message to prove its key within \(seconds) s"))
        case .records where !isReady:
            fail(.late("the peer's ready did not come within", timeouts.ready))
        case .records
        where acknowledgements.isSendingComplete && acknowledgements.isReceivingComplete:
            guard outbound.isEmpty else {
                return fail(
                    ChannelError(
                        .unacknowledged,
                        "the link did not take the last acknowledgement, so the peer does not know "
                            + "that everything was taken here"))
            }
            complete()
        case .records
        where acknowledgements.acknowledged < queued && configuration.mode == .negotiated:
            fail(
                .late(
                    "the fate of what the peer has not acknowledged is unknown; no acknowledgement "
                        + "came within", timeouts.close, .unacknowledged))
        case .records where acknowledgements.endReceived:
            fail(
                .late(
                    "the peer's messages were not received, or not confirmed, here within",
                    timeouts.close))
        case .records:
            fail(.late("the peer did not end its side within", timeouts.close))
        }
    }

    /// How long a refused peer may take to close the link.
    private static let timeToGo: Duration = .seconds(2)

    /// When a direct link without half-close has been quiet long enough to be closed.
    private var quietTime: UInt64 { clocks.lastSign.after(.seconds(1)) }
    private var deadDeadline: UInt64 { clocks.lastSign.after(clocks.idle) }
    private var pingTime: UInt64 { clocks.lastArrival.after(clocks.halfIdle) }
    private var keepAliveTime: UInt64 {
        max(clocks.lastArrival, clocks.lastKeepAlive).after(clocks.halfIdle)
    }
    private var mayKeepAlive: Bool {
        configuration.mode == .negotiated && !wantsBytes && !control.keepAlive
    }
    private var mayPing: Bool {
        configuration.mode == .negotiated && !control.ping && control.outstandingPing == nil
    }
}

extension ChannelError {
    static func late(
        _ what: String, _ limit: Duration, _ code: Code = .timedOut
    ) -> ChannelError {
        ChannelError(code, "\(what) \(limit.components.seconds) s")
    }

    /// An error that tells what was missing, and what an honest peer must send instead.
    static func unproven(_ what: String) -> ChannelError {
        ChannelError(
            .unproven,
            "\(what); with this pattern in direct mode it has to send a message first, which may be "
                + "empty")
    }
}
