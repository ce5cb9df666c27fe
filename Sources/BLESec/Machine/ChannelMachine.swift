internal import BLESecChannelCore
internal import BLESecPrimitives

/// One end of a channel as a state machine without input or output: its driver passes bytes and
/// times in and out.
///
/// The driver appends arriving bytes to ``inbound`` and calls ``process(arrived:now:)``; it calls
/// ``sealPending(now:)`` and sends the bytes in ``outbound``; and it calls ``timeout(now:)`` at
/// ``deadline(now:)``. Times are nanoseconds of any monotonic clock. After each call, the driver
/// checks what has changed: ``stage``, ``pendingEvaluation``, ``outcome``, the inbox and the
/// acknowledgements.
struct ChannelMachine: ~Copyable {
    /// How to read the bytes that arrive next.
    enum Stage: Equatable {
        /// The acceptor waits for a hello, and then for the early message that follows the hello.
        case hello, early
        /// The dialer waits for an answer.
        case answer
        /// Either side waits for the next handshake message, other than the early one.
        case handshake
        /// A trust policy decides; nothing is read.
        case awaitingTrustDecision
        /// Records arrive; application data only once the peer's `ready` has been verified.
        case records
        /// This side refuses: it sends what is queued and waits for the peer to close the link.
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
    /// The features that both sides support; before the answer, the features that the peer
    /// supports.
    var features: ChannelFeatures = []

    var inbound = WireBuffer(pool: .incoming)
    var outbound = WireBuffer(pool: .outgoing)
    var outbox = Outbox()
    /// Messages that have been queued so far.
    var queued: UInt64 = 0
    var inbox: Inbox
    /// The memory budget for incomplete messages, and the action that ends the channel when its
    /// part is revoked.
    let budget: ReassemblyBudget
    var revokeReassembly: @Sendable () -> Void = {}
    var acknowledgements = AcknowledgementState()
    var control = PendingControl()
    var clocks: ChannelClocks
    var sending = DirectionCount()
    var receiving = DirectionCount()
    var dialToken: PendingDials.Token?

    /// The identity that the peer's handshake has claimed, proven or not; used for the trust policy
    /// only.
    var claimedIdentity: ClaimedIdentity?
    /// The identity that the peer's handshake proves; reported only once ``isReady``.
    var identity: PeerIdentity?
    /// The question for a trust policy that needs time.
    var pendingEvaluation: TrustPolicy.Evaluation?
    /// The question for the policy's trust store, which may block.
    var pendingLookUp: (@Sendable () -> TrustPolicy.Verdict)?
    /// Why this side refuses the peer; `nil` if it does not.
    var refusal: ChannelError?
    var isOwnReadySent = false
    var isPeerReady = false
    var endRequested: EndReason?
    /// Whether the link has taken everything up to and including this side's `end`.
    var hasEndLeft = false
    var peerEndReason: EndReason?
    /// Bytes that arrived before the peer was authenticated; see ``unauthenticatedLimit``.
    var unauthenticatedBytes = 0
    var isDraining = false
    /// How many calls wait for the peer's acknowledgement.
    var acknowledgementWaiters = 0
    /// In direct mode, whether the peer has ended its direction of the link.
    var directPeerEnded = false
    /// In direct mode, whether the peer's last message was empty.
    var peerWentQuiet = false

    /// How the channel ended; `nil` while it is open.
    var outcome: Outcome?

    /// How a channel ends.
    enum Outcome: Sendable {
        /// Both sides sent `end`, and everything is acknowledged.
        case complete
        case failed(ChannelError)
    }

    /// Whether both sides are proven, so that identities may be reported and data may flow.
    var isReady: Bool { isOwnReadySent && isPeerReady }
    /// Whether the peer has sent its end, so that no more messages arrive.
    var hasPeerEnded: Bool { acknowledgements.endReceived || directPeerEnded }
    /// Whether the handshake is over in direct mode, and the peer still has to prove itself with a
    /// transport message. Until then no application data is sent, and the peer's identity is not
    /// reported.
    var awaitsProof: Bool {
        configuration.mode == .direct && stage == .records && !isPeerReady
    }
    /// The peer's identity, once proven.
    var peer: PeerIdentity? { isReady ? identity : nil }

