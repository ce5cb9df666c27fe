internal import BLESecChannelCore

/// What is constant for a channel's whole life.
final class ChannelParameters: Sendable {
    let role: ChannelRole
    let configuration: ChannelConfiguration
    /// The features that this side offers. This property, ``requiredFeatures`` and ``ownKeys`` are
    /// computed once from the configuration.
    let features: ChannelFeatures
    let requiredFeatures: ChannelFeatures
    let ownKeys: [UInt8]
    /// The largest SDU of the link, or ``largestSealAhead`` if that is less.
    let maximumSDU: Int
    /// The most bytes that one call of ``ChannelMachine/transmit(now:to:)`` offers to the link.
    let maximumBytesOfOneSend: Int
    /// When the channel took over the link, in nanoseconds of the monotonic clock.
    let start: UInt64
    let budget: ReassemblyBudget

    /// The buffer for outgoing bytes has room for this many sealed bytes and one more record.
    private static let largestSealAhead = 32 << 10

    init(
        role: ChannelRole, configuration: ChannelConfiguration, maximumSDU: Int, start: UInt64,
        budget: ReassemblyBudget
    ) {
        self.role = role
        self.configuration = configuration
        features = configuration.features
        requiredFeatures = configuration.requiredFeatures
        ownKeys = configuration.ownKeys
        self.maximumSDU = min(maximumSDU, Self.largestSealAhead)
        maximumBytesOfOneSend = maximumSDU
        self.start = start
        self.budget = budget
    }
}

/// One stage of an open channel; ``ChannelMachine`` makes the calls. If a call throws, the stage
/// has failed, and the channel ends.
class ChannelStage {
    /// What a call has led to.
    enum Step {
        /// The stage waits for bytes, for a decision, or for time to pass.
        case wait
        /// The stage has advanced, and the call may be repeated.
        case again
        /// The next stage begins.
        case next(ChannelStage)
        /// The channel ends: ``ChannelMachine/Outcome/complete``.
        case complete
    }

    final let parameters: ChannelParameters
    final let records: RecordLayer
    /// The dial of this device whose first message this acceptor has received, perhaps as a replay;
    /// nil if the message is none of this device's.
    final var returnedDial: PendingDials.ReturnedDial?

    init(_ parameters: ChannelParameters, _ records: RecordLayer) {
        self.parameters = parameters
        self.records = records
    }

    final var configuration: ChannelConfiguration { parameters.configuration }
    /// The phase for error messages.
    var phase: ChannelPhase { .negotiating }
    /// Whether the driver should read from the link now.
    var wantsBytes: Bool { true }
    /// How many bytes the driver may read before the next call of ``step(now:)``.
    var readAllowance: Int { .max }
    /// Whether the stage reads nothing now and can only go on by sending, so that the channel fails
    /// as soon as the link cannot take bytes any more.
    var dependsOnSending: Bool { false }
    /// The key that the peer has claimed, proven or not.
    var claimedKey: Fingerprint? { nil }

    /// Records that `count` bytes have arrived.
    func didReceive(_ count: Int, now: UInt64) throws(ChannelError) {}
    /// Processes one unit of the bytes that have arrived.
    func step(now: UInt64) throws(ChannelError) -> Step { .wait }
    /// Called when ``step(now:)`` can process no more of the bytes.
    func didProcess(now: UInt64) throws(ChannelError) {}

    /// Seals the next record that waits; returns false if there is none.
    func sealNext(now: UInt64) throws(ChannelError) -> Bool { false }
    /// Records that the link took `count` bytes.
    func didSend(_ count: Int, now: UInt64) {}
    /// Records that the link took nothing.
    func didBlock() {}

    /// When ``handleTimeout(now:)`` must be called next; `UInt64.max` for never.
    func nextTimeout(now: UInt64) -> UInt64 { .max }
    /// Performs what is due.
    func handleTimeout(now: UInt64) throws(ChannelError) -> Step { .wait }
    /// Acts on the end of the link; see ``ChannelMachine/linkEnded(_:canSend:now:)``.
    func linkEnded(_ error: ChannelError?, canSend: Bool) throws(ChannelError) -> Step { .wait }
    /// The stage's own error, if a call has thrown `error`.
    func reason(for error: ChannelError) -> ChannelError { error }

    /// The error with which the channel ends after a call has thrown `error`.
    final func finalError(for error: ChannelError) -> ChannelError {
        let reason = reason(for: error)
        guard let returnedDial else { return reason }
        if returnedDial.isSelfConnection { return .talksToItself }
        // An acceptor that cannot read its device's own message, or may not admit the key in it,
        // closes the link in silence. Only the note in `PendingDials` tells the dialer why.
        let isRefusal = reason.code == .authenticationFailed || reason.code == .untrusted
        return isRefusal && returnedDial.noteClosing() ? .talksToItself : reason
    }
}

/// A question about the peer that the trust policy cannot answer at once.
enum TrustQuestion: Sendable {
    /// For the application.
    case evaluate(TrustPolicy.Evaluation, ClaimedIdentity)
    /// For the policy's trust store, which may block.
    case lookUp(@Sendable () -> TrustPolicy.Verdict)
}

