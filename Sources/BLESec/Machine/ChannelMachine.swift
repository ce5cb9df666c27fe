internal import BLESecChannelCore
internal import BLESecLinks
internal import BLESecPrimitives

/// One side of a channel as a state machine; its driver passes bytes and times in and out.
///
/// The driver calls ``receive(now:from:)`` when the link has bytes, ``transmit(now:to:)`` when the
/// link may take some, and ``handleTimeout(now:)`` at ``nextTimeout(now:)``. Times are nanoseconds
/// of any monotonic clock. After each call, the driver checks what has changed:
/// ``takeTrustQuestion()``, ``session`` and ``outcome``.
///
/// Each stage of a channel is an object. The object is used only while the stage lasts. A session is
/// an exception: its messages can still be received after the channel's end. Stages in parentheses
/// are optional:
///
///     Negotiation → Handshake → ReadyExchange → (PairingStage) → NegotiatedSession
///                   Handshake → (DirectProof) → DirectSession
///
/// A side that refuses its peer goes from `Negotiation`, `Handshake` or `PairingStage` to
/// ``Refusing``.
struct ChannelMachine: ~Copyable {
    /// How a channel ends.
    enum Outcome: Sendable {
        /// Both sides sent `end`, and everything is acknowledged; in direct mode, the link ended
        /// after all queued messages were sent.
        case complete
        case failed(ChannelError)

        /// The error that calls on an ended channel throw.
        var error: ChannelError {
            switch self {
            case .complete: ChannelError(.closed, "the channel has ended")
            case .failed(let error): error
            }
        }
    }

    /// What a call of ``transmit(now:to:)`` has done.
    enum Transmission {
        /// Nothing waits to be sent.
        case nothing
        /// The link took nothing.
        case blocked
        case sent
    }

    let parameters: ChannelParameters
    /// The stage that the channel is in; nil before the channel has begun and after its end.
    private(set) var stage: ChannelStage?
    /// The messages of both sides, once both sides are proven; kept when the channel ends.
    private(set) var session: Session?
    /// How the channel ended; nil while it is open.
    private(set) var outcome: Outcome? { didSet { isOver = outcome != nil } }
    /// Whether the channel has ended. A property of its own, because comparing ``outcome`` with nil
    /// copies the outcome.
    private(set) var isOver = false
    /// Whether the link is lost, and its remaining bytes are being read.
    private var isLinkLost = false
    /// The plans that were passed to the initializer; nil if none were, and once the channel has begun.
    private var givenPlans: OfferPlans?
    /// Ends the channel when its part of the memory budget is revoked.
    private var onBudgetRevoked: @Sendable () -> Void = {}

    /// Makes a machine; call ``begin(onBudgetRevoked:)`` next.
    ///
    /// An SDU of the link holds at most `maximumSDU` bytes. `plans`, if given, were made from
    /// `configuration` and `role`.
    init(
        role: ChannelRole, configuration: ChannelConfiguration, plans: OfferPlans? = nil,
        maximumSDU: Int, now: UInt64, budget: ReassemblyBudget = .shared
    ) {
        givenPlans = plans
        parameters = ChannelParameters(
            role: role, configuration: configuration, maximumSDU: maximumSDU, start: now,
            budget: budget)
    }

    /// Begins the channel. A dialer then has its first bytes to send.
    ///
    /// `onBudgetRevoked` is called, on any thread, when the channel has to end because its
    /// incomplete message takes too much of the process's memory budget.
    ///
    /// - Throws: `configuration` if the configuration contradicts itself or lacks a part. The
    ///   channel has then ended, and nothing is sent.
    mutating func begin(onBudgetRevoked: @escaping @Sendable () -> Void = {}) throws(ChannelError) {
        if let outcome { throw outcome.error }
        self.onBudgetRevoked = onBudgetRevoked
        do throws(ChannelError) {
            let plans: OfferPlans
            if let givenPlans {
                plans = givenPlans
            } else {
                plans = try OfferPlans(parameters.configuration, for: parameters.role)
            }
            givenPlans = nil
            stage =
                switch (parameters.configuration.mode, parameters.role) {
                case (.direct, _): try Handshake(direct: parameters, plans)
                case (.negotiated, .dialer): try Negotiation(dialer: parameters, plans)
                case (.negotiated, .acceptor): Negotiation(acceptor: parameters, plans)
                }
        } catch {
            outcome = .failed(error.during(.negotiating))
            throw error
        }
    }

