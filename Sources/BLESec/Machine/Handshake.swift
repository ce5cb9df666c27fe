internal import BLESecChannelCore

/// The stage of the engine's handshake, and of the decision whether to trust the peer.
final class Handshake: UnauthenticatedStage {
    private let protocolName: String
    /// What both sides have negotiated; nil in direct mode.
    private let transcript: NegotiationTranscript?
    private let features: ChannelFeatures
    /// When the handshake began or, after a trust decision, when the decision was made.
    private var runningSince: UInt64
    /// Since when a trust decision has been pending; nil if none is.
    private var awaitingTrustSince: UInt64?
    /// The question about the peer that ``takeTrustQuestion()`` has not returned yet.
    private(set) var question: TrustQuestion?
    /// Whether the application decides, and not a trust store.
    private var asksApplication = false
    private var claimedIdentity: ClaimedIdentity?
    /// Why this side refuses the peer, while the handshake continues so that the peer learns of the
    /// refusal.
    private var refusal: ChannelError?

    /// Continues a negotiation with the protocol that both sides agreed on.
    init(
        after negotiation: Negotiation, _ protocolName: String,
        _ transcript: NegotiationTranscript, _ features: ChannelFeatures, now: UInt64
    ) {
        self.protocolName = protocolName
        self.transcript = transcript
        self.features = features
        runningSince = now
        super.init(after: negotiation, now: now)
    }

    /// Begins direct mode, with its only protocol.
    init(direct parameters: ChannelParameters, _ plans: OfferPlans) throws(ChannelError) {
        let configuration = parameters.configuration
        protocolName = configuration.offers[0]
        transcript = nil
        features = ChannelFeatures()
        runningSince = parameters.start
        super.init(
            parameters,
            try plans.makeEngine(protocolName, prologue: configuration.prologue))
        if parameters.role == .dialer, let message = try records.sendHandshake() {
            dialToken = configuration.pendingDials.insert(message, by: parameters.ownKeys)
        }
    }

    // MARK: - ChannelStage

    override var phase: ChannelPhase {
        awaitingTrustSince == nil ? .handshaking : .awaitingTrustDecision
    }
    override var wantsBytes: Bool { awaitingTrustSince == nil }
    /// True while a trust decision is pending, except while a store decides in direct mode.
    ///
    /// If true, a lost link ends the channel at once, so that the application is not left with a
    /// question about a peer that has gone. A store takes only a short time; after it, in direct
    /// mode, the messages that the peer sent before the loss are still read.
    override var dependsOnSending: Bool {
        awaitingTrustSince != nil && (transcript != nil || asksApplication)
    }
    /// When the peer has sent all bytes that it may send, only a handshake that waits for a trust
    /// decision can still succeed.
    override var failsAtByteLimit: Bool { awaitingTrustSince == nil }
    override var claimedKey: Fingerprint? { claimedIdentity?.fingerprint }

    override func step(now: UInt64) throws(ChannelError) -> Step {
        guard awaitingTrustSince == nil else { return .wait }
        switch records.engine.phase {
        case .awaitingTrustDecision(let identity):
            try evaluateTrust(identity, now: now)
            return .again
        case .established(let identity): return .next(try nextStage(identity, now: now))
        case .failing(let error):
            while try records.sendHandshake() != nil {}
            return .next(Refusing(after: self, refusal ?? error, now: now))
        case .handshaking, .failed: break
        }
        if let message = try records.sendHandshake() {
            returnedDial?.noteAnswer(message)
            return .again
        }
        return try receive() ? .again : .wait
    }

    override func nextTimeout(now: UInt64) -> UInt64 {
        let timeouts = configuration.timeouts
        return awaitingTrustSince?.after(timeouts.trustDecision)
            ?? runningSince.after(timeouts.handshake)
    }

    override func handleTimeout(now: UInt64) throws(ChannelError) -> Step {
        guard now >= nextTimeout(now: now) else { return .wait }
        let timeouts = configuration.timeouts
        guard awaitingTrustSince == nil else {
            throw .late("the trust policy did not decide within", timeouts.trustDecision)
        }
        throw .late("the handshake did not end within", timeouts.handshake)
    }

    override func linkEnded(_ error: ChannelError?, canSend: Bool) throws(ChannelError) -> Step {
        if let refusal { throw refusal }
        return try super.linkEnded(error, canSend: canSend)
    }

    override func reason(for error: ChannelError) -> ChannelError { refusal ?? error }

    // MARK: - Messages

