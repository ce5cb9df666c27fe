internal import BLESecChannelCore

/// The stage in which both sides, which have proven their keys, pair. Neither side admits the other
/// before the pairing is complete (`docs/wire-format.md`, "Pairing").
final class PairingStage: UnauthenticatedStage {
    private let agreement: Agreement
    private let exchange: PairingExchange
    /// Since when the exchange has waited for the peer, the store or a person.
    private var waitsSince: UInt64
    /// Whether ``takeTrustQuestion()`` has returned the exchange's present question.
    private var hasAsked = false
    /// Why this side refuses the peer; nil if it does not.
    private var refusal: ChannelError?
    /// Whether it is certain that the peer has not stored this side's key, and will not store it.
    private var hasCertainlyFailed = false

    init(
        after readyExchange: ReadyExchange, _ agreement: Agreement, _ rule: TrustPolicy.PairingRule,
        own: Fingerprint, peer: Fingerprint, now: UInt64
    ) {
        self.agreement = agreement
        exchange = PairingExchange(
            rule,
            PairingExchange.Parties(
                role: readyExchange.parameters.role, own: own, peer: peer,
                handshakeHash: agreement.handshakeHash))
        waitsSince = now
        super.init(after: readyExchange, now: now)
    }

    private var awaitsPersonHere: Bool {
        if case .person = exchange.question { true } else { false }
    }

    // MARK: - ChannelStage

    override var phase: ChannelPhase { awaitsPersonHere ? .awaitingTrustDecision : .proving }
    override var wantsBytes: Bool { exchange.wantsRecord && refusal == nil }
    override var dependsOnSending: Bool { awaitsPersonHere }
    override var failsAtByteLimit: Bool { exchange.wantsRecord }
    override var claimedKey: Fingerprint? { agreement.peer.fingerprint }

    override func step(now: UInt64) throws(ChannelError) -> Step {
        if let refusal {
            let zeros = [UInt8](repeating: 0, count: Record.readyLength - 1)
            try records.seal(.reject, [RejectCode.refused.rawValue] + zeros)
            return .next(Refusing(after: self, refusal, now: now))
        }
        if exchange.isComplete {
            return .next(NegotiatedSession(after: self, agreement, now: now))
        }
        guard exchange.wantsRecord, !records.inbound.isEmpty, let record = try records.open() else {
            return .wait
        }
        let plaintext = record.plaintext.map { range in
            records.inbound.withBytes { $0.span.array(in: range) }
        }
        records.inbound.consume(record.consumed)
        if let plaintext { try receive(plaintext, now: now) }
        return .again
    }

    private func receive(_ plaintext: [UInt8], now: UInt64) throws(ChannelError) {
        let type = plaintext.first.map { RecordType(rawValue: $0) }
        if let type, type.isIgnorable { return }
        let payload = Array(plaintext.dropFirst())
        try advance(now: now) { () throws(ChannelError) in
            guard let type else { throw .violation("a record without a type") }
            guard type != .reject else { throw rejection }
            guard type == .pair else { throw .violation("a record before the pairing is over") }
            try exchange.receive(payload)
        }
    }

    /// Makes a call that advances or ends the exchange, and seals the records that follow. If this
    /// side refuses the peer, the next ``step(now:)`` tells the peer. If it is certain that the
    /// pairing has failed, the store first removes what it has kept for this pairing.
    private func advance(
        now: UInt64, _ call: () throws(ChannelError) -> Void
    ) throws(ChannelError) {
        waitsSince = now
        hasAsked = false
        do throws(ChannelError) {
            try call()
        } catch {
            // The records made before the error are sent too: they tell the peer in which way this
            // side pairs, even if the peer pairs in another way.
            while let record = exchange.nextRecord() { try records.seal(.pair, record) }
            if showsCertainFailure(error) {
                hasCertainlyFailed = true
                if exchange.forgetPeer(failingWith: error) { return }
            }
            let isRefusedHere = ![.protocolViolation, .refused].contains(error.code)
            guard isRefusedHere, !exchange.isPeerInSession else { throw error }
            refusal = reason(for: error)
            return
        }
        while let record = exchange.nextRecord() { try records.seal(.pair, record) }
    }

