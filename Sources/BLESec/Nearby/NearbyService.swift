public import BLESecChannelCore
public import BLESecDiscovery
internal import BLESecL2CAP
public import BLESecLinks

/// One service, with whoever offers or seeks it nearby: advertises and accepts, scans and dials.
///
/// What comes out are channels that are ready, each with its peer's proven identity; nothing that was
/// advertised counts beyond where to dial. Two that both advertise and scan end up with one channel.
/// It publishes again by itself when bluetoothd restarts or the adapter is switched off and on. A
/// channel is kept alive by the service until it is over: close it, or the service.
public actor NearbyService {
    /// How long opening a link to a candidate may take.
    static let connectTimeout = Duration.seconds(4)
    /// How long bluetoothd may look at a candidate before the channel is opened all the same.
    static let quietTimeout = Duration.seconds(2)
    /// How long asking a candidate over GATT may take.
    static let askTimeout = Duration.seconds(10)
    /// A link that lasts so long was a good one, whether it has carried anything or not.
    static let stableAfter = Duration.seconds(10)
    /// How long to wait, at most, before looking at who was just heard.
    static let pause = Duration.milliseconds(50)

    /// The loop on which everything lives.
    public nonisolated let loop: EventLoop
    /// What it is about.
    public nonisolated let service: BluetoothUUID
    /// The adapter that is used, as in `hci0`.
    public nonisolated let adapter: String
    let bluetoothd: Bluetoothd
    let configuration: ChannelConfiguration
    let options: NearbyOptions
    private let onEvent: @Sendable (NearbyEvent) -> Void
    private var statusObservers = Observers<NearbyStatus>()
    private var failureObservers = Observers<PeerFailure>()
    private var adapterState = AdapterState.on
    private var observer: (@Sendable (NearbyEvent) -> Void)?

    var policy: DialPolicy
    var generator = SystemRandomNumberGenerator()
    /// PSMs that were read over GATT, and those that nobody listened on.
    var psms = PSMCache()
    var refusedPSMs = PSMCache()
    var dials: [Candidate: Task<Void, Never>] = [:]
    var live: [ObjectIdentifier: LiveChannel] = [:]
    /// Links that bluetoothd was asked to make, and is asked to end when nothing here uses them.
    var connected: Set<DeviceAddress> = []
    /// Links that bluetoothd is ending, which takes it 2 seconds.
    private var releases: [DeviceAddress: Task<Void, Never>] = [:]
    var listener: RenewableListener?
    var secure: SecureListener?
    /// The byte stream over GATT, where it is offered.
    var streams: GATTStreamServer?
    /// What bluetoothd was given, and what that says.
    var application: UInt64?
    var publishedPSM: PSM?
    var advertisement: UInt64?
    var advertised: AdvertisementPayload?
    var advertisingState = AdvertisingState.on
    /// When tag and PSM have had their time.
    var renewal: MonotonicTime?
    /// Who keeps it all up to date sleeps here, unless there is something to do.
    var sleepTask: Task<Void, Never>?
    var mustAdvertise = false
    var advertisingThrottle = AdvertisingThrottle()
    var tasks: [Task<Void, Never>] = []
    var scan: ServiceScan?
    var timer: LoopTimer?
    var lastLook = MonotonicTime(nanoseconds: 0)

    private var ready: [SecureChannel] = []
    /// How many channels wait to be taken; no more are accepted then.
    private static let backlog = 16
    private enum Event: Hashable { case ready, room }
    private let waiting: LoopCondition<Event>
    private(set) var isClosed = false

    /// A channel that is not over.
    struct LiveChannel {
        let channel: SecureChannel
        let address: DeviceAddress
        let identity: PeerIdentity
        let side: DuplicateRule.Side
        /// It is being ended, in favour of another one to the same peer.
        var isDuplicate = false

        /// Whether one of the two is too many.
        func isDuplicate(of other: LiveChannel) -> Bool {
            channel !== other.channel && !isDuplicate && !other.isDuplicate
                && identity.fingerprint != nil && identity == other.identity
        }
    }

    /// The loop: everything happens on its thread.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// Begins to advertise, to scan, or both, as the options say.
    ///
    /// - Parameters:
    ///   - service: what peers seek and offer; ``BluetoothUUID/blesec`` unless named.
    ///   - configuration: of the channels in both directions.
    ///   - options: whether and how to find and be found.
    ///   - loop: where everything lives.
    /// - Throws: ``ChannelError``: `configuration`, `noSuchAdapter` where bluetoothd does not run or
    ///   the adapter is not on, `permission`.
    public static func start(
        _ service: BluetoothUUID = .blesec, configuration: ChannelConfiguration,
        options: NearbyOptions = NearbyOptions(), loop: EventLoop = .shared
    ) async throws(ChannelError) -> NearbyService {
        try await start(service, configuration: configuration, options: options, loop: loop) { _ in
        }
    }

    /// The same, telling all that happens to `onEvent`, which is called on the loop and must not block.
    package static func start(
        _ service: BluetoothUUID, configuration: ChannelConfiguration,
        options: NearbyOptions = NearbyOptions(), loop: EventLoop = .shared,
        onEvent: @escaping @Sendable (NearbyEvent) -> Void
    ) async throws(ChannelError) -> NearbyService {
        if options.accepts { try configuration.validate(for: .acceptor) }
        if options.dials { try configuration.validate(for: .dialer) }
        let bluetoothd = await Bluetoothd.connect(loop: loop)
        let adapter: String
        do throws(DiscoveryError) {
            adapter = try await bluetoothd.adapter(options.adapter)
        } catch {
            await bluetoothd.close()
            throw ChannelError(discovery: error)
        }
        let nearby = NearbyService(
            service, adapter, bluetoothd, configuration, options, loop, onEvent)
        try await nearby.begin()
        return nearby
    }

    private init(
        _ service: BluetoothUUID, _ adapter: String, _ bluetoothd: Bluetoothd,
        _ configuration: ChannelConfiguration, _ options: NearbyOptions, _ loop: EventLoop,
        _ onEvent: @escaping @Sendable (NearbyEvent) -> Void
    ) {
        self.service = service
        self.adapter = adapter
        self.bluetoothd = bluetoothd
        self.configuration = configuration
        self.options = options
        self.loop = loop
        self.onEvent = onEvent
        policy = DialPolicy(rules: options.rules)
        waiting = LoopCondition(loop: loop)
    }

    private func begin() async throws(ChannelError) {
        timer = LoopTimer(loop: loop, handler: self)
        do throws(ChannelError) {
            if options.accepts { try await beginAccepting() }
            if options.dials { try await beginScanning() }
        } catch {
            await close()
            throw error
        }
        tasks.append(
            Task(executorPreference: loop) { [weak self, bluetoothd, adapter] in
                for await state in await bluetoothd.adapterStates(adapter).dropFirst() {
                    await self?.adapterChanged(state)
                }
            })
    }

    private func adapterChanged(_ state: AdapterState) {
        report(.adapter(state))
        adapterState = state
        statusObservers.tell(status)
        guard state == .on else { return }
        runDialPolicy()
        advertiseSoon()
    }

    /// Tells what happens to `observer` as well, on the loop.
    package func observe(_ observer: @escaping @Sendable (NearbyEvent) -> Void) {
        self.observer = observer
    }

    /// Tells whoever wants to know.
    func report(_ event: NearbyEvent) {
        onEvent(event)
        observer?(event)
        switch event {
        case .dialFailed(let candidate, let error):
            failureObservers.tell(PeerFailure(peer: candidate.address.description, error: error))
        case .acceptFailed(let failure): failureObservers.tell(failure)
        default: break
        }
    }

    /// How it stands.
    public var status: NearbyStatus {
        NearbyStatus(adapter: adapterState, advertising: options.accepts ? advertisingState : nil)
    }

    /// The status now, and the newest whenever it has changed, until the service is closed.
    public func states() -> Observation<NearbyStatus> {
        statusObservers.add(beginningWith: status, isOver: isClosed)
    }

    /// The attempts to make a channel, in either direction, that fail from now on, for logs.
    public func failures() -> Observation<PeerFailure> {
        failureObservers.add(
            capacity: Observers<PeerFailure>.failureCapacity, isOver: isClosed)
    }

    /// Whether and why it advertises has changed.
    func advertisingChanged(to state: AdvertisingState) {
        let isNews = !state.isSame(as: advertisingState)
        advertisingState = state
        guard isNews else { return }
        report(.advertising(state))
        statusObservers.tell(status)
    }

    /// Where it can be dialed; nil where it does not accept, or not over L2CAP.
    public var localAddress: L2CAPAddress? {
        get async { await listener?.localAddress }
    }

    /// Who was heard.
    package var peers: [PeerTable.Entry] { policy.table.entries }

    /// The next channel that is ready, accepted or dialed.
    ///
    /// - Throws: `closed` once the service is closed, `cancelled` when the task is.
    public func next() async throws(ChannelError) -> SecureChannel {
        while ready.isEmpty {
            guard !isClosed else { throw ChannelError(.closed, "the service is closed") }
            let isCancelled = await waiting.wait(for: .ready, isolation: self) {
                !ready.isEmpty || isClosed
            }
            if isCancelled {
                throw ChannelError(.cancelled, "the task that waited was cancelled")
            }
        }
        waiting.wake(.room)
        return ready.removeFirst()
    }

    /// The channels that ``next()`` gives, one after another, until the service is closed. Each goes to
    /// one consumer, whoever asks first.
    public nonisolated var channels: SecureChannels {
        SecureChannels { [self] () throws(ChannelError) in try await next() }
    }

    /// Returns when there is room for a channel that is ready; false once the service is closed.
    func waitForRoom() async -> Bool {
        while ready.count >= Self.backlog, !isClosed {
            let isCancelled = await waiting.wait(for: .room, isolation: self) {
                ready.count < Self.backlog || isClosed
            }
            if isCancelled { return false }
        }
        return !isClosed
    }

    /// Ends advertising, scanning and dialing, and the links of channels that are over. Channels that
    /// were given out and are not over live on.
    public func close() async {
        guard !isClosed else { return }
        isClosed = true
        timer?.disarm()
        for task in tasks { task.cancel() }
        sleepTask?.cancel()
        for task in dials.values { task.cancel() }
        for channel in ready { await channel.abort() }
        ready = []
        waiting.wake(.ready)
        waiting.wake(.room)
        await secure?.close()
        await listener?.close()
        // A stream lives as long as its characteristics, which go with the connection to bluetoothd.
        if streams != nil, !live.isEmpty { application = nil }
        withdraw()
        for (key, channel) in live where await channel.channel.isOver { await ended(key) }
        // Whoever dials one of these before its link is down would lose the channel with it.
        for task in Array(dials.values) { await task.value }
        for task in Array(releases.values) { await task.value }
        if live.isEmpty { await bluetoothd.close() }
        statusObservers.finish()
        failureObservers.finish()
    }

    // MARK: - Channels

    /// A channel became ready: keeps it, or ends it or older ones to the same peer.
    func admit(_ fresh: LiveChannel) async {
        watch(fresh)
        for older in live.values where older.isDuplicate(of: fresh) {
            if await older.channel.isOver { continue }
            report(.duplicate(fresh.identity))
            guard DuplicateRule.keeps(fresh.side, insteadOf: older.side) else {
                live[ObjectIdentifier(fresh.channel)]?.isDuplicate = true
                // At once, since nobody would read what it acknowledges.
                try? await fresh.channel.finish(.duplicate)
                await fresh.channel.abort()
                if await fresh.channel.hasUnread { offer(fresh.channel) }
                return
            }
            live[ObjectIdentifier(older.channel)]?.isDuplicate = true
            Task(executorPreference: loop) {
                try? await older.channel.finish(.duplicate)
                try? await older.channel.close()
            }
        }
        guard !isClosed else { return await fresh.channel.abort() }
        offer(fresh.channel)
    }

    private func offer(_ channel: SecureChannel) {
        ready.append(channel)
        waiting.wake(.ready)
    }

    private func watch(_ fresh: LiveChannel) {
        let key = ObjectIdentifier(fresh.channel)
        live[key] = fresh
        Task(executorPreference: loop) {
            try? await fresh.channel.waitUntilOver()
            await self.ended(key)
        }
    }

    private func ended(_ key: ObjectIdentifier) async {
        guard let ended = live.removeValue(forKey: key) else { return }
        let channel = ended.channel
        if await !channel.hasUnread {
            ready.removeAll { $0 === channel }
            waiting.wake(.room)
        }
        // Whoever dials the address before the link is down would lose the channel with it.
        await release(ended.address)
        let course = LinkOutcome(
            lasted: loop.now.duration(since: ended.side.ready),
            hasCarried: await channel.hasCarried, stableAfter: Self.stableAfter,
            backoff: options.rules.backoff)
        policy.linkEnded(with: ended.address, course, at: loop.now, using: &generator)
        if isClosed, live.isEmpty, releases.isEmpty { return await bluetoothd.close() }
        runDialPolicy()
    }

    /// Has bluetoothd end the link to an address if it was asked to make it and nothing here uses it
    /// any more; returns when it has.
    func release(_ address: DeviceAddress) async {
        if let release = releases[address] { return await release.value }
        guard connected.contains(address), !policy.isAccepting(from: address),
            !live.values.contains(where: { $0.address == address })
        else { return }
        connected.remove(address)
        // Not cancelled with the dial that it may end.
        let release = Task(executorPreference: loop) { [bluetoothd, adapter] in
            await bluetoothd.forget(address, on: adapter)
        }
        releases[address] = release
        await release.value
        releases[address] = nil
    }
}

extension NearbyService: TimerHandler {
    package nonisolated func timerFired(_ timer: LoopTimer) {
        assumeIsolated { $0.runDialPolicy() }
    }
}