    /// Takes the peer's next handshake message; returns false while it is incomplete.
    private func receive() throws(ChannelError) -> Bool {
        guard records.engine.framesHandshake else {
            // The first record may have arrived in part: the engine consumes whole records.
            let length = min(records.inbound.count, PendingDials.prefixLength)
            try compareFirstMessage(records.inbound.withBytes { $0.span.array(in: 0..<length) })
            guard try records.receiveHandshake() else { return false }
            hasPeerMessage = true
            return true
        }
        let bound = configuration.limits.unauthenticatedBytes
        guard let message = try records.takeFramed(atMost: bound) else { return false }
        try compareFirstMessage(message)
        hasPeerMessage = true
        try records.engine.receiveHandshake(message.span)
        return true
    }

    /// Checks whether the peer's first message comes from this device. A dialer throws if an acceptor
    /// of this device has sent the message. An acceptor notes in ``returnedDial`` which dial of this
    /// device the message has begun.
    private func compareFirstMessage(_ message: [UInt8]) throws(ChannelError) {
        guard !hasPeerMessage else { return }
        switch parameters.role {
        case .dialer:
            if dialToken?.isAnswered(by: message) == true { throw .talksToItself }
        case .acceptor where transcript == nil:
            returnedDial = configuration.pendingDials.dial(
                beginningWith: message, by: parameters.ownKeys)
        case .acceptor: break  // `Negotiation` has checked the first message, *early*.
        }
    }

    private func nextStage(
        _ identity: PeerIdentity, now: UInt64
    ) throws(ChannelError) -> ChannelStage {
        if let refusal {
            let zeros = [UInt8](repeating: 0, count: Record.readyLength - 1)
            // With `limitExceeded`, nobody was asked about the peer, and a later attempt may succeed.
            let code: RejectCode = refusal.code == .limitExceeded ? .busy : .refused
            try records.seal(.reject, [code.rawValue] + zeros)
            return Refusing(after: self, refusal, now: now)
        }
        try refuseOwnKey(ClaimedIdentity(identity))
        let agreement = Agreement(
            peer: identity, protocolName: protocolName, features: features,
            handshakeHash: records.engine.handshakeHash)
        guard let transcript else {
            return try DirectSession.begin(after: self, agreement, now: now)
        }
        return ReadyExchange(after: self, agreement, transcript, now: now)
    }

    // MARK: - Trust

    override func takeTrustQuestion() -> TrustQuestion? {
        defer { question = nil }
        return question
    }

    private func evaluateTrust(_ identity: ClaimedIdentity, now: UInt64) throws(ChannelError) {
        claimedIdentity = identity
        // A TLS dialer asks its policy before the acceptor's signature is checked, so a TLS dialer
        // refuses a peer with its own key only in `nextStage`.
        if records.engine.framesHandshake || parameters.role == .acceptor {
            try refuseOwnKey(identity)
        }
        switch configuration.policy(for: protocolName).decide(identity) {
        case .admit: return try records.engine.admit()
        case .refuse(let reason): return try refuse(ChannelError(.untrusted, reason))
        case .ask(let evaluate):
            question = .evaluate(evaluate, identity)
            asksApplication = true
        case .lookUp(let lookUp): question = .lookUp(lookUp)
        }
        awaitingTrustSince = now
    }

    override func didDecide(_ refusal: ChannelError?, now: UInt64) throws(ChannelError) {
        guard awaitingTrustSince != nil else { return }
        question = nil
        awaitingTrustSince = nil
        runningSince = now
        if let refusal { try refuse(refusal) } else { try records.engine.admit() }
    }

    /// Refuses the peer. The engine decides how the peer learns of this: from the last handshake
    /// bytes, from a `reject` record, or not at all, if telling the peer would reveal this side's
    /// identity. In direct mode, which has no `reject` record, the peer learns of a refusal only
    /// from handshake bytes.
    private func refuse(_ reason: ChannelError) throws(ChannelError) {
        var error = reason
        error.claimed = claimedIdentity
        switch records.engine.refuse() {
        case .byHandshake: refusal = error
        case .byRecord where transcript != nil:
            refusal = error
            try records.engine.admit()
        case .byRecord, .silent: throw error
        }
    }
}

/// What a handshake has established.
struct Agreement {
    /// The identity that the peer has proven, or proves with its first record.
    let peer: PeerIdentity
    let protocolName: String
    /// The features that both sides support.
    var features: ChannelFeatures
    let handshakeHash: [UInt8]
}

extension ChannelError {
    static var talksToItself: ChannelError {
        ChannelError(.selfConnection, "the peer is this device itself; dial another one")
    }
}
