public import BLESecChannelCore
public import BLESecLinks

/// Accepts links, runs their handshakes concurrently, and returns the channels that became ready.
///
/// An unauthenticated peer costs little: each handshake under way takes a place, and the places are
/// limited overall and per address. At the overall limit, a new link replaces the oldest
/// handshake, but only after that handshake has had its guaranteed time; until then new links wait
/// to be accepted. So a peer that can finish a handshake within the guaranteed time connects even
/// during a flood.
///
/// By default the listener and its channels share one loop, which is one thread. When that thread
/// is too busy, the listener can spread its channels over several loops:
/// ``listen(on:configuration:limits:loop:channelLoops:)``. The limits then apply to the channels of
/// all loops together.
public actor SecureListener {
    /// Limits on what unauthenticated peers can make a listener do at the same time.
    public struct Limits: Sendable {
        /// Handshakes under way; 256 by default. Each holds a file descriptor and memory: about
        /// 14 KiB with Noise, and 66 KiB with TLS, or up to 280 KiB if the peer sends as many
        /// certificates as this side reads. If the peer leaves a message unfinished, its handshake
        /// holds up to ``ChannelLimits/unauthenticatedBytes`` more. In addition, up to 32 links that
        /// were turned away have 2 seconds to close.
        public var handshakes = 256
        /// Handshakes under way from one address; 4 by default. A further link from that address is
        /// turned away immediately. For links without an address (Unix, memory), only ``handshakes`` is
        /// a limit.
        public var handshakesPerAddress = 4
        /// The minimum time that a handshake keeps its place; 100 ms by default. When no place is
        /// free, a new link waits to be accepted until the oldest handshake has had this time, and
        /// then replaces that handshake. So at most `handshakes / guaranteedTime` links a second,
        /// 2,560 by default, can replace others.
        public var guaranteedTime: Duration = .milliseconds(100)
        /// Peers about which the application or a person is deciding, for
        /// ``TrustPolicy/asking(_:)`` or a pairing; 8 by default. They keep their handshake places
        /// meanwhile, whether or not they have proven a key. A peer beyond this limit is turned
        /// away: as *busy*, or in a pairing as refused. A peer that has gone counts until the call
        /// that decides about it has returned. Trust store queries do not count here: they have as
        /// many places of their own as there are ``handshakes``.
        public var awaitingTrustDecision = 8
        /// Ready channels that wait for ``SecureListener/accept()``; 16 by default. At this limit
        /// no more links are accepted, but the handshakes under way continue and may become ready.
        public var backlog = 16

        /// The defaults above.
        public init() {}
    }

    /// The loop on which the listener runs. The listener's channels run there too, unless
    /// ``listen(on:configuration:limits:loop:channelLoops:)`` got other loops for them.
    public nonisolated let loop: EventLoop
    /// The endpoint where peers can dial the listener, with the actual address, path or PSM.
    public nonisolated let localEndpoint: Endpoint
    private let listener: any LinkListener
    private let configuration: ChannelConfiguration
    /// Nil if the configuration contradicts itself; each channel then fails when it begins.
    private let plans: OfferPlans?
    private let limits: Limits
    private let trustLimits: TrustRequests.Limits
    private let channelLoops: ChannelLoops

    /// The handshakes under way; a higher token means a later link.
    private var handshakes: [UInt64: Entry] = [:]
    /// Links that were turned away and are not closed yet. They hold no place and no keys.
    private var turnedAway: [(token: UInt64, entry: Entry)] = []
    private var nextToken: UInt64 = 0
    /// The token of the handshake on another loop that was asked to make room and has not answered.
    private var askedToken: UInt64?
    /// The ready channels that wait for ``accept()``.
    private var readyChannels: [SecureChannel] = []
    private var acceptTask: Task<Void, Never>?
    private let waiting: LoopCondition
    /// Wakes the listener when it is to try again to make room; see ``makeRoom()``.
    private var timer: LoopTimer?
    private var isClosed = false
    /// The task that ends the listener; nil before ``close()`` was called.
    private var closingTask: Task<Void, Never>?
    /// Reports failures to the service that runs the listener and has to act on them.
    private let onFailure: (@Sendable (PeerFailure) -> Void)?
    private var failureObservers = Observers<PeerFailure>()

    /// A link whose handshake is under way, or that was turned away.
    ///
    /// It is a class because during a flood each new link looks at all entries, and copying a
    /// reference costs less than copying the fields.
    private final class Entry {
        let channel: SecureChannel
        let address: LinkAddress?
        let startTime: MonotonicTime
        let progress: HandshakeProgress
        let task: Task<Void, Never>

        init(
            _ channel: SecureChannel, _ address: LinkAddress?, _ startTime: MonotonicTime,
            _ progress: HandshakeProgress, _ task: Task<Void, Never>
        ) {
            self.channel = channel
            self.address = address
            self.startTime = startTime
            self.progress = progress
            self.task = task
        }
    }

    /// How many links that were turned away may take their 2 seconds to close. Beyond this limit
    /// the oldest is closed at once.
    private static let mostTurnedAway = 32

    /// The loop's executor: the actor runs on the loop's thread only.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// Listens on an endpoint.
    ///
    /// Each link goes to the one of `channelLoops` that has the fewest open channels of this
    /// listener; of several such loops, to the first. The link's handshake and channel run there, and
    /// ``accept()`` and ``channels`` return the channels of all these loops. Code that blocks one
    /// of the loops delays the accepting of links. A loop that is shut down ends its channels and
    /// gets no more. When none of `channelLoops` is left, `loop` gets all further channels.
    ///
    /// - Parameters:
    ///   - endpoint: where peers dial.
    ///   - configuration: the configuration of the channels.
    ///   - limits: limits on what unauthenticated peers can make the listener do, for all loops
    ///     together.
    ///   - loop: the loop on which the listener accepts links.
    ///   - channelLoops: the loops of the channels; if there are none, channels run on `loop`. If
    ///     `loop` is to serve some of the channels too, include it here.
    /// - Throws: ``ChannelError``: `configuration`, `addressInUse`, `cannotCreate`, `noSuchAdapter`,
    ///   `permission`.
    public static func listen(
        on endpoint: Endpoint, configuration: ChannelConfiguration, limits: Limits = Limits(),
        loop: EventLoop = .shared, channelLoops: [EventLoop] = []
    ) async throws(ChannelError) -> SecureListener {
        try configuration.validate(for: .acceptor)
        guard limits.handshakes > 0, limits.backlog > 0 else {
            throw ChannelError(
                .configuration, "the limits handshakes and backlog must be at least 1")
        }
        do throws(LinkError) {
            let (listener, local) = try await endpoint.listen(loop: loop)
            let secureListener = SecureListener(
                listener, at: local, configuration: configuration, limits: limits, loop: loop,
                channelLoops: channelLoops)
            await secureListener.start()
            return secureListener
        } catch {
            throw ChannelError(listening: error).during(.connecting)
        }
    }

    /// Makes a listener for links from any source. Call ``start()`` next; before that call, the
    /// listener accepts no links.
    init(
        _ listener: any LinkListener, at endpoint: Endpoint, configuration: ChannelConfiguration,
        limits: Limits, loop: EventLoop, channelLoops: [EventLoop] = [],
        onFailure: (@Sendable (PeerFailure) -> Void)? = nil
    ) {
        self.listener = listener
        localEndpoint = endpoint
        self.configuration = configuration
        plans = try? OfferPlans(configuration, for: .acceptor)
        self.limits = limits
        trustLimits = TrustRequests.Limits(
            decisions: ConcurrencyLimit(limits.awaitingTrustDecision),
            storeThreads: ConcurrencyLimit(limits.handshakes))
        self.loop = loop
        self.channelLoops = ChannelLoops(channelLoops, listenerLoop: loop)
        waiting = LoopCondition(loop: loop)
        self.onFailure = onFailure
    }

    isolated deinit {
        acceptTask?.cancel()
        timer?.disarm()
    }

    /// Returns the next channel whose peer has proven its identity and is ready.
    ///
    /// - Throws: `closed` once the listener is closed, `cancelled` when the task is cancelled.
    public func accept() async throws(ChannelError) -> SecureChannel {
        while readyChannels.isEmpty {
            if isClosed { throw ChannelError(.closed, "the listener is closed") }
            try await waiting.wait(for: .ready, on: self) { !readyChannels.isEmpty || isClosed }
        }
        let channel = readyChannels.removeFirst()
        waiting.wake(.room)
        return channel
    }

    /// The channels that ``accept()`` returns, one after another, until the listener is closed.
    /// Several consumers share them: each channel goes to the consumer that asked first.
    public nonisolated var channels: SecureChannels {
        SecureChannels { [self] () throws(ChannelError) in try await accept() }
    }

    /// The failures of handshakes from now on, for logs. Also reports that peers cannot be accepted,
    /// for example for lack of file descriptors; of several such errors in a row, only the first.
    public func failures() -> Observation<PeerFailure> {
        failureObservers.add(capacity: Observers<PeerFailure>.failureCapacity, isOver: isClosed)
    }

    /// Stops listening, and ends all handshakes and the channels that wait for ``accept()``.
    /// Accepted channels stay open.
    ///
    /// Returns when the handshakes have ended and the endpoint is free; a further call waits as
    /// well. Until then, ``failures()`` omit the handshakes that this call cancels, and report all
    /// other failures. One of these is `mayBePaired`, also for a peer that is paired and whose
    /// channel waited for ``accept()``. When the handshakes have ended, ``failures()`` end.
    public func close() async {
        isClosed = true
        let task = closingTask ?? Task(executorPreference: loop) { await self.end() }
        closingTask = task
        await task.value
    }

    private func end() async {
        acceptTask?.cancel()
        timer?.disarm()
        let tasks = handshakes.values.map(\.task) + turnedAway.map { $0.entry.task }
        for task in tasks { task.cancel() }
        waiting.wake(.ready)
        waiting.wake(.room)
        let unclaimed = readyChannels
        readyChannels = []
        for channel in unclaimed { await discard(channel) }
        await listener.close()
        for task in tasks { await task.value }
        failureObservers.finish()
    }

    // MARK: - Accepting

    func start() {
        timer = LoopTimer(loop: loop, handler: self)
        let listener = listener
        let gate = AcceptGate(loop, waiting)
        acceptTask = Task(executorPreference: loop) { [loop, channelLoops, weak self] in
            await listener.acceptAll(
                on: loop, linkLoop: { channelLoops.nextLoop },
                reporting: { [weak self] error in await self?.reportAcceptError(error) }
            ) { [weak self] link in
                // While the link waits for room, the task does not keep the listener alive.
                while let isAdmitted = await self?.admit(link) {
                    if isAdmitted { return }
                    await gate.wait { self?.assumeIsolated { $0.findRoom(for: link) } ?? true }
                }
                await link.loop.run { link.close() }
            }
            // Without a call of `close()`, accepting ends only because the loop was shut down.
            // Tasks that wait in `accept()` must learn of the shutdown.
            if !Task.isCancelled { await self?.close() }
        }
    }

    /// Reports that a peer cannot be accepted, for example for lack of descriptors.
    private func reportAcceptError(_ error: LinkError) {
        report(PeerFailure(peer: "a new peer", error: ChannelError(link: error)))
    }

    /// Begins the handshake of a link. Returns false if the link has to wait for room.
    private func admit(_ link: any Link) async -> Bool {
        guard findRoom(for: link) else { return false }
        guard !isClosed, !loop.isShutDown else {
            if isOwn(link.loop) { link.close() } else { link.loop.execute { link.close() } }
            return true
        }
        let address = link.peerAddress
        let isWithinAddressLimit = isWithinLimit(of: address)
        let progress = HandshakeProgress(channelLoops.countChannel(on: link.loop))
        let channel = SecureChannel(
            over: link, role: .acceptor, configuration: configuration, plans: plans,
            limits: trustLimits, progress: progress)
        do throws(ChannelError) {
            // A channel on another loop is started by its handshake's task, which runs there.
            if isOwn(channel.loop) { try await channel.start() }
            if isClosed {
                await channel.abort()
            } else {
                beginHandshake(
                    channel, progress, address, isWithinAddressLimit: isWithinAddressLimit)
            }
        } catch {
            report(PeerFailure(peer: link.peerDescription, address: address, error: error))
        }
        return true
    }

    /// Whether `other` is the listener's own loop.
    private func isOwn(_ other: EventLoop) -> Bool { other === loop }

    /// Returns whether ``admit(_:)`` can handle a link now; otherwise the link waits. If no place
    /// is free, tries to make room (``makeRoom()``). After the listener's end, no link waits.
    ///
    /// A link beyond its address's limit needs no place, since it is turned away at once. So it
    /// neither takes a place from another address nor delays the links after it.
    private func findRoom(for link: any Link) -> Bool {
        if isClosed || loop.isShutDown { return true }
        guard readyChannels.count < limits.backlog else { return false }
        return !isWithinLimit(of: link.peerAddress) || handshakes.count < limits.handshakes
            || makeRoom()
    }

    /// Whether another handshake may begin with this address.
    private func isWithinLimit(of address: LinkAddress?) -> Bool {
        guard let address else { return true }
        return handshakes.values.count { $0.address == address } < limits.handshakesPerAddress
    }

    /// If the oldest handshake has had its guaranteed time, turns it away and returns true. Otherwise
    /// arms the timer for the end of that time, and returns false. If no handshake may lose its
    /// place now, arms the timer to look again after the guaranteed time, at least 100 ms later.
    ///
    /// A handshake on another loop is asked to leave, and keeps its place until it has answered; until
    /// then the result is false. Only one handshake at a time is asked. If that handshake keeps its
    /// place, the next oldest handshake is asked.
    private func makeRoom() -> Bool {
        guard askedToken == nil else { return false }
        while let (token, entry) = oldestHandshake {
            let end = entry.startTime.advanced(by: limits.guaranteedTime)
            guard loop.now >= end else {
                timer?.arm(at: end)
                return false
            }
            let error = ChannelError(.busy, "a newer link needed the place of this handshake")
            guard isOwn(entry.channel.loop) else {
                askedToken = token
                askToLeave(token, entry.channel, error)
                return false
            }
            if turnAway(token, error) { return true }
        }
        let pause = max(limits.guaranteedTime, .milliseconds(100))
        timer?.arm(at: loop.now.advanced(by: pause))
        return false
    }

    /// The oldest handshake that may lose its place.
    private var oldestHandshake: (token: UInt64, entry: Entry)? {
        var oldest: (token: UInt64, entry: Entry)?
        for (token, entry) in handshakes {
            if let oldest, oldest.token < token { continue }
            if entry.progress.stage == .unproven { oldest = (token, entry) }
        }
        return oldest
    }

    /// Turns away a handshake on the listener's own loop, and gives the peer time to read the
    /// answer and close. Returns false if the handshake is over or may not lose its place any more.
    private func turnAway(_ token: UInt64, _ error: ChannelError) -> Bool {
        guard let entry = handshakes[token],
            entry.channel.assumeIsolated({ $0.turnAway(error) })
        else { return false }
        handshakes[token] = nil
        addTurnedAway(token, entry)
        return true
    }

    /// Asks a channel on another loop to end its handshake (``SecureChannel/turnAway(_:)``). The
    /// channel's answer goes to ``didAnswer(_:isTurnedAway:)``.
    private func askToLeave(_ token: UInt64, _ channel: SecureChannel, _ error: ChannelError) {
        channel.loop.execute { [self] in
            let isTurnedAway = channel.assumeIsolated { $0.turnAway(error) }
            loop.execute { [self] in
                assumeIsolated { $0.didAnswer(token, isTurnedAway: isTurnedAway) }
            }
        }
    }

    /// Called when the handshake that was asked to leave has been turned away, or keeps its place.
    private func didAnswer(_ token: UInt64, isTurnedAway: Bool) {
        if askedToken == token { askedToken = nil }
        if isTurnedAway {
            if let entry = handshakes.removeValue(forKey: token) { addTurnedAway(token, entry) }
        } else if let index = turnedAway.firstIndex(where: { $0.token == token }) {
            // `beginHandshake` put the link into `turnedAway` in advance, but the link was not
            // turned away.
            handshakes[token] = turnedAway.remove(at: index).entry
        }
        waiting.wake(.room)
    }

    /// Gives a link that was turned away time to close.
    private func addTurnedAway(_ token: UInt64, _ entry: Entry) {
        turnedAway.append((token, entry))
        guard turnedAway.count > Self.mostTurnedAway else { return }
        let channel = turnedAway.removeFirst().entry.channel
        if isOwn(channel.loop) { return channel.assumeIsolated { $0.abort() } }
        channel.loop.execute { channel.assumeIsolated { $0.abort() } }
    }

    /// Starts a task that waits for the end of a handshake; if the channel is on another loop, the
    /// task also begins the handshake there. A link beyond its address's limit is turned away.
    private func beginHandshake(
        _ channel: SecureChannel, _ progress: HandshakeProgress, _ address: LinkAddress?,
        isWithinAddressLimit: Bool
    ) {
        nextToken += 1
        let token = nextToken
        let isStarted = isOwn(channel.loop)
        let task = Task(executorPreference: channel.loop) { [weak self] in
            var failure: ChannelError?
            do throws(ChannelError) {
                if !isStarted { try await channel.start() }
                try await channel.becomeReady()
            } catch {
                failure = error
            }
            await self?.handshakeEnded(token, channel, failure)
        }
        let entry = Entry(channel, address, loop.now, progress, task)
        let error = ChannelError(.busy, "too many handshakes with this address")
        if isWithinAddressLimit {
            handshakes[token] = entry
        } else if isStarted {
            handshakes[token] = entry
            _ = turnAway(token, error)
        } else {
            // The other loop turns the link away only later, and until then the link must not take
            // a place.
            addTurnedAway(token, entry)
            askToLeave(token, channel, error)
        }
    }

    private func handshakeEnded(
        _ token: UInt64, _ channel: SecureChannel, _ failure: ChannelError?
    ) async {
        handshakes[token] = nil
        turnedAway.removeAll { $0.token == token }
        waiting.wake(.room)
        if let failure {
            return report(
                PeerFailure(
                    peer: channel.linkDescription, address: channel.linkAddress, error: failure))
        }
        guard !isClosed else { return await discard(channel) }
        readyChannels.append(channel)
        waiting.wake(.ready)
    }

    /// Ends a ready channel that ``accept()`` has not returned.
    private func discard(_ channel: SecureChannel) async {
        if let failure = await channel.discard() { report(failure) }
    }

    private func report(_ failure: PeerFailure) {
        onFailure?(failure)
        // A handshake that `close()` has cancelled is no failure of the peer.
        if !isClosed || failure.error.code != .cancelled { failureObservers.tell(failure) }
    }

    /// The numbers of handshakes under way, of links that were turned away and are not closed, and
    /// of channels that wait to be accepted.
    var load: (handshakes: Int, turnedAway: Int, ready: Int) {
        (handshakes.count, turnedAway.count, readyChannels.count)
    }
    /// Whether a handshake on another loop was asked to make room and has not answered.
    var isAsking: Bool { askedToken != nil }
}

/// Lets the task that accepts a listener's links wait for room, without a reference to the listener.
private actor AcceptGate {
    private nonisolated let loop: EventLoop
    private let waiting: LoopCondition

    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    init(_ loop: EventLoop, _ waiting: LoopCondition) {
        self.loop = loop
        self.waiting = waiting
    }

    /// Calls `findRoom` once, and returns if it has returned true. Otherwise waits until another
    /// call may return true, or until the task is cancelled or the loop is shut down.
    func wait(unless findRoom: @Sendable () -> Bool) async {
        _ = await waiting.wait(
            for: .room, until: .distantFuture, isolation: self, unless: findRoom)
    }
}

extension SecureListener: TimerHandler {
    package nonisolated func timerFired(_ timer: LoopTimer) {
        assumeIsolated { $0.waiting.wake(.room) }
    }
}
