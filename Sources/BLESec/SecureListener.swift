public import BLESecChannelCore
public import BLESecLinks

/// Accepts links, runs their handshakes side by side, and hands out the channels that became ready.
///
/// A peer that is not authenticated costs little: the handshakes under way are bounded overall and
/// for each address. When there is no room, the oldest of them makes room for the next, though not
/// before it has had its time; until then links wait to be accepted. So whoever can finish a
/// handshake within that time gets through a flood.
public actor SecureListener {
    /// Bounds on what unauthenticated peers can make a listener do at once.
    public struct Limits: Sendable {
        /// Handshakes under way; 256. Each holds a descriptor and about 14 KiB of memory with Noise,
        /// 66 KiB with TLS, and up to ``ChannelLimits/unauthenticatedBytes`` more where a peer leaves a
        /// message unfinished. Beside them 32 links that were turned away have 2 seconds to go.
        public var handshakes = 256
        /// Of those, from one address; 4. A link beyond them is turned away at once. Links without an
        /// address (Unix sockets, memory) are bounded by ``handshakes`` alone.
        public var handshakesPerAddress = 4
        /// How long a handshake keeps its place for certain; 100 ms. Where all are taken, a new link
        /// gets the place of the oldest handshake that has had this long, and waits to be accepted
        /// until there is one. So no more than `handshakes / guaranteedTime` links a second, 2,560,
        /// take places from others.
        public var guaranteedTime: Duration = .milliseconds(100)
        /// Peers that an asking trust policy thinks about at once; 8. They keep their places
        /// meanwhile, and one more is refused. A trust store that is asked takes none of these places,
        /// but one of as many as there are ``handshakes``.
        public var awaitingTrustDecision = 8
        /// Ready channels that wait for ``SecureListener/accept()`` before no more links are
        /// accepted; 16. The handshakes that are under way then go on, and become ready as well.
        public var backlog = 16

        /// The defaults above.
        public init() {}
    }

    /// The loop on which the listener and its channels live.
    public nonisolated let loop: EventLoop
    /// Where the listener can be dialed, with the real address, path or PSM.
    public nonisolated let localEndpoint: Endpoint
    private let listener: any LinkListener
    private let configuration: ChannelConfiguration
    private let limits: Limits
    private let trustDecisions: TrustDecisionLimiter
    private let storePlaces: TrustDecisionLimiter

    /// The handshakes under way; a greater token is a later link.
    private var halfOpen: [UInt64: HalfOpen] = [:]
    /// Links that were turned away, and have yet to go. They hold no place and no keys.
    private var leaving: [(token: UInt64, entry: HalfOpen)] = []
    private var nextToken: UInt64 = 0
    private var ready: [SecureChannel] = []
    private var acceptTask: Task<Void, Never>?
    private enum Event: Hashable { case ready, room }
    private let waiting: LoopCondition<Event>
    /// Has the listener look again when the oldest handshake has had its time.
    private var timer: LoopTimer?
    private var isClosed = false
    /// Who runs the listener, and has to act on failures.
    private let onFailure: (@Sendable (PeerFailure) -> Void)?
    private var failureObservers = Observers<PeerFailure>()

    private struct HalfOpen {
        let channel: SecureChannel
        let address: LinkAddress?
        let began: MonotonicTime
        let task: Task<Void, Never>
    }

    /// How many links that were turned away may take their 2 seconds to go; the oldest of more is
    /// closed at once.
    private static let mostLeaving = 32

    /// The loop: everything happens on its thread.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// Listens on an endpoint.
    ///
    /// - Throws: ``ChannelError``: `configuration`, `addressInUse`, `noSuchAdapter`, `permission`.
    public static func listen(
        on endpoint: Endpoint, configuration: ChannelConfiguration, limits: Limits = Limits(),
        loop: EventLoop = .shared
    ) async throws(ChannelError) -> SecureListener {
        try configuration.validate(for: .acceptor)
        do throws(LinkError) {
            let (listener, local) = try await endpoint.listen(loop: loop)
            let secure = SecureListener(
                listener, at: local, configuration: configuration, limits: limits, loop: loop)
            await secure.start()
            return secure
        } catch {
            throw ChannelError(link: error).during(.connecting)
        }
    }

    /// A listener over links from anywhere; see ``start()``.
    init(
        _ listener: any LinkListener, at endpoint: Endpoint, configuration: ChannelConfiguration,
        limits: Limits, loop: EventLoop, onFailure: (@Sendable (PeerFailure) -> Void)? = nil
    ) {
        self.listener = listener
        localEndpoint = endpoint
        self.configuration = configuration
        self.limits = limits
        trustDecisions = TrustDecisionLimiter(limits.awaitingTrustDecision)
        storePlaces = TrustDecisionLimiter(limits.handshakes)
        self.loop = loop
        waiting = LoopCondition(loop: loop)
        self.onFailure = onFailure
    }

    isolated deinit {
        acceptTask?.cancel()
        timer?.disarm()
    }

    /// The next channel whose peer is proven and ready.
    ///
    /// - Throws: `closed` once the listener is closed, `cancelled` when the task is.
    public func accept() async throws(ChannelError) -> SecureChannel {
        while ready.isEmpty {
            guard !isClosed else { throw ChannelError(.closed, "the listener is closed") }
            try await wait(for: .ready) { !ready.isEmpty || isClosed }
        }
        let channel = ready.removeFirst()
        waiting.wake(.room)
        return channel
    }

    /// The channels that ``accept()`` gives, one after another, until the listener is closed. Each goes to
    /// one consumer, whoever asks first.
    public nonisolated var channels: SecureChannels {
        SecureChannels { [self] () throws(ChannelError) in try await accept() }
    }

    /// The handshakes that fail from now on, for logs.
    public func failures() -> Observation<PeerFailure> {
        failureObservers.add(
            capacity: Observers<PeerFailure>.failureCapacity, isOver: isClosed)
    }

    /// Stops listening, and ends the handshakes under way. Channels that were accepted live on.
    public func close() async {
        guard !isClosed else { return }
        isClosed = true
        acceptTask?.cancel()
        timer?.disarm()
        for entry in halfOpen.values { entry.task.cancel() }
        for (_, entry) in leaving { entry.task.cancel() }
        waiting.wake(.ready)
        waiting.wake(.room)
        for channel in ready { await channel.abort() }
        ready = []
        await listener.close()
        failureObservers.finish()
    }

    // MARK: - Accepting

    /// Begins to accept; called once.
    func start() {
        timer = LoopTimer(loop: loop, handler: self)
        let listener = listener
        acceptTask = Task(executorPreference: loop) { [loop, weak self] in
            await listener.acceptAll(on: loop) { [weak self] link in
                guard let self else { return await loop.run { link.close() } }
                await self.admit(link)
            }
            // With the loop, if not by `close()`: whoever waits for a peer has to hear of it.
            if !Task.isCancelled { await self?.close() }
        }
    }

    private func admit(_ link: any Link) async {
        let address = link.peerAddress
        await waitForRoom { ready.count < limits.backlog }
        // One address can neither take others' places nor wait for one in their way.
        let hasShare = mayBegin(from: address)
        if hasShare { await waitForRoom { halfOpen.count < limits.handshakes || makeRoom() } }
        guard !isClosed, !loop.isShutDown else { return link.close() }
        let channel = SecureChannel(
            over: link, role: .acceptor, configuration: configuration,
            trustDecisions: trustDecisions, storePlaces: storePlaces)
        do throws(ChannelError) {
            try await channel.start()
            guard !isClosed else { return await channel.abort() }
            let token = shakeHands(channel, address)
            if !hasShare {
                let error = ChannelError(.busy, "too many handshakes with this address")
                _ = turnAway(token, error)
            }
        } catch {
            failed(link.peerDescription, error)
        }
    }

    private func waitForRoom(_ hasRoom: () -> Bool) async {
        while !isClosed, !loop.isShutDown, !hasRoom() {
            do throws(ChannelError) {
                try await wait(for: .room) { isClosed || hasRoom() }
            } catch {
                return
            }
        }
    }

    private func mayBegin(from address: LinkAddress?) -> Bool {
        guard let address else { return true }
        return halfOpen.values.count { $0.address == address } < limits.handshakesPerAddress
    }

    /// Turns the oldest handshake away if it has had its time; else says no, and has the listener
    /// look again then.
    private func makeRoom() -> Bool {
        while let (token, began) = oldest {
            let end = began.advanced(by: limits.guaranteedTime)
            guard loop.now >= end else {
                timer?.arm(at: end)
                return false
            }
            let error = ChannelError(.busy, "a newer link needed the place of this handshake")
            if turnAway(token, error) { return true }
        }
        return false
    }

    /// The oldest handshake that may lose its place.
    private var oldest: (token: UInt64, began: MonotonicTime)? {
        var oldest: (token: UInt64, began: MonotonicTime)?
        for (token, entry) in halfOpen where oldest.map({ token < $0.token }) ?? true {
            guard entry.channel.assumeIsolated({ $0.mayLosePlace }) else { continue }
            oldest = (token, entry.began)
        }
        return oldest
    }

    /// Ends a handshake, and gives the peer a while to hear of it and go. Says no where the handshake
    /// has just ended by itself.
    private func turnAway(_ token: UInt64, _ error: ChannelError) -> Bool {
        guard let entry = halfOpen[token],
            entry.channel.assumeIsolated({ $0.turnAway(error) })
        else { return false }
        halfOpen[token] = nil
        leaving.append((token, entry))
        if leaving.count > Self.mostLeaving {
            leaving.removeFirst().entry.channel.assumeIsolated { $0.abort() }
        }
        return true
    }

    private func shakeHands(_ channel: SecureChannel, _ address: LinkAddress?) -> UInt64 {
        nextToken += 1
        let token = nextToken
        let task = Task(executorPreference: loop) { [weak self] in
            let result: Result<Void, ChannelError>
            do throws(ChannelError) {
                result = .success(try await channel.becomeReady())
            } catch {
                result = .failure(error)
            }
            await self?.shookHands(token, channel, result)
        }
        halfOpen[token] = HalfOpen(
            channel: channel, address: address, began: loop.now, task: task)
        return token
    }

    private func shookHands(
        _ token: UInt64, _ channel: SecureChannel, _ result: Result<Void, ChannelError>
    ) async {
        halfOpen[token] = nil
        leaving.removeAll { $0.token == token }
        waiting.wake(.room)
        switch result {
        case .success where isClosed:
            await channel.abort()
        case .success:
            ready.append(channel)
            waiting.wake(.ready)
        case .failure(let error):
            failed(channel.linkDescription, error)
        }
    }

    private func failed(_ peer: String, _ error: ChannelError) {
        let failure = PeerFailure(peer: peer, error: error)
        onFailure?(failure)
        failureObservers.tell(failure)
    }

    /// How many handshakes are under way, how many links were turned away and have not gone, and how
    /// many channels wait to be accepted.
    var load: (handshakes: Int, leaving: Int, ready: Int) {
        (halfOpen.count, leaving.count, ready.count)
    }

    private func wait(for event: Event, unless isOver: () -> Bool) async throws(ChannelError) {
        guard await waiting.wait(for: event, isolation: self, unless: isOver) else { return }
        throw ChannelError(.cancelled, "the task that waited was cancelled")
    }
}

extension SecureListener: TimerHandler {
    package nonisolated func timerFired(_ timer: LoopTimer) {
        assumeIsolated { $0.waiting.wake(.room) }
    }
}