/// A stage before the peer is admitted. The stage's time, and the bytes that the peer may send, are
/// limited.
class UnauthenticatedStage: ChannelStage {
    /// When the stage began; for a channel's first stage, when the channel took over the link.
    final let beginTime: UInt64
    /// How many bytes have arrived on the channel.
    private(set) final var arrived: Int
    /// Keeps this dialer's first message in ``PendingDials``, until the peer is proven, so that an
    /// acceptor of this process recognizes the message.
    final var dialToken: PendingDials.Token?
    /// Whether the peer's first message of the handshake, after hello and answer, has arrived.
    final var hasPeerMessage = false

    /// The first stage of a channel.
    init(_ parameters: ChannelParameters, _ engine: consuming Engine = .none) {
        beginTime = parameters.start
        arrived = 0
        super.init(parameters, RecordLayer(engine))
    }

    /// The stage after `previous`.
    init(after previous: UnauthenticatedStage, now: UInt64) {
        beginTime = now
        arrived = previous.arrived
        dialToken = previous.dialToken
        hasPeerMessage = previous.hasPeerMessage
        super.init(previous.parameters, previous.records)
        returnedDial = previous.returnedDial
    }

    /// Returns what has to be asked about the peer, once; nil if there is nothing to ask.
    func takeTrustQuestion() -> TrustQuestion? { nil }
    /// Applies the answer to the question: `refusal` says why the peer is refused; nil admits the
    /// peer. A late answer changes nothing.
    func didDecide(_ refusal: ChannelError?, now: UInt64) throws(ChannelError) {}

    /// Refuses a peer that has proven this side's own key.
    ///
    /// A key that is only claimed is judged like any other, because refusing it would confirm a
    /// guess of this side's key.
    final func refuseOwnKey(_ identity: ClaimedIdentity) throws(ChannelError) {
        guard records.engine.isPeerProven, configuration.isOwn(identity) else { return }
        throw .talksToItself
    }

    /// How many bytes a peer may send, including those that authenticate it.
    var unauthenticatedLimit: Int { configuration.limits.unauthenticatedBytes }
    /// Whether the channel ends when the peer has sent the last byte that it may send.
    var failsAtByteLimit: Bool { true }
    /// The rest of the limit; bytes beyond the limit are not read from the link.
    final override var readAllowance: Int { max(0, unauthenticatedLimit - arrived) }

    final override func didReceive(_ count: Int, now: UInt64) throws(ChannelError) {
        arrived += count
        // A driver that respects ``readAllowance`` never exceeds this limit.
        guard arrived <= unauthenticatedLimit else {
            throw .unauthenticated(after: unauthenticatedLimit)
        }
    }

    final override func didProcess(now: UInt64) throws(ChannelError) {
        if failsAtByteLimit, arrived >= unauthenticatedLimit {
            throw .unauthenticated(after: unauthenticatedLimit)
        }
    }

    override func linkEnded(_ error: ChannelError?, canSend: Bool) throws(ChannelError) -> Step {
        // A peer that has answered is another device, even if a copy of the dial's first message has
        // reached an acceptor of this device.
        if !hasPeerMessage, dialToken?.wasClosed == true { throw .talksToItself }
        throw error ?? ChannelError(.truncated, "the peer closed the link during the handshake")
    }
}

/// The stage in which this side has refused the peer: this side sends the bytes that are queued, and
/// waits for the peer to close the link.
final class Refusing: UnauthenticatedStage {
    private let error: ChannelError
    /// When the refusal began, or when the link last took bytes.
    private var lastProgress: UInt64
    /// How long a refused peer may take to close the link.
    private static let timeToClose: Duration = .seconds(2)

    init(after previous: UnauthenticatedStage, _ error: ChannelError, now: UInt64) {
        self.error = error
        lastProgress = now
        super.init(after: previous, now: now)
        records.endEngine()
    }

    override var phase: ChannelPhase { .closing }

    override func step(now: UInt64) throws(ChannelError) -> Step {
        records.inbound.removeAll()
        return .wait
    }

    override func didSend(_ count: Int, now: UInt64) { lastProgress = now }
    override func nextTimeout(now: UInt64) -> UInt64 { lastProgress.after(Self.timeToClose) }

    override func handleTimeout(now: UInt64) throws(ChannelError) -> Step {
        if now >= nextTimeout(now: now) { throw error }
        return .wait
    }

    override func reason(for error: ChannelError) -> ChannelError { self.error }
}

extension ChannelError {
    /// The error for a peer that has sent all it may send before it is authenticated.
    fileprivate static func unauthenticated(after limit: Int) -> ChannelError {
        ChannelError(
            .limitExceeded, "the peer sent \(limit) bytes and did not authenticate itself with them"
        )
    }

    /// The error "`what` N s", where N is the limit; `what` ends in a preposition.
    static func late(_ what: String, _ limit: Duration, _ code: Code = .timedOut) -> ChannelError {
        ChannelError(code, "\(what) \(limit.inSeconds)")
    }

    static func violation(_ what: String) -> ChannelError {
        ChannelError(.protocolViolation, "the peer broke the protocol: \(what)")
    }
}
