public import BLESecChannelCore
public import BLESecLinks
public import BLESecPrimitives

/// An authenticated, encrypted channel for messages to one peer.
///
/// A channel exists only after both sides have proven their identity:
/// ``dial(_:configuration:loop:)``, ``open(over:role:configuration:)`` and
/// ``SecureListener/accept()`` return a channel only then. The channel runs on its link's event
/// loop; calls from tasks that run there (`Task(executorPreference: channel.loop)`) do not change
/// threads. Close a channel with ``close()``: dropping the last reference closes the link without
/// an `end`, and the peer then sees a truncated channel.
public actor SecureChannel {
    /// The loop on which the channel and its link run.
    public nonisolated let loop: EventLoop
    let link: any Link
    var machine: ChannelMachine
    let configuration: ChannelConfiguration

    var timer: LoopTimer?
    var trustEvaluationTask: Task<Void, Never>?
    /// Limits how many trust decisions a listener waits for at once; `nil` for a dialer.
    let trustDecisions: TrustDecisionLimiter?
    var trustDecisionPlace: TrustDecisionLimiter.Place?
    /// Limits how many trust store threads a listener has at once; `nil` for a dialer.
    let storePlaces: TrustDecisionLimiter?
    /// The deadline for the trust store to remember the peer; `nil` when the store is not asked.
    var rememberDeadline: UInt64?
    /// The result of remembering the peer.
    var rememberResult: Result<Void, ChannelError>?
    var denyToken: UInt64?
    /// Why the link cannot send any more. The bytes that have arrived are still being read.
    var brokenLink: ChannelError?
    var hasSaidHalfClose = false
    var canHalfClose = true
    var lastAcknowledged: UInt64 = 0
    /// When the program last received a message.
    private var lastReceipt: UInt64?
    /// The deadlines of the calls of ``deliver(_:within:)-([UInt8],_)`` that are waiting.
    var deliveryDeadlines: [UInt64] = []
    var hasLinkEnded = false

    /// What tasks wait for.
    enum Event: Hashable { case ready, remembered, message, room, acknowledgement, end }
    let waiting: LoopCondition<Event>
    let port = LinkPort()

    /// The loop's executor: the actor runs on the loop's thread only.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// Makes a channel that owns `link` from now on; see ``start()``.
    init(
        over link: any Link, role: ChannelRole, configuration: ChannelConfiguration,
        trustDecisions: TrustDecisionLimiter? = nil, storePlaces: TrustDecisionLimiter? = nil
    ) {
        self.link = link
        self.trustDecisions = trustDecisions
        self.storePlaces = storePlaces
        loop = link.loop
        waiting = LoopCondition(loop: link.loop)
        self.configuration = configuration
        machine = ChannelMachine(
            role: role, configuration: configuration, maximumSDU: link.maximumSDU,
            now: link.loop.now.nanoseconds)
    }

    isolated deinit {
        trustEvaluationTask?.cancel()
        if let denyToken { configuration.trust.denied?.stopObserving(denyToken) }
        timer?.disarm()
        link.close()
    }

    // MARK: - The peer

    /// The identity that the peer has proven.
    public var peer: PeerIdentity { machine.peer ?? .anonymous }

    /// The protocol that both sides agreed on.
    public var protocolName: String { machine.protocolName }

    /// The phase that the channel has reached.
    public var phase: ChannelPhase { machine.phase }

    /// A hash of the whole handshake: the same on both sides, and different for every channel
    /// (Noise §11.2).
    public var handshakeHash: [UInt8] { machine.handshakeHash }

    /// Whether a listener may give this handshake's place to another link.
    ///
    /// True for a peer that has not proven its identity, except while an asking trust policy
    /// decides about it: such decisions have a limit of their own. What an unproven peer has sent
    /// does not count, because it can be replayed.
    var mayLosePlace: Bool {
        machine.outcome == nil && !machine.isReady && trustDecisionPlace == nil
    }

    /// When the channel took over the link.
    var began: MonotonicTime { MonotonicTime(nanoseconds: machine.clocks.start) }

    /// Whether the channel has ended, with or without an error.
    var isOver: Bool { machine.outcome != nil }

    /// The peer's address, for logs; it proves nothing.
    public nonisolated var linkDescription: String { link.peerDescription }

    /// Derives bytes for another layer, bound to this session and to `label`; both sides get the
    /// same bytes.
    ///
    /// The bytes stay the same when record keys change. Throws `closed` once the channel is over.
    public func export(
        label: String, context: [UInt8] = [], count: Int = 32
    ) throws(ChannelError) -> SecretBytes {
        try machine.export(label: label, context: context, count: count)
    }

    // MARK: - Sending

    /// Queues a message for the peer, and suspends while too many bytes are waiting.
    ///
    /// A return does not mean that the peer has the message; see
    /// ``deliver(_:within:)-([UInt8],_)``. Throws the error that ended the channel, `limitExceeded`
    /// for a message above the limit, or `cancelled`.
    public func send(_ message: [UInt8]) async throws(ChannelError) {
        try await waitForRoom()
        _ = try queue(message)
    }

    func queue(_ message: [UInt8]) throws(ChannelError) -> UInt64 {
        let number = try machine.queue(message)
        pump()
        return number
    }

    /// Sends a message, and returns when the peer's program has taken it.
    ///
    /// The result is `delivered`, or `received` if the peer acknowledges only that its device has
    /// the message; never `unknown`. If the call throws, the fate of the message is unknown.
    /// Receive the peer's messages meanwhile: two programs that both deliver before they receive
    /// wait for each other until the deadline.
    ///
    /// - Parameters:
    ///   - message: the message.
    ///   - limit: how long to wait; `nil` means ``ChannelTimeouts/delivery``.
    /// - Throws: `timedOut` past the limit; `limitExceeded` when the peer's unread messages fill
    ///   the buffers here (``ChannelLimits/readAhead`` and ``ChannelLimits/extraReadAhead``), so
    ///   that acknowledgements cannot be read, and the program received none for 5 seconds; the
    ///   error that ended the channel; `cancelled`; in direct mode, which has no acknowledgements,
    ///   `configuration`.
    public func deliver(
        _ message: [UInt8], within limit: Duration? = nil
    ) async throws(ChannelError) -> Delivery {
        try requireAcknowledgements()
        let limit = limit ?? configuration.timeouts.delivery
        let deadline = now.after(limit)
        deliveryDeadlines.append(deadline)
        awaitAcknowledgement()
        defer {
            machine.acknowledgementWaiters -= 1
            removeDeliveryDeadline(deadline)
        }
        pump()
        try await waitForRoom(until: deadline)
        let number = try queue(message)
        while machine.acknowledgements.acknowledged < number {
            if let outcome = machine.outcome { throw outcome.error }
            if now >= deadline { throw .notTaken(within: limit) }
            // A program that still receives, even slowly, makes room for the acknowledgement.
            let patience = lastReceipt?.after(Self.patience) ?? 0
            if machine.hidesAcknowledgements {
                if now >= patience { throw .hiddenAcknowledgements }
                deliveryDeadlines.append(patience)
            }
            let isHidden = machine.hidesAcknowledgements
            defer { if isHidden { removeDeliveryDeadline(patience) } }
            try await wait(for: .acknowledgement) {
                machine.acknowledgements.acknowledged >= number || machine.outcome != nil
                    || now >= deadline
                    || machine.hidesAcknowledgements != isHidden || isHidden && now >= patience
            }
        }
        return acknowledgedMeans
    }

    /// How long a program may pause between receives before a full inbox ends a delivery.
    private static let patience: Duration = .seconds(5)

    private func removeDeliveryDeadline(_ deadline: UInt64) {
        guard let index = deliveryDeadlines.firstIndex(of: deadline) else { return }
        deliveryDeadlines.remove(at: index)
    }

    /// Tells the peer that this side sends nothing more. This side can still receive.
    ///
    /// A `reason` other than `done` tells the peer that it does not have everything; direct mode
    /// cannot send a reason. The first call's reason stands.
    public func finish(_ reason: EndReason = .done) throws(ChannelError) {
        if case .failed(let error) = machine.outcome { throw error }
        machine.end(reason)
        pump()
    }

    /// Waits while too many bytes wait to be sent; throws `timedOut` past `deadline`.
    func waitForRoom(until deadline: UInt64 = .max) async throws(ChannelError) {
        while machine.outcome == nil, !machine.hasRoom {
            guard now < deadline else {
                throw ChannelError(
                    .timedOut, "there was no room to send the message in time; it was not sent")
            }
            try await wait(for: .room) {
                machine.outcome != nil || machine.hasRoom || now >= deadline
            }
        }
    }

    // MARK: - Receiving

    /// Returns the next whole message, or `nil` once the peer has sent its end and every message
    /// was received.
    ///
    /// The message then counts as taken, and this side acknowledges it unless acknowledgement is
    /// manual (``confirm(through:)``). Messages that arrived before a failure are still returned;
    /// then this call throws the failure. It throws `truncated` if the peer's end said that it did
    /// not send everything (``peerEndReason``).
    public func receive() async throws(ChannelError) -> [UInt8]? {
        guard let message = try await nextMessage() else { return nil }
        didTakeMessage()
        return message
    }

    /// Returns the next message without counting it as taken.
    func nextMessage() async throws(ChannelError) -> [UInt8]? {
        while true {
            if let message = popMessage() { return message }
            if machine.hasPeerEnded {
                if let error = machine.peerEndReason?.error { throw error }
                return nil
            }
            switch machine.outcome {
            case .complete: return nil
            case .failed(let error): throw error
            case nil: try await wait(for: .message) { hasMessageNews }
            }
        }
    }

    /// Whether ``receive()`` can return or throw without waiting.
    var hasMessageNews: Bool {
        !machine.inbox.isEmpty || machine.hasPeerEnded || machine.outcome != nil
    }

    /// The reason that the peer gave for its end; `nil` until it has sent its end.
    public var peerEndReason: EndReason? { machine.peerEndReason }

    /// The rest of a message that ``ByteStream/read(atMost:)`` has returned in part.
    var unread: ArraySlice<UInt8> = []

    private func popMessage() -> [UInt8]? {
        let wasFull = !machine.wantsBytes
        guard let message = machine.popMessage() else { return nil }
        lastReceipt = now
        resumeReading(if: wasFull)
        return message
    }

    func resumeReading(if wasFull: Bool) {
        guard wasFull, machine.wantsBytes else { return }
        machine.resumedReading(now: now)
        pump()
    }

    /// Records that the program has taken a whole message.
    func didTakeMessage() { acknowledge { $0.didTakeMessage(now: $1) } }

    /// The number of the message that ``receive()`` returned last, counted from 1. If several tasks
    /// receive, this may be the number of another task's message.
    public var lastReceived: UInt64 { machine.acknowledgements.taken }

    /// Acknowledges all messages up to `number`, so that they count as delivered. Messages are
    /// numbered from 1 in the order in which ``receive()`` returns them.
    ///
    /// Only for ``ChannelConfiguration/Acknowledgement/manual``. A number that is not above the
    /// last one changes nothing.
    ///
    /// - Throws: `configuration` when acknowledgement is automatic, or when the message has not
    ///   been received yet.
    public func confirm(through number: UInt64) throws(ChannelError) {
        guard configuration.acknowledgement == .manual else {
            throw ChannelError(
                .configuration, "messages are confirmed by hand only with manual acknowledgement")
        }
        guard number <= lastReceived else {
            throw ChannelError(
                .configuration,
                "message \(number) cannot be confirmed: \(lastReceived) have been received")
        }
        acknowledge { $0.confirm(through: number, now: $1) }
    }

    /// Counts what may be acknowledged, and sends an acknowledgement that is due, or arranges for
    /// it to be sent in time.
    private func acknowledge(_ count: (inout ChannelMachine, _ now: UInt64) -> Void) {
        let now = now
        let wasPending = machine.acknowledgements.ackPendingSince != nil
        count(&machine, now)
        guard machine.outcome == nil, machine.acknowledgements.ackPendingSince != nil else {
            return
        }
        // The timer of a delayed acknowledgement was armed for its first message.
        if !wasPending || machine.owesAck(now: now) || machine.clocks.closing != nil {
            pump(now: now)
        }
    }

    // MARK: - Closing

    /// Ends the channel without losing messages, and returns when the channel is closed. Then both
    /// programs have taken everything, and both sides know it. (If a peer acknowledges what has
    /// arrived rather than what its program has taken, both sides know only that everything has
    /// arrived.)
    ///
    /// Each acknowledgement restarts the close deadline (``ChannelTimeouts/close``), so that a slow
    /// reader is not cut off.
    ///
    /// - Throws: `truncated` when the link was lost before the peer's `end`, or when the peer's end
    ///   said that it did not send everything; `unacknowledged` when the fate of a sent message is
    ///   unknown, for example because the peer's program stopped receiving; `timedOut` when, past
    ///   the close deadline, the peer still sends or its messages still wait to be received here.
    public func close() async throws(ChannelError) {
        machine.close(now: now)
        pump()
        try await waitUntilOver()
    }

    /// Returns when both sides have completed the channel, and throws the error if the channel
    /// failed. Does not end the channel itself.
    public func waitUntilOver() async throws(ChannelError) {
        while true {
            switch machine.outcome {
            case .complete: return
            case .failed(let error): throw error
            case nil: try await wait(for: .end) { machine.outcome != nil }
            }
        }
    }

    /// Ends the channel at once. The peer sees a truncated channel.
    public func abort() {
        abort(ChannelError(.closed, "the channel was aborted on this side"))
    }

    /// Ends a handshake to make room (``ChannelMachine/turnAway(_:now:)``). Returns false if the
    /// handshake may keep its place, because bytes that had arrived but were not read yet completed
    /// it.
    func turnAway(_ error: ChannelError) -> Bool {
        // Before the hello is answered, unread bytes cannot complete the handshake.
        if machine.stage == .handshake || machine.stage == .records { read() }
        guard mayLosePlace else { return false }
        machine.turnAway(error, now: now)
        pump()
        return true
    }

    /// Ends the channel at once; waiting calls throw `error`.
    func abort(_ error: ChannelError) {
        machine.fail(error)
        remembered(.failure(error))
        pump()
    }

    // MARK: - Waiting

    var now: UInt64 { loop.now.nanoseconds }

    /// Suspends until `event` happens or `isOver` is true; throws `cancelled` as soon as the task
    /// is cancelled.
    func wait(for event: Event, unless isOver: () -> Bool) async throws(ChannelError) {
        guard await waiting.wait(for: event, isolation: self, unless: isOver) else { return }
        throw ChannelError(.cancelled, "the task that waited was cancelled", phase: machine.phase)
    }
}
