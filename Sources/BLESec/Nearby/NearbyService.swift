public import BLESecChannelCore
public import BLESecDiscovery
internal import BLESecL2CAP
public import BLESecLinks

/// Finds peers nearby by a service UUID, and can be found by them: advertises and accepts, scans
/// and dials.
///
/// The service returns channels that are ready, each with a proven peer identity; an advertisement
/// only tells where to dial. If two services both advertise and scan, they end up with one channel.
/// After bluetoothd restarts or the adapter is switched off and on, the service publishes again.
/// The service keeps each channel alive until the channel is over: close the channel or the
/// service.
public actor NearbyService {
    /// How long opening a link to a candidate may take.
    static let connectTimeout = Duration.seconds(4)
    /// How long bluetoothd may query a candidate's services before the channel is opened
    /// regardless.
    static let quietTimeout = Duration.seconds(2)
    /// How long querying a candidate over GATT may take.
    static let askTimeout = Duration.seconds(10)
    /// The time that a peer has to open a channel of its own after a dial has failed, before the
    /// link is ended.
    static let peersTurn = Duration.milliseconds(500)
    /// A link that lasts this long counts as good, even if it has carried no message.
    static let stableAfter = Duration.seconds(10)
    /// The longest wait before the service acts on new sightings.
    static let pause = Duration.milliseconds(50)

    /// The loop on which the service and its channels run.
    public nonisolated let loop: EventLoop
    /// The UUID of the service.
    public nonisolated let service: BluetoothUUID
    /// The adapter in use, such as `hci0`.
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
    /// PSMs that were read over GATT, and PSMs on which no peer listened.
    var psms = PSMCache()
    var refusedPSMs = PSMCache()
    var dials: [Candidate: Task<Void, Never>] = [:]
    var live: [ObjectIdentifier: LiveChannel] = [:]
    /// Addresses to which bluetoothd made a link for this service; the service has bluetoothd end a
    /// link that no channel uses.
    var connected: Set<DeviceAddress> = []
    /// Links that bluetoothd is ending, which takes 2 seconds.
    private var releases: [DeviceAddress: Task<Void, Never>] = [:]
    var listener: RenewableListener?
    var secure: SecureListener?
    /// The byte stream over GATT, if this side offers it.
    var streams: GATTStreamServer?
    /// The GATT application and advertisement published through bluetoothd, and what they contain.
    var application: UInt64?
    var publishedPSM: PSM?
    var advertisement: UInt64?
    var advertised: AdvertisementPayload?
    var advertisingState = AdvertisingState.on
    /// When the tag and the PSM must be renewed.
    var renewal: MonotonicTime?
    /// The sleep of the task that keeps the advertisement up to date; cancelled when there is
    /// something to do.
    var sleepTask: Task<Void, Never>?
    var mustAdvertise = false
    var advertisingThrottle = AdvertisingThrottle()
    var tasks: [Task<Void, Never>] = []
    var scan: ServiceScan?
    var timer: LoopTimer?
    var lastLook = MonotonicTime(nanoseconds: 0)

    private var ready: [SecureChannel] = []
    /// How many channels may wait to be taken; at this limit no more are accepted.
    private static let backlog = 16
    private enum Event: Hashable { case ready, room }
    private let waiting: LoopCondition<Event>
    private(set) var isClosed = false

    /// A channel that has not ended.
    struct LiveChannel {
        let channel: SecureChannel
        let address: DeviceAddress
        let identity: PeerIdentity
        let side: DuplicateRule.Side
        /// Whether the channel is being ended in favour of another channel to the same peer.
        var isDuplicate = false

        /// Whether the two are channels to one peer, so that one of them must end.
        func isDuplicate(of other: LiveChannel) -> Bool {
            channel !== other.channel && !isDuplicate && !other.isDuplicate
                && identity.fingerprint != nil && identity == other.identity
        }
    }

    /// The loop's executor: the actor runs on the loop's thread only.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// Begins to advertise, to scan, or both, as the options define.
    ///
    /// - Parameters:
    ///   - service: the UUID that peers scan for and advertise; ``BluetoothUUID/blesec`` by
    ///     default.
    ///   - configuration: the configuration of channels in both directions.
    ///   - options: whether and how to find peers and be found.
    ///   - loop: the loop on which the service and its channels run.
    /// - Throws: ``ChannelError``: `configuration`, `noSuchAdapter` if bluetoothd does not run or
    ///   the adapter is off, `permission`.
    public static func start(
        _ service: BluetoothUUID = .blesec, configuration: ChannelConfiguration,
        options: NearbyOptions = NearbyOptions(), loop: EventLoop = .shared
    ) async throws(ChannelError) -> NearbyService {
        try await start(service, configuration: configuration, options: options, loop: loop) { _ in
        }
    }

    /// Starts a service that reports every event to `onEvent`, which is called on the loop and must
    /// not block.
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

    /// Also reports events to `observer`, on the loop.
    package func observe(_ observer: @escaping @Sendable (NearbyEvent) -> Void) {
        self.observer = observer
    }

    /// Reports an event to all observers.
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

    /// The status of the service.
    public var status: NearbyStatus {
        NearbyStatus(adapter: adapterState, advertising: options.accepts ? advertisingState : nil)
    }

    /// The status now, and the newest status after each change, until the service is closed.
    public func states() -> Observation<NearbyStatus> {
        statusObservers.add(beginningWith: status, isOver: isClosed)
    }

    /// The failed attempts to make a channel, in either direction, from now on; for logs.
    public func failures() -> Observation<PeerFailure> {
        failureObservers.add(
            capacity: Observers<PeerFailure>.failureCapacity, isOver: isClosed)
    }

    /// Records a new advertising state, and reports it if it differs.
    func advertisingChanged(to state: AdvertisingState) {
        let isNews = !state.isSame(as: advertisingState)
        advertisingState = state
        guard isNews else { return }
        report(.advertising(state))
        statusObservers.tell(status)
    }

    /// The address where peers can dial; `nil` if the service does not accept, or not over L2CAP.
    public var localAddress: L2CAPAddress? {
        get async { await listener?.localAddress }
    }

    /// The peers that were heard.
    package var peers: [PeerTable.Entry] { policy.table.entries }

    /// Returns the next ready channel, accepted or dialed.
    ///
    /// - Throws: `closed` once the service is closed, `cancelled` when the task is cancelled.
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

    /// The channels that ``next()`` returns, one after another, until the service is closed.
    /// Several consumers share them: each channel goes to the consumer that asked first.
    public nonisolated var channels: SecureChannels {
        SecureChannels { [self] () throws(ChannelError) in try await next() }
    }

    /// Returns when there is room for another ready channel; false once the service is closed.
    func waitForRoom() async -> Bool {
        while ready.count >= Self.backlog, !isClosed {
            let isCancelled = await waiting.wait(for: .room, isolation: self) {
                ready.count < Self.backlog || isClosed
            }
            if isCancelled { return false }
        }
        return !isClosed
    }

    /// Ends advertising, scanning and dialing, and the links of channels that are over. Channels
    /// that were returned and are not over stay open.
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
        // A GATT stream needs its characteristics, so they stay until the connection to bluetoothd
        // ends.
        if streams != nil, !live.isEmpty { application = nil }
        withdraw()
        for (key, channel) in live where await channel.channel.isOver { await ended(key) }
        // A new dial to one of these addresses before its link is down would lose its channel with
        // the link.
        for task in Array(dials.values) { await task.value }
        for task in Array(releases.values) { await task.value }
        if live.isEmpty { await bluetoothd.close() }
        statusObservers.finish()
        failureObservers.finish()
    }

    // MARK: - Channels

    /// Admits a channel that became ready; if it duplicates another, ends one of the two.
    func admit(_ fresh: LiveChannel) async {
        watch(fresh)
        for older in live.values where older.isDuplicate(of: fresh) {
            if await older.channel.isOver { continue }
            report(.duplicate(fresh.identity))
            guard DuplicateRule.keeps(fresh.side, insteadOf: older.side) else {
                live[ObjectIdentifier(fresh.channel)]?.isDuplicate = true
                // At once, because this side would not read what the peer acknowledges.
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
        // A new dial to the address before the link is down would lose its channel with the link.
        await release(ended.address)
        let course = LinkOutcome(
            lasted: loop.now.duration(since: ended.side.ready),
            hasCarried: await channel.hasCarried, stableAfter: Self.stableAfter,
            backoff: options.rules.backoff)
        policy.linkEnded(with: ended.address, course, at: loop.now, using: &generator)
        if isClosed, live.isEmpty, releases.isEmpty { return await bluetoothd.close() }
        runDialPolicy()
    }

    /// Has bluetoothd end the link to an address, if bluetoothd made the link on request and no
    /// channel uses it any more; returns when the link is down.
    func release(_ address: DeviceAddress) async {
        if let release = releases[address] { return await release.value }
        guard connected.contains(address), !policy.isAccepting(from: address),
            !live.values.contains(where: { $0.address == address })
        else { return }
        connected.remove(address)
        // A task of its own, so that cancelling the dial does not cancel the release.
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