    // MARK: - State

    /// Whether both sides are proven, so that identities may be reported and data may flow.
    var isReady: Bool { session != nil }
    /// Whether this side has made its last confirmation of a pairing that is not complete yet.
    var hasConfirmedPairing: Bool { (stage as? PairingStage)?.hasConfirmed ?? false }
    var phase: ChannelPhase { stage?.phase ?? (isOver ? .closed : .negotiating) }
    /// The peer's identity, once proven.
    var peer: PeerIdentity? { session?.agreement.peer }
    /// The key that the peer has claimed, proven or not; nil once the channel has ended.
    var claimedKey: Fingerprint? { stage?.claimedKey }
    /// Whether the driver should read from the link. False, for example, while a trust policy
    /// decides, or while enough messages wait for the application.
    var wantsBytes: Bool { stage?.wantsBytes ?? false }
    /// Whether the channel fails as soon as the link cannot take bytes any more; see
    /// ``ChannelStage/dependsOnSending``.
    var dependsOnSending: Bool { stage?.dependsOnSending ?? false }
    /// Whether the peer has sent its end, so that no more messages arrive.
    var hasPeerEnded: Bool { session?.hasPeerEnded ?? false }
    /// Whether a message waits to be received, or no more will arrive.
    var canReceive: Bool { isOver || session.map { !$0.inbox.isEmpty || $0.hasPeerEnded } ?? false }
    /// Whether another message may be queued now; otherwise `send` waits.
    var hasRoom: Bool { session?.hasRoom ?? false }
    /// The bytes of messages that are not sealed yet, plus ``Inbox/overhead`` for each message.
    var queuedBytes: Int { session?.outbox.byteCount ?? 0 }

    // MARK: - The link

    /// Reads from the link once, and processes what has arrived.
    mutating func receive(
        now: UInt64,
        from read: (inout OutputSpan<UInt8>) throws(LinkError) -> LinkReceive
    ) throws(LinkError) -> LinkReceive {
        guard let stage else { return .wouldBlock }
        let before = stage.records.inbound.count
        let result = try stage.records.inbound.append(
            room: Self.leastReadRoom, atMost: stage.readAllowance,
            orThrow: LinkError(.tooLarge, "the channel's buffer has no room for what arrives"), read
        )
        if case .bytes = result { process(arrived: stage.records.inbound.count - before, now: now) }
        return result
    }

    /// The minimum buffer space for one read; most reads have much more.
    private static let leastReadRoom = 16 << 10

    /// Seals what waits, and offers sealed bytes to the link; `send` returns how many bytes the
    /// link took.
    mutating func transmit(
        now: UInt64, to send: (Span<UInt8>) throws(LinkError) -> Int
    ) throws(LinkError) -> Transmission {
        sealPending(now: now)
        guard let stage, !stage.records.outbound.isEmpty else { return .nothing }
        let limit = parameters.maximumBytesOfOneSend
        let sent = try stage.records.outbound.withBytes { bytes throws(LinkError) in
            try send(bytes.span.extracting(first: limit))
        }
        guard sent > 0 else {
            stage.didBlock()
            return .blocked
        }
        stage.records.outbound.consume(sent)
        stage.didSend(sent, now: now)
        return .sent
    }

    /// Records that the link could take nothing.
    mutating func linkDidBlock() { stage?.didBlock() }

    /// No further record is sealed while at least this many sealed bytes wait. If the link keeps
    /// its queue short, this number is so small that only one long record, or several short ones,
    /// wait.
    private var sealAhead: Int {
        keepsQueueShort ? min(parameters.maximumSDU, Self.shortSealAhead) : parameters.maximumSDU
    }
    private static let shortSealAhead = 1 << 10
    /// Whether the link keeps its queue short; see ``Session/keepsQueueShort``.
    var keepsQueueShort: Bool { session?.keepsQueueShort ?? false }

