public import BLESecChannelCore
public import BLESecLinks
public import BLESecPrimitives
internal import BLESecTLSEngine

/// An authenticated, encrypted channel for messages to one peer.
///
/// A channel exists only after both sides have proven their identity:
/// ``dial(_:configuration:loop:)``, ``open(over:role:configuration:)`` and
/// ``SecureListener/accept()`` return a channel only then. The channel runs on its link's event
/// loop; calls from tasks that run there (`Task(executorPreference: channel.loop)`) do not change
/// threads. Close a channel with ``close(within:)``: dropping the last reference closes the link
/// without an `end`, and the peer then sees a truncated channel.
public actor SecureChannel {
    /// The loop on which the channel and its link run.
    public nonisolated let loop: EventLoop
    private let link: any Link
    let parameters: ChannelParameters
    let driver: ChannelDriver
    private var denyListToken: UInt64?
    /// When the program last received a message, in nanoseconds of the loop's clock.
    private var lastReceiveTime: UInt64?
    /// The rest of a message that ``ByteStream/read(atMost:)`` has returned in part.
    var unreadBytes: ArraySlice<UInt8> = []
    /// The last of a connection's reading turns that ``endTurn(_:)`` has ended; see
    /// ``receive(inTurn:)``.
    private var endedTurn: UInt64 = 0
    /// The number of the last call that began to wait for room. Lower numbers get room first.
    private var lastPlace: UInt64 = 0

    /// The loop's executor: the actor runs on the loop's thread only.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// Makes a channel that owns `link` from now on; see ``start()``. `plans`, if given, were made
    /// from `configuration` and `role`.
    init(
        over link: any Link, role: ChannelRole, configuration: ChannelConfiguration,
        plans: OfferPlans? = nil, limits: TrustRequests.Limits = .dialers,
        progress: HandshakeProgress? = nil
    ) {
        self.link = link
        loop = link.loop
        let machine = ChannelMachine(
            role: role, configuration: configuration, plans: plans, maximumSDU: link.maximumSDU,
            now: link.loop.now.nanoseconds)
        parameters = machine.parameters
        driver = ChannelDriver(over: link, machine, TrustRequests(limits))
        driver.progress = progress
    }

    isolated deinit {
        if let denyListToken { configuration.trust.denied?.stopObserving(denyListToken) }
        driver.drop()
    }

    nonisolated var configuration: ChannelConfiguration { parameters.configuration }

    // MARK: - The handshake

    /// Begins the handshake; called once, before any other code has the channel.
    func start() throws(ChannelError) {
        guard !loop.isShutDown else {
            link.close()
            throw ChannelError(.closed, "the channel's event loop was shut down")
        }
        driver.trustRequests?.onDecision = { [weak self] verdict in
            Task { await self?.didDecide(verdict) }
        }
        driver.trustRequests?.onRemembered = { [weak self] result in
            Task { await self?.didRemember(result) }
        }
        try driver.start(onBudgetRevoked: { [weak self] in
            guard let self else { return }
            Task(executorPreference: self.loop) { await self.abort(.tooMuchUnderWay) }
        })
        denyListToken = configuration.trust.denied?.observe { [weak self] _ in
            guard let self else { return }
            Task(executorPreference: self.loop) { await self.checkDenyList() }
        }
    }

    func didDecide(_ verdict: TrustPolicy.Verdict) { driver.didDecide(verdict) }

    private func didRemember(_ result: Result<Void, ChannelError>) {
        driver.trustRequests?.didRemember(result)
        driver.pump()
    }

    private func checkDenyList() {
        guard let key = driver.machine.claimedKey,
            configuration.trust.denied?.contains(key) == true
        else { return }
        // Queued messages are not sent: a denied peer gets nothing more.
        driver.machine.fail(ChannelError(.untrusted, "\(key) has been put on the deny list"))
        driver.pump()
    }

    /// Waits until both sides have proven their identity. If the policy remembers peers, also waits
    /// until it has remembered this peer.
    func becomeReady() async throws(ChannelError) {
        do throws(ChannelError) {
            try await wait(for: .ready) { driver.machine.isReady || isOver }
            if !driver.machine.isReady, let outcome { throw outcome.error }
            // A channel that became ready and then ended may have messages, so it is returned.
            try await remember()
        } catch {
            let wasReady = driver.machine.isReady
            driver.fail(error)
            // The channel may have become ready after the task was cancelled, and before this call
            // noticed the cancellation.
            if wasReady, let lostPairing { throw lostPairing }
            // The peer may have completed a pairing although this call fails. Then the caller gets
            // `mayBePaired` in place of `error`.
            if case .failed(let reason) = outcome, reason.code == .mayBePaired { throw reason }
            throw error
        }
        driver.trustRequests = nil
    }

    private func remember() async throws(ChannelError) {
        let policy = configuration.policy(for: protocolName)
        guard policy.remembers else { return }
        driver.trustRequests?.remember(
            peer, by: policy, within: configuration.timeouts.trustDecision, now: now)
        driver.pump()
        try await wait(for: .remembered) { driver.trustRequests?.rememberResult != nil }
        try driver.trustRequests?.rememberResult?.get()
    }

    /// Ends the handshake to make room for another (``ChannelMachine/turnAway(_:now:)``). Returns
    /// false if the handshake keeps its place, for example because unread bytes completed it.
    func turnAway(_ error: ChannelError) -> Bool {
        // Before the hello is answered, unread bytes cannot complete the handshake.
        if [.handshaking, .proving].contains(phase) { driver.readUnreported() }
        guard driver.mayLosePlace else {
            driver.reportProgress()
            return false
        }
        driver.machine.turnAway(error, now: now)
        driver.pump()
        return true
    }

    // MARK: - The peer

    /// The identity that the peer has proven.
    public var peer: PeerIdentity { driver.machine.peer ?? .anonymous }
    /// The protocol that both sides agreed on.
    public var protocolName: String { session?.agreement.protocolName ?? "" }
    /// The phase that the channel has reached.
    public var phase: ChannelPhase { driver.machine.phase }
    /// A hash of the handshake: the same on both sides, unique for each channel (Noise §11.2).
    public var handshakeHash: [UInt8] { session?.agreement.handshakeHash ?? [] }
    private var session: Session? { driver.machine.session }
    private var outcome: ChannelMachine.Outcome? { driver.machine.outcome }
    /// When the channel took over the link.
    var beginTime: MonotonicTime { MonotonicTime(nanoseconds: parameters.start) }
    /// When the channel became ready; ``MonotonicTime/distantFuture`` if it has not become ready.
    var readyTime: MonotonicTime { MonotonicTime(nanoseconds: session?.readyTime ?? .max) }
    var isOver: Bool { driver.machine.isOver }
    /// The peer's address, for logs; it proves nothing.
    public nonisolated var linkDescription: String { link.peerDescription }
    /// The peer's address as a value; it proves nothing.
    nonisolated var linkAddress: LinkAddress? { link.peerAddress }

    /// Derives bytes for another layer, bound to this session, `label` and `context`; both sides
    /// get the same bytes.
    ///
    /// The bytes stay the same when record keys change. Throws `closed` once the channel is over.
    public func export(
        label: String, context: [UInt8] = [], count: Int = 32
    ) throws(ChannelError) -> SecretBytes {
        try driver.machine.export(label: label, context: context, count: count)
    }

    // MARK: - Sending

    /// Queues a message for the peer, and suspends while too many bytes are waiting.
    ///
    /// The first message in a turn of the loop is sent at once. Further messages are sent together:
    /// at the end of the turn, when 32 KiB are queued, and before this side ends the channel.
    /// Sending together saves time if tasks run on the loop or send concurrently. A single task on
    /// another thread sends each message alone, unless it uses ``send(contentsOf:)``.
    ///
    /// If this side ends the channel without ``close(within:)``, queued messages for which the link
    /// has no room are lost. The loop's shutdown may lose queued messages. A peer that is put on
    /// the deny list gets nothing more.
    ///
    /// In direct mode, a long message leaves in pieces, and the peer receives each piece by itself
    /// (``ChannelConfiguration/Mode/direct``).
    ///
    /// When the call returns, the peer may not have the message yet; see
    /// ``deliver(_:within:)-([UInt8],_)``. Throws the error that ended the channel, `limitExceeded`
    /// for a message above the limit, or `cancelled`.
    public func send(_ message: [UInt8]) async throws(ChannelError) {
        if !loop.mayContinue() { await loop.giveWay() }
        try await waitForRoom()
        _ = try queue(message)
    }

    /// Queues messages for the peer, in their order, in one call.
    ///
    /// Suspends and throws as ``send(_:)-([UInt8])`` does. If the call throws, some of the messages may
    /// have been sent: those before the message that could not be queued.
    public func send(contentsOf messages: [[UInt8]]) async throws(ChannelError) {
        var rest = messages[...]
        while !rest.isEmpty {
            if !loop.mayContinue() { await loop.giveWay() }
            try await waitForRoom()
            let oldCount = rest.count
            rest = try queue(rest)
            loop.count(calls: oldCount - rest.count)
        }
    }

    func queue(_ message: [UInt8]) throws(ChannelError) -> UInt64 {
        defer { driver.wakeNextForRoom() }
        let number = try driver.machine.queue(message)
        driver.flush()
        return number
    }

    /// Queues the messages for which there is room, and returns the others.
    private func queue(
        _ messages: ArraySlice<[UInt8]>
    ) throws(ChannelError) -> ArraySlice<[UInt8]> {
        defer {
            driver.flush()
            driver.wakeNextForRoom()
        }
        var next = messages.startIndex
        // When the channel is over, the machine throws the error that ended it.
        while next < messages.endIndex, isOver || driver.machine.hasRoom {
            _ = try driver.machine.queue(messages[next])
            next += 1
        }
        return messages[next...]
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
    /// - Throws: `timedOut` after that time; the error that ended the channel; `cancelled`;
    ///   `configuration` in direct mode, which has no acknowledgements; `limitExceeded` for a
    ///   message that is too long. Also `limitExceeded` when no acknowledgement can be read:
    ///   the peer's unread messages fill the buffers here (``ChannelLimits/readAhead``,
    ///   ``ChannelLimits/extraReadAhead``), and this side's program has received no message yet, or
    ///   none for 5 seconds.
    public func deliver(
        _ message: [UInt8], within limit: Duration? = nil
    ) async throws(ChannelError) -> Delivery {
        try requireAcknowledgements()
        let limit = limit ?? configuration.timeouts.delivery
        let deadline = now.after(limit)
        driver.addCallDeadline(deadline)
        addAcknowledgementWaiters(1)
        defer {
            addAcknowledgementWaiters(-1)
            driver.removeCallDeadline(deadline)
        }
        driver.pump()
        try await waitForRoom(until: deadline)
        let number = try queue(message)
        driver.flushPending()
        while acknowledged < number {
            if let outcome { throw outcome.error }
            if now >= deadline { throw .notTaken(within: limit) }
            // While this side's program receives messages, even slowly, it makes room in the inbox, so
            // that the acknowledgement can be read.
            let receivePauseEnd = lastReceiveTime?.after(Self.longestReceivePause) ?? 0
            let isInboxFull = cannotReadAcknowledgements
            if isInboxFull {
                if now >= receivePauseEnd { throw .unreadableAcknowledgements }
                driver.addCallDeadline(receivePauseEnd)
            }
            defer { if isInboxFull { driver.removeCallDeadline(receivePauseEnd) } }
            try await wait(for: .acknowledgement, number: number) {
                acknowledged >= number || driver.machine.isOver || now >= deadline
                    || cannotReadAcknowledgements != isInboxFull
                    || isInboxFull && now >= receivePauseEnd
            }
        }
        return fateOfAcknowledged
    }

    private var acknowledged: UInt64 { session?.acknowledged ?? 0 }
    /// Whether the peer has acknowledged anything, be it only this side's end.
    package var hasAcknowledgement: Bool { acknowledged > 0 }
    private var cannotReadAcknowledgements: Bool { session?.cannotReadAcknowledgements ?? false }

    private func requireAcknowledgements() throws(ChannelError) {
        try require(
            configuration.mode == .negotiated, "direct mode has no acknowledgements; use send")
    }

    /// The fate of a message that the peer has acknowledged.
    private var fateOfAcknowledged: Delivery {
        let features = session?.agreement.features
        return features?.contains(.acknowledgesTaken) == true ? .delivered : .received
    }

    /// Adds `count` to the number of calls that wait for an acknowledgement. While a call waits,
    /// the channel reads further ahead, because unread messages may precede the acknowledgement.
    private func addAcknowledgementWaiters(_ count: Int) {
        let wasFull = !driver.machine.wantsBytes
        session?.acknowledgementWaiters += count
        driver.resumeReading(wasFull: wasFull, now: now)
    }

    /// How long after the program's last receive ``deliver(_:within:)-([UInt8],_)`` goes on while the
    /// inbox is full. A program that has received nothing yet gets no time.
    private static let longestReceivePause: Duration = .seconds(5)

    /// Waits for room, queues a message that the peer is to acknowledge, and returns the message's
    /// number.
    func enqueue(_ message: [UInt8]) async throws(ChannelError) -> UInt64 {
        try requireAcknowledgements()
        try await waitForRoom()
        return try queue(message)
    }

    /// Returns the fate of a message, as soon as it is certain or the task is cancelled.
    func delivery(of number: UInt64) async -> Delivery {
        addAcknowledgementWaiters(1)
        defer { addAcknowledgementWaiters(-1) }
        try? await wait(for: .acknowledgement, number: number) {
            acknowledged >= number || isOver
        }
        return acknowledged >= number ? fateOfAcknowledged : .unknown
    }

    /// Tells the peer that this side sends nothing more. This side can still receive.
    ///
    /// A `reason` other than `done` tells the peer that not everything was sent; direct mode cannot
    /// send a reason. If `finish` is called again, the first reason stands.
    public func finish(_ reason: EndReason = .done) throws(ChannelError) {
        if case .failed(let error) = outcome { throw error }
        driver.machine.end(reason)
        driver.pump()
    }

    /// Waits while too many bytes wait to be sent; throws `timedOut` past `deadline`.
    func waitForRoom(until deadline: UInt64 = .max) async throws(ChannelError) {
        if !driver.machine.hasRoom { driver.flushPending() }
        guard !isOver, !driver.machine.hasRoom else { return }
        // A call that is woken in vain, because another call has taken the room, keeps its place.
        lastPlace += 1
        let place = lastPlace
        while !isOver, !driver.machine.hasRoom {
            guard now < deadline else {
                throw ChannelError(
                    .timedOut, "there was no room to send the message in time; it was not sent")
            }
            try await wait(for: .room, number: place) {
                isOver || driver.machine.hasRoom || now >= deadline
            }
        }
    }

    // MARK: - Receiving

    /// Returns the next whole message, or `nil` once the peer has sent its end and no message is
    /// left. In direct mode, which carries a stream of bytes, returns the next piece of the stream;
    /// prefer ``byteStream`` there.
    ///
    /// The message then counts as taken, and this side acknowledges it unless acknowledgement is
    /// manual (``confirm(through:)``). Messages that arrived before a failure are still returned;
    /// then this call throws the failure. It throws `truncated` if the peer has ended without
    /// having sent everything (``peerEndReason``).
    public func receive() async throws(ChannelError) -> [UInt8]? {
        if !loop.mayContinue() { await loop.giveWay() }
        guard let message = try await nextMessage() else { return nil }
        didTakeMessage()
        return message
    }

    /// Waits until a message has arrived, and returns all messages that have arrived, in their
    /// order and at most `maximum`. Returns `nil` once the peer has sent its end and no message is
    /// left.
    ///
    /// The messages count as taken, as with ``receive()``. `maximum` is at least 1.
    public func receive(upTo maximum: Int) async throws(ChannelError) -> [[UInt8]]? {
        precondition(maximum > 0, "a call receives at least one message")
        guard let first = try await receive() else { return nil }
        var messages = [first]
        messages.reserveCapacity(min(maximum, 1 + (session?.inbox.count ?? 0)))
        let now = now
        let wasFull = !driver.machine.wantsBytes
        while messages.count < maximum, let message = driver.machine.popMessage() {
            messages.append(message)
        }
        guard messages.count > 1 else { return messages }
        lastReceiveTime = now
        loop.count(calls: messages.count - 1)
        driver.resumeReading(wasFull: wasFull, now: now)
        acknowledge(now: now) { session in
            for _ in 1..<messages.count { session.didTakeMessage(now: now) }
        }
        return messages
    }

    /// Returns the next message without counting it as taken.
    func nextMessage() async throws(ChannelError) -> [UInt8]? {
        while true {
            if let message = popMessage() { return message }
            if driver.machine.hasPeerEnded {
                if let error = session?.peerEndReason?.error { throw error }
                return nil
            }
            switch outcome {
            case .complete: return nil
            case .failed(let error): throw error
            case nil: try await wait(for: .message) { canReceive }
            }
        }
    }

    /// What ``receive(inTurn:)`` returns.
    enum ReceivedInTurn {
        /// A message, and its number.
        case message([UInt8], number: UInt64)
        /// The peer has sent its end, and no message is left.
        case end
        /// Another channel is to be read first.
        case turnHasEnded
    }

    /// Receives a message as ``receive()`` does, for a connection that reads its channels in turns.
    /// Once ``endTurn(_:)`` has ended the turn, takes no message, and stops waiting for a message.
    func receive(inTurn turn: UInt64) async throws(ChannelError) -> ReceivedInTurn {
        if !loop.mayContinue() { await loop.giveWay() }
        while turn > endedTurn {
            guard canReceive else {
                try await wait(for: .message) { canReceive || turn <= endedTurn }
                continue
            }
            guard let message = try await nextMessage() else { return .end }
            didTakeMessage()
            // Nothing suspends after the message was taken, so no other call has taken a message since,
            // and `lastReceived` is the number of this message.
            return .message(message, number: lastReceived)
        }
        return .turnHasEnded
    }

    /// Ends the turns up to `turn` (``receive(inTurn:)``).
    func endTurn(_ turn: UInt64) {
        endedTurn = max(endedTurn, turn)
        driver.waiting.wake(.message)
    }

    var hasWaitingMessages: Bool { session?.inbox.isEmpty == false }
    /// Whether ``receive()`` can return or throw without waiting.
    var canReceive: Bool { driver.machine.canReceive }
    /// Whether the peer has sent a message on this channel, or has acknowledged a message.
    var hasCarriedMessage: Bool { session?.hasCarriedMessage ?? false }
    /// The reason that the peer gave for its end; `nil` until it has sent its end.
    public var peerEndReason: EndReason? { session?.peerEndReason }

    private func popMessage() -> [UInt8]? {
        let now = now
        let wasFull = !driver.machine.wantsBytes
        guard let message = driver.machine.popMessage() else { return nil }
        lastReceiveTime = now
        driver.resumeReading(wasFull: wasFull, now: now)
        return message
    }

    func didTakeMessage() {
        let now = now
        acknowledge(now: now) { $0.didTakeMessage(now: now) }
    }

    /// The number of the message that ``receive()`` returned last, counted from 1. If several tasks
    /// receive, this may be the number of another task's message.
    public var lastReceived: UInt64 { session?.taken ?? 0 }

    /// Acknowledges all messages up to `number`, so that they count as delivered. Messages are
    /// numbered from 1 in the order in which ``receive()`` returns them.
    ///
    /// Only for ``ChannelConfiguration/Acknowledgement/manual``. A confirmed message stays
    /// confirmed, even if a later call has a lower `number`.
    ///
    /// - Throws: `configuration` with automatic acknowledgement, or if `number` is above
    ///   ``lastReceived``.
    public func confirm(through number: UInt64) throws(ChannelError) {
        try require(
            configuration.acknowledgement == .manual,
            "messages are confirmed by hand only with manual acknowledgement")
        try require(
            number <= lastReceived,
            "message \(number) cannot be confirmed: \(lastReceived) have been received")
        let now = now
        acknowledge(now: now) { $0.confirm(through: number, now: now) }
    }

    /// Calls `countMessages`, which counts messages as taken or confirmed, and makes sure that an
    /// acknowledgement is sent in time.
    private func acknowledge(now: UInt64, _ countMessages: (Session) -> Void) {
        guard let session else { return }
        let wasPending = session.ackPendingSince != nil
        countMessages(session)
        guard !driver.machine.isOver, session.ackPendingSince != nil else { return }
        if session.isClosing { return driver.pump(now: now) }
        // A delayed acknowledgement needs a flush only for its first message: the flush arms the
        // timer.
        if !wasPending || session.owesAck(now: now) { driver.flushAtEndOfTurn() }
    }

    // MARK: - Delivery

    /// Whether the channel carries the messages of a connection that delivers them exactly once.
    var carriesDelivery: Bool { session?.agreement.features.contains(.delivery) ?? false }

    /// The key with which this side has proven itself.
    var ownKey: Fingerprint? {
        protocolName == TLSContext.protocolName
            ? configuration.tls?.identity.fingerprint : configuration.identity?.fingerprint
    }

    /// From now on, carries the records of delivery (`docs/delivery.md`) for `port`.
    func carry(_ port: some DeliveryPort) {
        guard !isOver, let session = session as? NegotiatedSession else { return }
        session.use(port)
        driver.portDidResume()
    }

    /// Called when the port may take records again, and may have some to send.
    func portDidResume() { driver.portDidResume() }

    /// Called when the port has records to send; `hasMessage` says whether a message is among them.
    func portDidGetRecords(hasMessage: Bool) { driver.portDidGetRecords(hasMessage: hasMessage) }

    // MARK: - Closing

    /// Ends the channel without losing messages, and returns when the channel is closed. Then both
    /// programs have taken everything. (If the peer acknowledges messages on arrival, this side's
    /// messages have arrived at the peer, but its program may not have taken them.) The peer knows
    /// this too, unless the link was lost with this side's last acknowledgement.
    ///
    /// The close deadline restarts when the link takes bytes and at each acknowledgement. So neither
    /// a slow link nor a slow program that keeps taking messages is cut off. To wait longer for a
    /// program that takes nothing, call ``finish(_:)`` and ``waitUntilOver()`` instead.
    ///
    /// - Parameter limit: how long there may be no progress; `nil` means ``ChannelTimeouts/close``.
    /// - Throws: `truncated` when the link was lost before the peer's `end`, or when the peer has
    ///   ended without having sent everything; `unacknowledged` when the fate of a sent message is
    ///   unknown, for example because the peer's program stopped receiving; `timedOut` when, at the
    ///   close deadline, the peer has not ended, its messages still wait to be received here, or it
    ///   has not acknowledged this side's end. In direct mode also `timedOut` when both sides have
    ///   ended and nothing has left the link's own queue for that time. `cancelled` when the task is
    ///   cancelled. If the channel has failed, the error that ended it.
    public func close(within limit: Duration? = nil) async throws(ChannelError) {
        // Queued messages leave first, because bytes that are processed next may end the channel.
        if !driver.onlyReadyWaits { driver.flushPending() }
        driver.machine.close(within: limit, now: now)
        driver.pump()
        try await waitUntilOver()
    }

    /// Returns when both sides have completed the channel, and throws the error if the channel
    /// failed. Does not end the channel itself.
    public func waitUntilOver() async throws(ChannelError) {
        try await wait(for: .end) { isOver }
        if case .failed(let error) = outcome { throw error }
    }

    /// Returns when the channel is over or the peer has sent its end. The result is the peer's
    /// reason, or `nil` without an end from the peer.
    func waitUntilEnding() async -> EndReason? {
        try? await wait(for: .end) { isOver || driver.machine.hasPeerEnded }
        return driver.machine.hasPeerEnded ? peerEndReason ?? .done : nil
    }

    /// Whether no more messages can be queued.
    var isEnding: Bool { isOver || session?.requestedEnd != nil }
    /// The error with which the channel has ended; `nil` while it has not ended.
    var endError: ChannelError? { outcome?.error }
    /// Whether the channel has ended before the peer had acknowledged all messages of this side.
    /// False in direct mode, which has no acknowledgements.
    var hasLostMessages: Bool {
        guard isOver, configuration.mode == .negotiated, let session else { return false }
        return session.acknowledged < session.queued
    }
    /// Ends the channel at once. The peer sees a truncated channel.
    public func abort() { abort(ChannelError(.closed, "the channel was aborted on this side")) }
    /// Ends the channel at once; waiting calls throw `error`.
    func abort(_ error: ChannelError) { driver.fail(error) }

    /// Whether ``close(within:)`` was called, both sides have ended their directions, or the
    /// session has reached its maximum age.
    var isClosing: Bool { driver.machine.session?.isClosing ?? false }

    /// Ends a ready channel that the program never got. Returns a failure if the channel has
    /// paired: the program must learn of the pairing, because both sides have stored each other's
    /// key.
    func discard() -> PeerFailure? {
        abort()
        return lostPairing.map {
            PeerFailure(peer: linkDescription, address: linkAddress, error: $0)
        }
    }

    /// The failure to report if the program does not get this ready channel; nil if the channel has
    /// not paired.
    private var lostPairing: ChannelError? {
        guard configuration.trust.pairingRule != nil else { return nil }
        return ChannelError(
            .mayBePaired, "the peer is paired, but its channel ended before the program had it")
    }

    private var now: UInt64 { loop.now.nanoseconds }

    /// Does the same as ``LoopCondition/wait(for:number:on:until:)``, but its error has the channel's
    /// phase.
    func wait(
        for event: LoopEvent, number: UInt64 = 0, until isTrue: () -> Bool
    ) async throws(ChannelError) {
        while !isTrue() {
            let isCancelled = await driver.waiting.wait(
                for: event, number: number, isolation: self, unless: isTrue)
            if isCancelled {
                throw ChannelError(.cancelled, "the task that waited was cancelled", phase: phase)
            }
        }
    }
}

extension ChannelError {
    fileprivate static func notTaken(within limit: Duration) -> ChannelError {
        ChannelError(
            .timedOut,
            "the peer's program has not taken the message within "
                + "\(limit.inSeconds); whether it will is unknown")
    }

    fileprivate static var unreadableAcknowledgements: ChannelError {
        ChannelError(
            .limitExceeded,
            "so many of the peer's messages wait here that no acknowledgement gets through; "
                + "receive them while you deliver")
    }
}
