internal import BLESecChannelCore
internal import BLESecPrimitives

/// One end of a channel without any input or output: bytes and times go in, bytes and times come
/// out.
///
/// Whoever drives it puts what arrives into ``inbound`` and calls ``process(now:)``, calls
/// ``sealPending(now:)`` and sends what then lies in ``outbound``, and calls ``timeout(now:)`` at
/// ``deadline(now:)``. Times are nanoseconds of any monotonic clock. After each of these, the driver
/// looks at what has changed: ``stage``, ``pendingEvaluation``, ``outcome``, the inbox and the acknowledgements.
struct ChannelMachine: ~Copyable {
    /// How the bytes that arrive next are to be read.
    enum Stage: Equatable {
        /// The acceptor waits for a hello, and for the early message behind it.
        case hello, early
        /// The dialer waits for an answer.
        case answer
        /// The dialer's first message of another offer, or any later handshake message.
        case handshake
        /// A trust policy is thinking; nothing is read.
        case awaitingTrustDecision
        /// Records come; application data only once the peer's `ready` has been verified.
        case records
        /// This side refuses: it sends what it has and waits for the peer to go.
        case refusing
    }

    let role: ChannelRole
    let configuration: ChannelConfiguration
    let maximumSDU: Int
    let start: UInt64

    var stage: Stage
    var engine: Engine = .none
    var transcript: NegotiationTranscript
    var protocolName = ""
    var offers: [String] = []
    /// What both sides can do, once the answer has said so; what the peer can do, before.
    var features: ChannelFeatures = []

    var inbound = WireBuffer(pool: .incoming)
    var outbound = WireBuffer(pool: .outgoing)
    var outbox = Outbox()
    /// Messages that have been queued so far.
    var queued: UInt64 = 0
    var inbox: Inbox
    /// What incomplete messages are charged to, and what ends the channel when that is revoked.
    let budget: ReassemblyBudget
    var revokeReassembly: @Sendable () -> Void = {}
    var acknowledgements = AcknowledgementState()
    var control = PendingControl()
    var clocks: ChannelClocks
    var sending = DirectionCount()
    var receiving = DirectionCount()
    var dialToken: PendingDials.Token?

    /// The identity that the peer's handshake has shown, proven or not: for the policy alone.
    var claimedIdentity: ClaimedIdentity?
    /// The identity that the peer's handshake proves; reported only once ``isReady``.
    var identity: PeerIdentity?
    /// What a trust policy that needs time has to be asked.
    var pendingEvaluation: TrustPolicy.Evaluation?
    /// What a policy's store has to be asked, which may block.
    var pendingLookUp: (@Sendable () -> TrustPolicy.Verdict)?
    /// Why this side refuses, if it does.
    var refusal: ChannelError?
    var isOwnReadySent = false
    var isPeerReady = false
    var endRequested: EndReason?
    /// Whether the link has taken all up to this side's `end`.
    var hasEndLeft = false
    var peerEndReason: EndReason?
    /// Bytes that arrived before the peer was authenticated; see ``unauthenticatedLimit``.
    var unauthenticatedBytes = 0
    var isDraining = false
    /// How many calls wait for the peer's acknowledgement.
    var acknowledgementWaiters = 0
    /// In direct mode, whether the peer has ended its direction of the link.
    var directPeerEnded = false
    /// In direct mode, whether the last thing that the peer sent was an empty message.
    var peerWentQuiet = false

    /// How the channel ended, once it has.
    var outcome: Outcome?

    /// How a channel ends.
    enum Outcome: Sendable {
        /// Both sides said `end`, and everything is acknowledged.
        case complete
        case failed(ChannelError)
    }

    /// Whether both sides are proven, so that identities are reported and data flows.
    var isReady: Bool { isOwnReadySent && isPeerReady }
    /// Whether no message comes any more because the peer said so.
    var hasPeerEnded: Bool { acknowledgements.endReceived || directPeerEnded }
    /// Whether the handshake is over in direct mode, and the peer has to prove itself with a transport
    /// message: until then nothing of the application's is sent, and nothing is said of the peer.
    var awaitsProof: Bool {
        configuration.mode == .direct && stage == .records && !isPeerReady
    }
    /// The peer's identity, once proven.
    var peer: PeerIdentity? { isReady ? identity : nil }

    /// The most that is sealed ahead for one SDU, whatever the link takes, so that it and the record
    /// that goes beyond it fit into the storage.
    private static let largestSDU = 32 << 10

    /// A machine that has not begun, over a link whose SDUs hold `maximumSDU` bytes; see ``begin()``.
    init(
        role: ChannelRole, configuration: ChannelConfiguration, maximumSDU: Int, now: UInt64,
        budget: ReassemblyBudget = .shared
    ) {
        self.role = role
        self.configuration = configuration
        self.maximumSDU = min(maximumSDU, Self.largestSDU)
        start = now
        stage = role == .dialer ? .answer : .hello
        transcript = NegotiationTranscript(context: configuration.context)
        self.budget = budget
        inbox = Inbox(maximumMessageLength: configuration.limits.maximumMessageLength)
        clocks = ChannelClocks(now: now, timeouts: configuration.timeouts)
    }

