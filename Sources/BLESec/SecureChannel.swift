public import BLESecChannelCore
public import BLESecLinks
public import BLESecPrimitives

/// An authenticated, encrypted channel for messages to one peer.
///
/// A channel exists only after both sides have proven themselves: ``dial(_:configuration:loop:)``
/// and ``SecureListener/accept()`` return it, and nothing else makes one. It lives on its link's
/// event loop; calls from tasks that run there (`Task(executorPreference: channel.loop)`) do not
/// change threads. Dropping the last reference closes the link without an `end`, which the peer
/// sees as a truncated channel: use ``close()``.
public actor SecureChannel {
    /// The loop that the channel and its link live on.
    public nonisolated let loop: EventLoop
    let link: any Link
    var machine: ChannelMachine
    let configuration: ChannelConfiguration

    var timer: LoopTimer?
    var trustEvaluationTask: Task<Void, Never>?
    /// Where a listener bounds how many peers are judged at once; a dialer has no such bound.
    let trustDecisions: TrustDecisionLimiter?
    var trustDecisionPlace: TrustDecisionLimiter.Place?
    /// Where a listener bounds how many trust stores' threads there are at once.
    let storePlaces: TrustDecisionLimiter?
    /// Until when the trust store has to have remembered the peer, while it is asked to.
    var rememberDeadline: UInt64?
    /// What became of that.
    var rememberResult: Result<Void, ChannelError>?
    var denyToken: UInt64?
    /// The link cannot send any more; what it still has to give is being read.
    var brokenLink: ChannelError?
    var hasSaidHalfClose = false
    var canHalfClose = true
    var lastAcknowledged: UInt64 = 0
    /// When the program received last.
    private var lastReceipt: UInt64?
    /// When the calls of ``deliver(_:within:)-([UInt8],_)`` that wait give up.
    var deliveryDeadlines: [UInt64] = []
    var hasLinkEnded = false

    /// What tasks wait for.
    enum Event: Hashable { case ready, remembered, message, room, acknowledgement, end }
    let waiting: LoopCondition<Event>
    let port = LinkPort()

    /// The loop: everything happens on its thread.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// A channel over a link that is the channel's from now on; see ``start()``.
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

    /// Who the peer has proven to be.
    public var peer: PeerIdentity { machine.peer ?? .anonymous }

    /// The protocol that was agreed on.
    public var protocolName: String { machine.protocolName }

    /// How far the channel has come.
    public var phase: ChannelPhase { machine.phase }

    /// A hash over the whole handshake that is the same on both sides and on no other channel
    /// (Noise §11.2).
    public var handshakeHash: [UInt8] { machine.handshakeHash }

    /// Whether a listener may take its place away: from any peer that is not proven, unless a trust
    /// policy asks somebody about it, who has few places. What such a peer has said so far counts for
    /// nothing, since much of it can be a recording.
    var mayLosePlace: Bool {
        machine.outcome == nil && !machine.isReady && trustDecisionPlace == nil
    }

    /// When the link was handed over.
    var began: MonotonicTime { MonotonicTime(nanoseconds: machine.clocks.start) }

    /// Whether the channel has ended, one way or the other.
    var isOver: Bool { machine.outcome != nil }

    /// Where the link leads, for logs; proves nothing.
    public nonisolated var linkDescription: String { link.peerDescription }

    /// Bytes for another layer that both sides get alike, bound to this session and to `label`.
    ///
    /// They stay the same when record keys change. Throws `closed` once the channel is over.
    public func export(
        label: String, context: [UInt8] = [], count: Int = 32
    ) throws(ChannelError) -> SecretBytes {
        try machine.export(label: label, context: context, count: count)
    }

    // MARK: - Sending

    /// Queues a message for the peer, and suspends while too many bytes are waiting.
    ///
    /// That it returns says nothing about the peer; see ``deliver(_:within:)-([UInt8],_)``. Throws what ended the
    /// channel, `limitExceeded` for a message above the limit, or `cancelled`.
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
    /// The result is `delivered`, or `received` where the peer tells only that its device has it;
    /// never `unknown`. If it throws, what became of the message is unknown. The peer's own messages
    /// have to be received meanwhile: two programs that both deliver before they receive wait for
    /// each other until the deadline.
    ///
    /// - Parameters:
    ///   - message: the message.
    ///   - limit: how long to wait; ``ChannelTimeouts/delivery`` where it is `nil`.
    /// - Throws: `timedOut` past the limit; `limitExceeded` when so many of the peer's messages wait to
    ///   be received here that no acknowledgement gets through (``ChannelLimits/readAhead`` and
    ///   ``ChannelLimits/extraReadAhead``), and none was received for 5 seconds; what ended the
    ///   channel; `cancelled`; in direct mode, which has no acknowledgements, `configuration`.
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
            // A program that receives, however slowly, lets the acknowledgement through.
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

    /// How long a program that was receiving may pause before a full inbox ends a delivery.
    private static let patience: Duration = .seconds(5)

    private func removeDeliveryDeadline(_ deadline: UInt64) {
        guard let index = deliveryDeadlines.firstIndex(of: deadline) else { return }
        deliveryDeadlines.remove(at: index)
    }

    /// Says that nothing more will be sent. What the peer sends can still be received.
    ///
    /// Any other `reason` than `done` tells the peer that it does not have everything; in direct mode
    /// it cannot be told. The first call's reason stands.
    public func finish(_ reason: EndReason = .done) throws(ChannelError) {
        if case .failed(let error) = machine.outcome { throw error }
        machine.end(reason)
        pump()
    }

    /// Waits while too many bytes wait to be sent; past the deadline of a ``deliver(_:within:)-([UInt8],_)`` it
    /// throws `timedOut`.
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

    /// The next whole message, or `nil` once the peer has said that it has sent everything.
    ///
    /// The program has taken the message then, and the peer is told so unless that is left to
    /// ``confirm(through:)``. Messages that arrived before a failure are still given; then the failure
    /// is thrown, and `truncated` where the peer has said that it does not send everything
    /// (``peerEndReason``).
    public func receive() async throws(ChannelError) -> [UInt8]? {
        guard let message = try await nextMessage() else { return nil }
        didTakeMessage()
        return message
    }

    /// The next message, not yet counted as taken.
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

    /// Whether ``receive()`` has something to say.
    var hasMessageNews: Bool {
        !machine.inbox.isEmpty || machine.hasPeerEnded || machine.outcome != nil
    }

    /// Why the peer sends no more, once it has said so.
    public var peerEndReason: EndReason? { machine.peerEndReason }

    /// What ``ByteStream/read(atMost:)`` has left of a message.
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

    /// The program has the whole of a message.
    func didTakeMessage() { acknowledge { $0.didTakeMessage(now: $1) } }

    /// The number of the message that ``receive()`` returned last: the first one's is 1. Where several
    /// tasks receive, it may be another one's.
    public var lastReceived: UInt64 { machine.acknowledgements.taken }

    /// Confirms the messages up to that number, which counts from 1 in the order in which
    /// ``receive()`` returns them: the program has done with them whatever it does, and they count as
    /// delivered.
    ///
    /// For ``ChannelConfiguration/Acknowledgement/manual`` alone. A number that is not above the last
    /// one changes nothing.
    ///
    /// - Throws: `configuration` when acknowledgements are automatic, or when that message has not
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

    /// Counts what may be acknowledged, and sends the acknowledgement that is due or sees to it that
    /// it is sent in time.
    private func acknowledge(_ count: (inout ChannelMachine, _ now: UInt64) -> Void) {
        let now = now
        let wasPending = machine.acknowledgements.ackPendingSince != nil
        count(&machine, now)
        guard machine.outcome == nil, machine.acknowledgements.ackPendingSince != nil else {
            return
        }
        // One that waits for company has its timer since its first message.
        if !wasPending || machine.owesAck(now: now) || machine.clocks.closing != nil {
            pump(now: now)
        }
    }

    // MARK: - Closing

    /// Ends the channel without losing anything, and returns when it is closed: both programs have
    /// taken everything, and both sides know it. (Of a peer that
    /// acknowledges what has arrived both sides know only that everything has arrived.)
    ///
    /// The close deadline (``ChannelTimeouts/close``) starts anew with each acknowledgement, so that
    /// a slow reader is not cut off. Throws `truncated` when the link went before the peer's `end`, or
    /// when that said that not everything was sent; `unacknowledged` when the fate of something sent
    /// is unknown, as when the peer's program has stopped taking it; and `timedOut` when the peer goes
    /// on sending, or its messages go on waiting here, past the close deadline.
    public func close() async throws(ChannelError) {
        machine.close(now: now)
        pump()
        try await waitUntilOver()
    }

    /// Returns when the channel is over, whoever ended it, and throws why unless both sides are
    /// complete. Ends nothing by itself.
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

    /// Ends a handshake for which there is no room (``ChannelMachine/turnAway(_:now:)``), and says
    /// whether it did: what has arrived and was not read yet may complete the handshake.
    func turnAway(_ error: ChannelError) -> Bool {
        // One whose hello was not answered yet needs another round trip in any case.
        if machine.stage == .handshake || machine.stage == .records { read() }
        guard mayLosePlace else { return false }
        machine.turnAway(error, now: now)
        pump()
        return true
    }

    /// Ends the channel at once for a reason that is told to whoever waits.
    func abort(_ error: ChannelError) {
        machine.fail(error)
        remembered(.failure(error))
        pump()
    }

    // MARK: - Waiting

    var now: UInt64 { loop.now.nanoseconds }

    /// Suspends until something of that kind has happened; cancellation ends the wait at once.
    func wait(for event: Event, unless isOver: () -> Bool) async throws(ChannelError) {
        guard await waiting.wait(for: event, isolation: self, unless: isOver) else { return }
        throw ChannelError(.cancelled, "the task that waited was cancelled", phase: machine.phase)
    }
}
