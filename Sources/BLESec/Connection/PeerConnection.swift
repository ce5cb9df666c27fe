public import BLESecChannelCore
internal import BLESecDiscovery
public import BLESecLinks

/// A channel to one identity that comes back.
///
/// Links come and go; the connection dials, looks or waits for the peer again, as its ``PeerRoute``
/// says, and what it receives over all links is one stream. The peer is the one that is expected or,
/// where nobody is, the first one that comes: channels of others are ended.
///
/// What ``send(_:whenDisconnected:)-([UInt8],_)`` reports as delivered has been acknowledged. What was under way when a
/// link went is unknown, and is never sent again by itself, so that no message comes twice.
///
/// A peer that is silent is noticed within the ``ChannelTimeouts/idle`` deadline of its channel, which
/// pings after half of it. Dropping the last reference ends the link; ``close(_:)`` loses nothing.
public actor PeerConnection {
    /// How many links whose messages nobody has read yet are kept; there is no new one beyond.
    static let mostUnread = 8

    /// The loop on which everything lives.
    public nonisolated let loop: EventLoop
    let route: PeerRoute
    var machine: ConnectionMachine
    var generator = SystemRandomNumberGenerator()
    /// Who may come; nil until somebody has.
    var expected: Fingerprint?

    /// The channel that is used.
    var current: Current?
    /// The channel that is ended properly, while the connection is closed already.
    var leaving: SecureChannel?
    /// This side sends no more, over whatever link.
    var hasFinished = false
    /// The peer sends no more, where that is for good.
    var hasPeerEnded = false
    /// The channels with something to read, oldest first; the last one may be in use.
    var unread: [SecureChannel] = []
    /// Which messages ``receive()`` has returned, and over which channels.
    var receipts = Receipts()
    /// The attempt under way.
    var attempt: Task<Void, Never>?
    var attempts = 0
    var arrivals: Task<Void, Never>?
    var timer: LoopTimer?
    private var observers = Observers<ConnectionStatus>()

    /// Who sends next, in the order of their calls.
    var turns = Turns()

    /// What tasks wait for.
    enum Event: Hashable, CaseIterable { case link, message, turn, room }
    let waiting: LoopCondition<Event>

    /// A channel in use.
    struct Current {
        let channel: SecureChannel
        let side: DuplicateRule.Side
    }

    /// The loop: everything happens on its thread.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// Begins to look for the peer.
    ///
    /// - Parameters:
    ///   - route: how its channels come about.
    ///   - peer: who is expected, beside what the channels' trust policy says; nil for the first one
    ///     that comes.
    ///   - rules: its bounds in time.
    ///   - loop: the route's own, or the shared one, unless another is given.
    public static func start(
        _ route: PeerRoute, to peer: PeerKey? = nil, rules: ReconnectPolicy = ReconnectPolicy(),
        loop: EventLoop? = nil
    ) async -> PeerConnection {
        let connection = PeerConnection(route, peer, rules, loop ?? route.loop ?? .shared)
        await connection.begin()
        return connection
    }

    private init(
        _ route: PeerRoute, _ peer: PeerKey?, _ rules: ReconnectPolicy, _ loop: EventLoop
    ) {
        self.route = route
        self.loop = loop
        expected = peer?.fingerprint
        machine = ConnectionMachine(rules: rules, now: loop.now)
        waiting = LoopCondition(loop: loop)
    }

    isolated deinit {
        attempt?.cancel()
        arrivals?.cancel()
        timer?.disarm()
        observers.finish()
        for channel in [current?.channel, leaving].compactMap({ $0 }) {
            Task { await channel.abort() }
        }
    }

    // MARK: - States

    /// How it stands.
    public var status: ConnectionStatus { machine.status }

    /// The status now, and the newest whenever it has changed, until the connection is closed.
    public func states() -> Observation<ConnectionStatus> { states(keeping: 1) }

    /// The same for one that wants to see every status, and may be `count` of them late.
    package func states(keeping count: Int) -> Observation<ConnectionStatus> {
        observers.add(
            beginningWith: machine.status, capacity: count, isOver: machine.isClosed)
    }

    /// Tells the status to who observes it, if it is another than `before`, and minds its deadline.
    func tell(since before: ConnectionStatus) {
        let status = machine.status
        timer?.arm(at: status.deadline ?? .distantFuture)
        guard status.state != before.state || status.since != before.since else { return }
        observers.tell(status)
        if machine.isClosed { observers.finish() }
    }

    // MARK: - Receiving

    /// The next message, over whatever link it comes; nil once the connection is closed, or the peer
    /// has ended for good (``ReconnectPolicy/endsWithPeer``), and everything that had arrived is read.
    ///
    /// - Throws: what has closed the connection, unless that was ``close(_:)`` or the peer's end;
    ///   `cancelled`.
    public func receive() async throws(ChannelError) -> [UInt8]? {
        while true {
            guard let channel = unread.first else {
                if machine.isClosed {
                    if let failure = machine.status.failure { throw failure }
                    return nil
                }
                if hasPeerEnded { return nil }
                try await wait(for: .message) {
                    !unread.isEmpty || machine.isClosed || hasPeerEnded
                }
                continue
            }
            do throws(ChannelError) {
                if let (message, number) = try await channel.receiveNumbered() {
                    receipts.add(channel, number)
                    return message
                }
            } catch {
                // What ended the channel does not end the connection.
                if error.code == .cancelled { throw error }
            }
            wasRead(channel)
            if await channel.isOver { receipts.forget(channel) }
        }
    }

    /// The number of the message that ``receive()`` returned last: the first one's is 1, over
    /// whatever link it came.
    public var lastReceived: UInt64 { receipts.count }

    /// Confirms the messages up to that number; see ``SecureChannel/confirm(through:)``. For channels
    /// with manual acknowledgement; for others it does nothing.
    ///
    /// What came over a link that has gone cannot be confirmed any more, and is unknown to the peer.
    ///
    /// - Throws: `configuration` when that message has not been received yet.
    public func confirm(through number: UInt64) async throws(ChannelError) {
        guard number <= receipts.count else {
            throw ChannelError(
                .configuration,
                "message \(number) cannot be confirmed: \(receipts.count) have been received")
        }
        for (channel, number) in receipts.take(through: number) {
            try await channel.confirm(through: number)
        }
    }

    /// What ``receive()`` gives, one after another.
    public nonisolated var messages: AsyncThrowingStream<[UInt8], any Error> {
        AsyncThrowingStream { try await self.receive() }
    }

    // MARK: - Closing

    /// Says that nothing more will be sent, over this link or a later one. What the peer sends can
    /// still be received.
    public func finish() async {
        hasFinished = true
        waiting.wake(.link)
        waiting.wake(.turn)
        guard let channel = current?.channel else { return }
        try? await channel.finish()
        if closeIfBothEnded() { try? await channel.close() }
    }

    /// Ends the connection for good, without losing anything that is under way on the link there is.
    ///
    /// `reason` tells the peer whether it has everything.
    ///
    /// - Throws: as ``SecureChannel/close()`` does. Without a link there is nothing to lose.
    public func close(_ reason: EndReason = .done) async throws(ChannelError) {
        leaving = current.take()?.channel ?? leaving
        shut(nil)
        // What still arrives is there to be read.
        try? await leaving?.finish(reason)
        try await leaving?.close()
    }

    /// Ends the connection at once, and the link with it.
    public func abort() async {
        shut(ChannelError(.closed, "the connection was aborted on this side"))
        await leaving?.abort()
    }

    func wait(for event: Event, unless isOver: () -> Bool) async throws(ChannelError) {
        guard await waiting.wait(for: event, isolation: self, unless: isOver) else { return }
        throw ChannelError(.cancelled, "the task that waited was cancelled")
    }
}

extension PeerConnection: TimerHandler {
    package nonisolated func timerFired(_ timer: LoopTimer) {
        assumeIsolated { $0.deadlineCame() }
    }
}
