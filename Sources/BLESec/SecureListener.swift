public import ChannelCore
public import Links

/// Accepts links, runs their handshakes side by side, and hands out the channels that became ready.
///
/// A peer that is not authenticated costs little: the handshakes under way are bounded overall and
/// for each address, and when there is no room the one with the least progress goes. A channel that
/// nobody has accepted yet holds its place.
public actor SecureListener {
    /// Bounds on what strangers can make a listener do at once.
    public struct Limits: Sendable {
        /// Handshakes under way; 32.
        public var handshakes = 32
        /// Of those, from one address; 4.
        public var handshakesPerAddress = 4
        /// Of those, peers that an asking trust policy thinks about at once; 8. A trust store that is
        /// asked takes none of these places, but one of as many as there are ``handshakes``.
        public var judging = 8
        /// Channels that are ready and wait for ``SecureListener/accept()``; 16.
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
    private let judgingPlaces: JudgingPlaces
    private let storePlaces: JudgingPlaces

    private var halfOpen: [UInt64: HalfOpen] = [:]
    private var nextToken: UInt64 = 0
    private var ready: [SecureChannel] = []
    private var acceptTask: Task<Void, Never>?
    private enum Event: Hashable { case ready, room }
    private let waiting: WaitingRoom<Event>
    private var isClosed = false
    /// Tells how handshakes failed, for logs.
    private var onFailure: (@Sendable (String, ChannelError) -> Void)?

    private struct HalfOpen {
        let channel: SecureChannel
        let address: LinkAddress?
        let task: Task<Void, Never>
    }

    /// The loop: everything happens on its thread.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// Listens on an endpoint.
    ///
    /// `onFailure` is told of each handshake that failed, with where its link led, for logs; it is
    /// called on the loop and must not block.
    ///
    /// - Throws: ``ChannelError``: `configuration`, `addressInUse`, `noSuchAdapter`, `permission`.
    public static func listen(
        on endpoint: Endpoint, configuration: ChannelConfiguration, limits: Limits = Limits(),
        loop: EventLoop = .shared,
        onFailure: (@Sendable (String, ChannelError) -> Void)? = nil
    ) async throws(ChannelError) -> SecureListener {
        try configuration.validate(for: .acceptor)
        do throws(LinkError) {
            let (listener, local) = try await endpoint.listen(loop: loop)
            let secure = SecureListener(
                listener, at: local, configuration: configuration, limits: limits, loop: loop,
                onFailure: onFailure)
            await secure.start()
            return secure
        } catch {
            throw ChannelError(link: error).during(.connecting)
        }
    }

    /// A listener over links from anywhere; see ``start()``.
    init(
        _ listener: any LinkListener, at endpoint: Endpoint, configuration: ChannelConfiguration,
        limits: Limits, loop: EventLoop, onFailure: (@Sendable (String, ChannelError) -> Void)?
    ) {
        self.listener = listener
        localEndpoint = endpoint
        self.configuration = configuration
        self.limits = limits
        judgingPlaces = JudgingPlaces(limits.judging)
        storePlaces = JudgingPlaces(limits.handshakes)
        self.loop = loop
        waiting = WaitingRoom(loop: loop)
        self.onFailure = onFailure
    }

    isolated deinit { acceptTask?.cancel() }

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

    /// Stops listening, and ends the handshakes under way. Channels that were accepted live on.
    public func close() async {
        guard !isClosed else { return }
        isClosed = true
        acceptTask?.cancel()
        for entry in halfOpen.values { entry.task.cancel() }
        waiting.wake(.ready)
        waiting.wake(.room)
        for channel in ready { await channel.abort() }
        ready = []
        await listener.close()
    }

    // MARK: - Accepting

    /// Begins to accept; called once.
    func start() {
        let listener = listener
        acceptTask = Task(executorPreference: loop) { [weak self] in
            while !Task.isCancelled {
                do throws(LinkError) {
                    let link = try await listener.accept()
                    guard let self else { return await link.loop.run { link.close() } }
                    await self.admit(link)
                } catch {
                    if error.code == .cancelled { return }
                    // With the loop, if not by `close()`: whoever waits for a peer has to hear of it.
                    if error.code == .closed {
                        await self?.close()
                        return
                    }
                    // Descriptors or memory ran out: those in use may come free.
                    try? await Task.sleep(for: .milliseconds(100))
                }
            }
        }
    }

    private func admit(_ link: any Link) async {
        let address = link.peerAddress
        if let address,
            halfOpen.values.count(where: { $0.address == address }) >= limits.handshakesPerAddress
        {
            link.close()
            return report(link, ChannelError(.busy, "too many handshakes with this address"))
        }
        if halfOpen.count >= limits.handshakes { await evict() }
        while ready.count >= limits.backlog, !isClosed {
            do throws(ChannelError) {
                try await wait(for: .room) { ready.count < limits.backlog || isClosed }
            } catch {
                break
            }
        }
        guard !isClosed else { return link.close() }
        let channel = SecureChannel(
            over: link, role: .acceptor, configuration: configuration,
            judgingPlaces: judgingPlaces, storePlaces: storePlaces)
        do throws(ChannelError) {
            try await channel.start()
            guard !isClosed else { return await channel.abort() }
            shakeHands(channel, address)
        } catch {
            report(link, error)
        }
    }

    private func shakeHands(_ channel: SecureChannel, _ address: LinkAddress?) {
        nextToken += 1
        let token = nextToken
        let task = Task(executorPreference: loop) { [weak self] in
            let result: Result<Void, ChannelError>
            do throws(ChannelError) {
                result = .success(try await channel.becomeReady())
            } catch {
                result = .failure(error)
            }
            await self?.shookHands(token, result)
        }
        halfOpen[token] = HalfOpen(channel: channel, address: address, task: task)
    }

    private func shookHands(_ token: UInt64, _ result: Result<Void, ChannelError>) async {
        guard let entry = halfOpen.removeValue(forKey: token) else { return }
        switch result {
        case .success where isClosed:
            await entry.channel.abort()
        case .success:
            ready.append(entry.channel)
            waiting.wake(.ready)
        case .failure(let error):
            onFailure?(entry.channel.linkDescription, error)
        }
    }

    /// Ends the handshake that has come least far, the oldest of several.
    private func evict() async {
        var victim: (token: UInt64, progress: Int)?
        for (token, entry) in halfOpen {
            let progress = await entry.channel.progress
            if let known = victim, (known.progress, known.token) < (progress, token) { continue }
            victim = (token, progress)
        }
        guard let victim, let entry = halfOpen[victim.token] else { return }
        await entry.channel.abort(
            ChannelError(.busy, "another handshake needed the place of this one"))
    }

    /// How many handshakes are under way, and how many channels wait to be accepted.
    var load: (handshakes: Int, ready: Int) { (halfOpen.count, ready.count) }

    private func report(_ link: any Link, _ error: ChannelError) {
        onFailure?(link.peerDescription, error)
    }

    private func wait(for event: Event, unless isOver: () -> Bool) async throws(ChannelError) {
        guard await waiting.wait(for: event, isolation: self, unless: isOver) else { return }
        throw ChannelError(.cancelled, "the task that waited was cancelled")
    }
}
