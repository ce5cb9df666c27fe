public import BLESecChannelCore
internal import BLESecDiscovery
public import BLESecLinks

/// A lasting connection to one peer identity, which makes a new channel when a link is lost.
///
/// The connection dials, searches or waits for the peer again, as its ``PeerRoute`` defines, and
/// returns the messages of all links as one stream. The peer is the expected one or, if none is
/// expected, the first that connects; channels to other peers are ended.
///
/// A message from ``send(_:whenDisconnected:)-([UInt8],_)`` whose fate is `delivered` has been
/// acknowledged. If a link is lost, the fate of the messages under way is unknown, and the
/// connection never sends them again, so that no message arrives twice.
///
/// A silent peer is detected within the ``ChannelTimeouts/idle`` deadline of its channel, which
/// sends a ping after half of it. Dropping the last reference ends the link and may lose messages;
/// ``close(_:)`` loses none.
public actor PeerConnection {
    /// How many links with unread messages are kept; at this limit no new link is made.
    static let mostUnread = 8

    /// The loop on which the connection runs.
    public nonisolated let loop: EventLoop
    let route: PeerRoute
    var machine: ConnectionMachine
    var generator = SystemRandomNumberGenerator()
    /// The expected peer; `nil` until the first peer has connected.
    var expected: Fingerprint?

    /// The channel in use.
    var current: Current?
    /// A channel that is still being closed, and that the connection no longer uses.
    var leaving: SecureChannel?
    /// Whether this side has finished sending, on any link.
    var hasFinished = false
    /// Whether the peer has finished sending for good.
    var hasPeerEnded = false
    /// The channels with something to read, oldest first; the last may be the channel in use.
    var unread: [SecureChannel] = []
    /// Which messages ``receive()`` has returned, and from which channels.
    var receipts = Receipts()
    /// The current attempt.
    var attempt: Task<Void, Never>?
    var attempts = 0
    var arrivals: Task<Void, Never>?
    var timer: LoopTimer?
    private var observers = Observers<ConnectionStatus>()

    /// The order in which the waiting tasks send: the order of their calls.
    var turns = Turns()

    /// What tasks wait for.
    enum Event: Hashable, CaseIterable { case link, message, turn, room }
    let waiting: LoopCondition<Event>

    /// A channel in use.
    struct Current {
        let channel: SecureChannel
        let history: ChannelHistory
    }

    /// The loop's executor: the actor runs on the loop's thread only.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// Starts to look for the peer.
    ///
    /// - Parameters:
    ///   - route: how the connection gets its channels.
    ///   - peer: the expected peer, in addition to the channels' trust policy; `nil` for the first
    ///     peer that connects.
    ///   - rules: the time limits and the backoff.
    ///   - loop: the loop to run on; by default the route's own loop, or the shared loop.
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
        for channel in [current?.channel, leaving].compactMap({ $0 }) {
            Task { await channel.abort() }
        }
    }

    // MARK: - States

    /// The status of the connection.
    public var status: ConnectionStatus { machine.status }

    /// The status now, and the newest status after each change, until the connection is closed.
    public func states() -> Observation<ConnectionStatus> { states(keeping: 1) }

    /// The same observation with a buffer of `count` values, for a consumer that needs every
    /// status.
    package func states(keeping count: Int) -> Observation<ConnectionStatus> {
        observers.add(
            beginningWith: machine.status, capacity: count, isOver: machine.isClosed)
    }

    /// Reports the status to its observers if it differs from `before`, and arms the timer for its
    /// deadline.
    func tell(since before: ConnectionStatus) {
        let status = machine.status
        timer?.arm(at: status.deadline ?? .distantFuture)
        guard status.state != before.state || status.since != before.since else { return }
        observers.tell(status)
        if machine.isClosed { observers.finish() }
    }

    // MARK: - Receiving

    /// Returns the next message from any link. Returns `nil` when everything that arrived is read
    /// and the connection is closed, or the peer has ended for good
    /// (``ReconnectPolicy/endsWithPeer``).
    ///
    /// - Throws: the error that closed the connection, unless ``close(_:)`` or the peer's end
    ///   closed it; `cancelled`.
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
                // The error that ended the channel does not end the connection.
                if error.code == .cancelled { throw error }
            }
            wasRead(channel)
            if await channel.isOver { receipts.forget(channel) }
        }
    }

    /// The number of the message that ``receive()`` returned last, counted from 1 over all links.
    public var lastReceived: UInt64 { receipts.count }

    /// Confirms the messages up to `number`; see ``SecureChannel/confirm(through:)``. Has an effect
    /// only on channels with manual acknowledgement.
    ///
    /// Messages from a lost link can no longer be confirmed; their fate is unknown to the peer.
    ///
    /// - Throws: `configuration` when the message has not been received yet.
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

    /// The messages that ``receive()`` returns, one after another.
    public nonisolated var messages: AsyncThrowingStream<[UInt8], any Error> {
        AsyncThrowingStream { try await self.receive() }
    }

    // MARK: - Closing

    /// Tells the peer that this side sends nothing more, on this link or a later one. This side can
    /// still receive.
    public func finish() async {
        hasFinished = true
        waiting.wake(.link)
        waiting.wake(.turn)
        guard let channel = current?.channel else { return }
        try? await channel.finish()
        if closeIfBothEnded() { try? await channel.close() }
    }

    /// Ends the connection for good, without losing messages that are under way on the current
    /// link.
    ///
    /// `reason` tells the peer whether it has everything.
    ///
    /// - Throws: as ``SecureChannel/close()`` does. Without a link, it does not throw.
    public func close(_ reason: EndReason = .done) async throws(ChannelError) {
        leaving = current.take()?.channel ?? leaving
        shut(nil)
        // Messages that still arrive can be read afterwards.
        try? await leaving?.finish(reason)
        try await leaving?.close()
    }

    /// Ends the connection and its link at once.
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