    /// Seals records until ``sealAhead`` bytes wait, nothing is left to seal, or the engine has to
    /// read first.
    mutating func sealPending(now: UInt64) {
        guard let stage else { return }
        do throws(ChannelError) {
            while stage.records.outbound.count < sealAhead, stage.records.engine.canSeal(),
                try stage.sealNext(now: now)
            {}
        } catch {
            fail(error)
        }
        // Once this side's `ready` is sealed, the session can begin.
        if stage is ReadyExchange { process(arrived: 0, now: now) }
    }

    var hasUnsentBytes: Bool { stage?.records.outbound.isEmpty == false }

    /// Records that the link is lost: the bytes that remain in it are read, with extra room for
    /// their messages.
    mutating func linkWasLost(now: UInt64) {
        isLinkLost = true
        session?.isLinkLost = true
        // Processes the records that have waited for room in the inbox. Otherwise they could fill
        // the receive buffer. Space for a read is certain only if the buffer holds nothing but an
        // incomplete record.
        process(arrived: 0, now: now)
    }

    /// Records that the link has ended; `error` is the cause, or `nil` if the peer closed the link.
    /// If `canSend` is true, perhaps only the peer's direction has ended, and this side can still
    /// send. Only direct mode uses `canSend`.
    mutating func linkEnded(_ error: ChannelError?, canSend: Bool = false, now: UInt64) {
        perform { stage throws(ChannelError) in try stage.linkEnded(error, canSend: canSend) }
        if !isOver { session?.didProgress(now: now) }
    }

    /// How far the driver may close the link.
    func permittedLinkShutdown(canHalfClose: Bool, now: UInt64) -> LinkShutdown {
        guard !isOver, let session, session.records.outbound.isEmpty else { return .stay }
        return session.permittedLinkShutdown(canHalfClose: canHalfClose, now: now)
    }

    /// Records that the link's own queue has become shorter, which restarts the close deadline in
    /// direct mode. In negotiated mode, acknowledgements restart the deadline, and the queue must
    /// not: a peer that sends pings, and so makes this side send pongs, could prolong the close.
    mutating func linkDidPassOn(now: UInt64) {
        (session as? DirectSession)?.restartClosing(now: now)
    }

    /// Records that the driver has closed the link after ``LinkShutdown/closeWhenDrained``.
    mutating func didCloseLink() { complete() }

    // MARK: - Time

    /// When ``handleTimeout(now:)`` must be called next; `UInt64.max` for never.
    func nextTimeout(now: UInt64) -> UInt64 { stage?.nextTimeout(now: now) ?? .max }

    /// Performs what is due, such as an acknowledgement, a ping, or the failure of a late stage.
    mutating func handleTimeout(now: UInt64) {
        let wasFull = !wantsBytes
        perform { stage throws(ChannelError) in try stage.handleTimeout(now: now) }
        resumeReading(wasFull: wasFull, now: now)
    }

    // MARK: - The trust decision

    /// Returns the stage's question for the trust policy, once; nil if there is none.
    func takeTrustQuestion() -> TrustQuestion? {
        isReady ? nil : (stage as? UnauthenticatedStage)?.takeTrustQuestion()
    }

    /// Applies the trust decision: `refusal` says why the peer is refused; nil admits the peer. The
    /// code `limitExceeded` means that nobody could be asked. A late decision changes nothing.
    mutating func didDecide(_ refusal: ChannelError?, now: UInt64) {
        guard let stage = stage as? UnauthenticatedStage else { return }
        do throws(ChannelError) {
            try stage.didDecide(refusal, now: now)
        } catch {
            fail(error)
        }
        process(arrived: 0, now: now)
    }

    /// Turns a dialer away to make room. A dialer that waits for an answer gets the answer `busy`,
    /// and has 2 seconds to close the link; in any later stage this side closes the link.
    mutating func turnAway(_ error: ChannelError, now: UInt64) {
        guard let negotiation = stage as? Negotiation, parameters.role == .acceptor else {
            return fail(error)
        }
        perform { _ throws(ChannelError) in .next(try negotiation.turnAway(error, now: now)) }
    }

    // MARK: - Messages

    mutating func queue(_ message: consuming [UInt8]) throws(ChannelError) -> UInt64 {
        if isOver, let outcome { throw outcome.error }
        guard let session else { throw ChannelError(.closed, "the channel is not ready to send") }
        return try session.queue(message)
    }