    override func takeTrustQuestion() -> TrustQuestion? {
        guard !hasAsked, let question = exchange.question else { return nil }
        hasAsked = true
        return switch question {
        case .store(let call): .lookUp(call)
        case .person(let call):
            .evaluate({ _ in try await call() }, ClaimedIdentity(agreement.peer))
        }
    }

    override func didDecide(_ refusal: ChannelError?, now: UInt64) throws(ChannelError) {
        guard exchange.question != nil, hasAsked else { return }
        let verdict = refusal.map { TrustPolicy.Verdict.refuse($0.reason) } ?? .admit
        try advance(now: now) { () throws(ChannelError) in try exchange.didDecide(verdict) }
    }

    override func nextTimeout(now: UInt64) -> UInt64 {
        let timeouts = configuration.timeouts
        let awaitsDecision = exchange.question != nil || exchange.awaitsPersonAtPeer
        return waitsSince.after(awaitsDecision ? timeouts.trustDecision : timeouts.ready)
    }

    override func handleTimeout(now: UInt64) throws(ChannelError) -> Step {
        guard now >= nextTimeout(now: now) else { return .wait }
        let timeouts = configuration.timeouts
        guard exchange.question == nil else {
            throw .late("the pairing was not confirmed here within", timeouts.trustDecision)
        }
        throw .late(
            "the peer did not continue the pairing within",
            exchange.awaitsPersonAtPeer ? timeouts.trustDecision : timeouts.ready)
    }

    // MARK: - Errors

    private var rejection: ChannelError {
        ChannelError(
            .refused,
            "the peer refuses to pair: the codes differ, or its code or invitation is used or too "
                + "old, or somebody there has said no")
    }

    /// Whether `error`, which the exchange or an authentic record of the peer has caused, shows that
    /// the peer has not stored this side's key, and will not store it.
    ///
    /// Usually the acceptor stores the dialer's key only after the dialer's `done`. So a dialer knows
    /// that this pairing has failed if either side refuses, or the acceptor breaks the protocol,
    /// before the dialer stores the acceptor's key. If the acceptor sends `done` instead of the
    /// dialer, the acceptor has stored the dialer's key already. What anyone on the link can cause,
    /// such as too many bytes, shows nothing.
    private func showsCertainFailure(_ error: ChannelError) -> Bool {
        parameters.role == .dialer && !exchange.isBinding && !exchange.awaitsDone
            && [.refused, .untrusted, .protocolViolation].contains(error.code)
    }

    /// Returns this side's refusal of the peer, if there is one. Otherwise returns `error`, or
    /// `mayBePaired` if this side has confirmed and cannot know whether the peer has stored this
    /// side's key. An error by which one side refuses the other gets the peer's identity.
    override func reason(for error: ChannelError) -> ChannelError {
        if let refusal { return refusal }
        var error = error
        if [.refused, .untrusted].contains(error.code) {
            error.claimed = ClaimedIdentity(agreement.peer)
        }
        // If the name belongs to another key by now, this side cannot complete the pairing.
        guard exchange.hasConfirmed, !exchange.isComplete, !exchange.isNameTaken,
            !hasCertainlyFailed
        else { return error }
        var result = ChannelError(
            .mayBePaired,
            "this side and the peer may be paired: pair again within 24 hours to complete it "
                + "(\(error.reason))")
        result.underlying = error.underlying
        return result
    }

    /// Whether this side has made its last confirmation, so that the peer may have stored this
    /// side's key. If so, a listener does not end this channel to make room for another channel.
    var hasConfirmed: Bool { exchange.hasConfirmed }
}