    /// The most bytes that are sealed ahead for one SDU, whatever the link accepts, so that these
    /// bytes and the record that exceeds them fit into the buffer.
    private static let largestSDU = 32 << 10

    /// Makes a machine over a link whose SDUs hold `maximumSDU` bytes; call ``begin()`` next.
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

    /// Begins the channel. For a dialer, ``outbound`` then holds the first bytes.
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

    /// Whether the driver should read from the link: not while a trust policy decides, and not
    /// while the application has enough messages to read.
    var wantsBytes: Bool {
        outcome == nil && stage != .awaitingTrustDecision && inbox.byteCount < readAhead
    }

    /// Whether the peer's unread messages fill even the extra room for awaited acknowledgements, so
    /// that no acknowledgement can be read before the application receives a message.
    var hidesAcknowledgements: Bool { awaitsAcknowledgement && !wantsBytes && !isDraining }

    private var readAhead: Int {
        configuration.limits.readAhead
            + (isDraining || awaitsAcknowledgement ? ChannelLimits.extraReadAhead : 0)
    }

    /// Whether a call waits for the peer to acknowledge sent messages. The acknowledgement follows
    /// the peer's own messages.
    private var awaitsAcknowledgement: Bool {
        acknowledgementWaiters > 0 || clocks.closing != nil && !acknowledgements.isSendingComplete
    }

    /// Prepares for a lost link: the remaining bytes are read, with extra room for their messages.
    mutating func startDraining(now: UInt64) {
        isDraining = true
        // The next read relies on this: no whole record waits while there is room.
        process(arrived: 0, now: now)
    }

    /// Returns the question for the application's trust policy, once.
    mutating func takeTrustEvaluation() -> TrustPolicy.Evaluation? {
        defer { pendingEvaluation = nil }
        return pendingEvaluation
    }

    /// Returns the question for the policy's trust store, once.
    mutating func takeLookUp() -> (@Sendable () -> TrustPolicy.Verdict)? {
        defer { pendingLookUp = nil }
        return pendingLookUp
    }

    /// The hash of the handshake; empty until the handshake is over, and kept when the channel
    /// ends.
    private(set) var handshakeHash: [UInt8] = []

    /// Removes and returns the oldest message. A message that the application reads in parts is
    /// popped here, and counted by ``didTakeMessage(now:)`` when the application has all of it.
    mutating func popMessage() -> [UInt8]? { inbox.next() }

    /// Records that the application has taken the next message completely.
    mutating func didTakeMessage(now: UInt64) {
        acknowledgements.didTake(now: now)
        restartClose(now: now)
    }

    /// Records that the application has confirmed its first `count` messages.
    mutating func confirm(through count: UInt64, now: UInt64) {
        acknowledgements.didConfirm(through: count, now: now)
        restartClose(now: now)
    }

    /// Saves the handshake hash while the engine exists.
    mutating func noteHandshakeHash() { handshakeHash = engine.handshakeHash }

    /// Derives bytes for another layer; see ``SecureChannel/export(label:context:count:)``.
    func export(
        label: String, context: [UInt8], count: Int
    ) throws(ChannelError) -> SecretBytes {
        guard isReady, outcome == nil else { throw .engineIsDead }
        return try engine.export(label: label, context: context, count: count)
    }

    /// Ends the channel when both ends are sent and everything is acknowledged: successfully,
    /// unless the peer's end said that it did not send everything.
    mutating func complete() {
        finish(peerEndReason?.error.map { .failed($0) } ?? .complete)
    }

    /// Ends the channel; the first outcome stands. Keys, buffers and unsent messages are discarded
    /// at once; whole messages that have arrived stay for the application.
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

    /// Ends the channel because of an error; an earlier refusal by this side takes precedence as
    /// the reason.
    mutating func fail(_ error: ChannelError) {
        finish(.failed(refusal ?? error))
    }
}