    /// Removes the oldest message; call ``resumeReading(wasFull:now:)`` next. The message counts as
    /// taken only after ``Session/didTakeMessage(now:)``, since the application may read it in parts.
    func popMessage() -> [UInt8]? { session?.inbox.next() }

    /// Processes what has arrived if there was no room before (`wasFull`), and there is room now.
    /// Then returns true, and the driver has to send what waits and read again.
    @discardableResult
    mutating func resumeReading(wasFull: Bool, now: UInt64) -> Bool {
        guard wasFull, wantsBytes else { return false }
        didResumeReading(now: now)
        return true
    }

    /// Called when the ``DeliveryPort`` may take records again. If the port takes records now and
    /// did not before, processes the records that have arrived. The driver then sends and reads.
    mutating func portDidResume(now: UInt64) {
        guard !isOver, let session = session as? NegotiatedSession else { return }
        let wasFull = !wantsBytes
        session.updateTakesRecords()
        session.portMayHaveRecords()
        resumeReading(wasFull: wasFull, now: now)
    }

    /// Called when the ``DeliveryPort`` may have got records to send.
    func portMayHaveRecords() { session?.portMayHaveRecords() }

    /// Records that the program receives again: the peer's silence is measured from now on.
    mutating func didResumeReading(now: UInt64) {
        guard let session, !isOver else { return }
        session.didResumeReading(now: now)
        process(arrived: 0, now: now)
    }

    /// Sends `end` after the messages that are queued.
    func end(_ reason: EndReason = .done) { session?.end(reason) }

    /// Begins to close the channel; the close deadline starts now.
    mutating func close(within limit: Duration? = nil, now: UInt64) {
        guard !isOver, let session else { return }
        let wasFull = !wantsBytes
        session.close(within: limit, now: now)
        resumeReading(wasFull: wasFull, now: now)
    }

    /// Derives bytes for another layer; see ``SecureChannel/export(label:context:count:)``.
    func export(label: String, context: [UInt8], count: Int) throws(ChannelError) -> SecretBytes {
        guard !isOver, let session else { throw .engineHasEnded }
        return try session.records.engine.export(label: label, context: context, count: count)
    }

    // MARK: - Stages

    private mutating func process(arrived count: Int, now: UInt64) {
        do throws(ChannelError) {
            try stage?.didReceive(count, now: now)
            while let stage, apply(try stage.step(now: now)) {}
            try stage?.didProcess(now: now)
        } catch {
            fail(error)
        }
    }

    private mutating func perform(
        _ call: (ChannelStage) throws(ChannelError) -> ChannelStage.Step
    ) {
        guard let stage else { return }
        do throws(ChannelError) {
            _ = apply(try call(stage))
        } catch {
            fail(error)
        }
    }

    /// Applies the result of a stage's call; returns whether the call may be made again, perhaps to
    /// the next stage.
    private mutating func apply(_ step: ChannelStage.Step) -> Bool {
        switch step {
        case .wait: return false
        case .again: return true
        case .complete:
            complete()
            return false
        case .next(let next):
            stage = next
            if let session = next as? Session {
                session.onBudgetRevoked = onBudgetRevoked
                session.isLinkLost = isLinkLost
                self.session = session
            }
            return true
        }
    }

    /// Ends the channel: as failed if the reason of the peer's end has an ``EndReason/error``, and
    /// otherwise as complete.
    private mutating func complete() {
        finish(session?.peerEndReason?.error.map { .failed($0) } ?? .complete)
    }

    /// Ends the channel with `error`, or with the stage's more exact error: for example this side's
    /// earlier refusal of the peer, or the error that the peer is this device itself.
    mutating func fail(_ error: ChannelError) {
        finish(.failed(stage?.finalError(for: error) ?? error))
    }

    /// Ends the channel; the first outcome stands. Keys, buffers and unsent messages are discarded
    /// at once; whole messages that have arrived stay for the application.
    private mutating func finish(_ outcome: Outcome) {
        guard !isOver else { return }
        if case .failed(let error) = outcome {
            self.outcome = .failed(error.during(phase))
        } else {
            self.outcome = outcome
        }
        stage?.records.end()
        stage = nil
        session?.outbox.removeAll()
        session?.inbox.removePartial()
    }
}