    /// Begins the channel. A dialer's first bytes are in ``outbound`` afterwards.
    ///
    /// Throws `configuration` when the configuration contradicts itself; nothing is sent then.
    mutating func begin() throws(ChannelError) {
        try configuration.validate(for: role)
        switch configuration.mode {
        case .direct: try beginDirect()
        case .negotiated where role == .dialer: try beginHello()
        case .negotiated: break
        }
    }

    /// The phase for error messages and timeouts.
    var phase: ChannelPhase {
        if outcome != nil { return .closed }
        switch stage {
        case .hello, .early, .answer: return .negotiating
        case .handshake: return .handshaking
        case .awaitingTrustDecision: return .awaitingTrustDecision
        case .refusing: return .closing
        case .records:
            guard isReady else { return .proving }
            return acknowledgements.endSent || hasPeerEnded ? .closing : .established
        }
    }

    /// Whether more bytes from the link are welcome: not while a policy thinks, and not while the
    /// application has enough to read.
    var wantsBytes: Bool {
        outcome == nil && stage != .awaitingTrustDecision && inbox.byteCount < readAhead
    }

    /// Whether the peer's messages fill even the room that is there while an acknowledgement is
    /// awaited, so that none can come before the application receives.
    var hidesAcknowledgements: Bool { awaitsAcknowledgement && !wantsBytes && !isDraining }

    private var readAhead: Int {
        configuration.limits.readAhead
            + (isDraining || awaitsAcknowledgement ? ChannelLimits.extraReadAhead : 0)
    }

    /// Whether somebody waits for the peer to acknowledge what was sent, which comes behind the
    /// peer's own messages.
    private var awaitsAcknowledgement: Bool {
        acknowledgementWaiters > 0 || clocks.closing != nil && !acknowledgements.isSendingComplete
    }

    /// The link is gone, and only what it still holds comes; there is more room for that.
    mutating func startDraining(now: UInt64) {
        isDraining = true
        // Whoever reads next relies on it that no whole record waits while there is room.
        process(arrived: 0, now: now)
    }

    /// What to ask the application's policy, once.
    mutating func takeTrustEvaluation() -> TrustPolicy.Evaluation? {
        defer { pendingEvaluation = nil }
        return pendingEvaluation
    }

    /// What to ask the policy's store, once.
    mutating func takeLookUp() -> (@Sendable () -> TrustPolicy.Verdict)? {
        defer { pendingLookUp = nil }
        return pendingLookUp
    }

    /// The hash over the handshake; empty before it is over, and kept when the channel ends.
    private(set) var handshakeHash: [UInt8] = []

    /// The oldest message that waits, which the application has from now on. A message that it has
    /// only in part is popped here, and counted by ``didTakeMessage(now:)`` when it has all of it.
    mutating func popMessage() -> [UInt8]? { inbox.next() }

    /// The application has the whole of the next message.
    mutating func didTakeMessage(now: UInt64) {
        acknowledgements.didTake(now: now)
        restartClose(now: now)
    }

    /// The application has dealt with its first `count` messages.
    mutating func confirm(through count: UInt64, now: UInt64) {
        acknowledgements.didConfirm(through: count, now: now)
        restartClose(now: now)
    }

    /// Takes down the session's name, while the engine lives.
    mutating func noteHandshakeHash() { handshakeHash = engine.handshakeHash }

    /// Bytes for another layer; see ``SecureChannel/export(label:context:count:)``.
    func export(
        label: String, context: [UInt8], count: Int
    ) throws(ChannelError) -> SecretBytes {
        guard isReady, outcome == nil else { throw .engineIsDead }
        return try engine.export(label: label, context: context, count: count)
    }

    /// Both ends are said, and everything is acknowledged: success, unless the peer has said that
    /// there should have been more.
    mutating func complete() {
        finish(peerEndReason?.error.map { .failed($0) } ?? .complete)
    }

    /// Ends the channel; the first outcome stands. Keys, buffers and unsent messages go at once,
    /// whole messages that have arrived stay for the application.
    mutating func finish(_ outcome: Outcome) {
        guard self.outcome == nil else { return }
        if case .failed(let error) = outcome {
            self.outcome = .failed(error.during(phase))
        } else {
            self.outcome = outcome
        }
        engine = .none
        inbound.removeAll()
        outbound.removeAll()
        outbox.removeAll()
        inbox.removePartial()
        pendingEvaluation = nil
        pendingLookUp = nil
        dialToken = nil
    }

    /// Ends the channel because of an error; an earlier refusal by this side is the better reason.
    mutating func fail(_ error: ChannelError) {
        finish(.failed(refusal ?? error))
    }
}
