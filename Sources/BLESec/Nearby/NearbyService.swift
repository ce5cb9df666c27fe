public import BLESecChannelCore
public import BLESecDiscovery
internal import BLESecL2CAP
public import BLESecLinks

/// Finds peers nearby by a service UUID and is found by them: advertises, accepts, scans, dials.
///
/// The service returns channels that are ready, each with a proven peer identity; an advertisement
/// only says where to dial. If two services both advertise and scan, they keep only one channel.
/// After bluetoothd restarts or the adapter is switched off and on, the service publishes again.
/// The service keeps each channel alive until the channel is over, so the program has to close
/// every channel that it has taken; ``close()`` ends only the channels that nobody has taken.
///
/// Close every service with ``close()``. A service that is dropped without ``close()`` goes on
/// while one of its channels is not over, or while 16 ready channels wait for ``next()``.
public actor NearbyService {
    /// How many ready channels may wait for ``next()``; at this limit no more are accepted or
    /// dialed.
    private static let backlog = 16

    /// The loop on which the service and its channels run.
    public nonisolated let loop: EventLoop
    /// The UUID of the service.
    public nonisolated var service: BluetoothUUID { setup.service }
    /// The adapter in use, such as `hci0`.
    public nonisolated var adapter: String { setup.adapter.name.description }
    private nonisolated let setup: NearbySetup
    private let onEvent: @Sendable (NearbyEvent) -> Void
    private var eventHandlers = NearbyEventHandlers()
    private var statusObservers = Observers<NearbyStatus>()
    private var failureObservers = Observers<PeerFailure>()
    private var adapterState = AdapterState.on

    private var dialer: NearbyDialer?
    private var advertiser: NearbyAdvertiser?
    private var listener: RenewableListener?
    private var secureListener: SecureListener?
    private var registry = ChannelRegistry()
    /// The channels that ``next()`` has not returned yet, the oldest first.
    private var readyChannels: [SecureChannel] = []
    private let waiting: LoopCondition
    private var tasks: [Task<Void, Never>] = []
    private var isClosed = false
    /// The task that ends the service; nil before the first call of ``close()``.
    private var closingTask: Task<Void, Never>?

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
    ///   the adapter is off, `timedOut` if bluetoothd does not answer, `limitExceeded` if the
    ///   adapter has no room for another advertisement, `permission`, `cancelled`.
    public static func start(
        _ service: BluetoothUUID = .blesec, configuration: ChannelConfiguration,
        options: NearbyOptions = NearbyOptions(), loop: EventLoop = .shared
    ) async throws(ChannelError) -> NearbyService {
        try await start(service, configuration: configuration, options: options, loop: loop) { _ in
        }
    }

    /// Starts a service that calls `onEvent` for each event, on the loop; `onEvent` must not block.
    package static func start(
        _ service: BluetoothUUID, configuration: ChannelConfiguration,
        options: NearbyOptions = NearbyOptions(), loop: EventLoop = .shared,
        onEvent: @escaping @Sendable (NearbyEvent) -> Void
    ) async throws(ChannelError) -> NearbyService {
        if options.accepts { try configuration.validate(for: .acceptor) }
        if options.dials { try configuration.validate(for: .dialer) }
        let bluetoothd = await Bluetoothd.connect(loop: loop)
        let adapter: BluetoothAdapter
        do throws(DiscoveryError) {
            adapter = try await bluetoothd.adapter(options.adapter)
        } catch {
            await bluetoothd.close()
            throw ChannelError(discovery: error)
        }
        let setup = NearbySetup(
            service: service, adapter: adapter, configuration: configuration, options: options)
        let nearby = NearbyService(setup, onEvent)
        try await nearby.begin()
        return nearby
    }

    private init(_ setup: NearbySetup, _ onEvent: @escaping @Sendable (NearbyEvent) -> Void) {
        self.setup = setup
        self.onEvent = onEvent
        loop = setup.loop
        waiting = LoopCondition(loop: setup.loop)
    }

    isolated deinit {
        for task in tasks { task.cancel() }
        dialer?.assumeIsolated { $0.close() }
        // A link that waits for room in the listener keeps the listener alive.
        if let listener { Task { await listener.close() } }
    }

    private func begin() async throws(ChannelError) {
        let dialer = NearbyDialer(setup, of: self)
        self.dialer = dialer
        do throws(ChannelError) {
            if setup.options.accepts { try await beginAccepting(dialer) }
            if setup.options.dials {
                do throws(DiscoveryError) {
                    try await dialer.start()
                } catch {
                    throw ChannelError(discovery: error)
                }
            }
        } catch {
            await close()
            throw error
        }
        tasks.append(
            Task(executorPreference: loop) { [weak self, adapter = setup.adapter] in
                // The state that `status` reports until the first change.
                var last = AdapterState.on
                while let state = try? await adapter.state(otherThan: last) {
                    await self?.adapterChanged(state)
                    last = state
                }
                // Without a cancellation, only the shutdown of the loop ends the sequence of
                // states.
                if !Task.isCancelled { await self?.close() }
            })
    }

    private func adapterChanged(_ state: AdapterState) {
        report(.adapter(state))
        adapterState = state
        statusObservers.tell(status)
        guard state == .on else { return }
        dialer?.assumeIsolated { $0.run() }
        advertiser?.assumeIsolated { $0.adapterReturned() }
    }

    /// From now on, also reports events to `handler`: on the loop, for as long as `owner` lives.
    func observe(
        for owner: some AnyObject & Sendable, _ handler: @escaping @Sendable (NearbyEvent) -> Void
    ) {
        eventHandlers.add(handler, for: owner)
    }

    func report(_ event: NearbyEvent) {
        onEvent(event)
        eventHandlers.tell(event)
        switch event {
        case .dialFailed(let candidate, let error):
            failureObservers.tell(PeerFailure(peer: candidate.address.description, error: error))
        case .acceptFailed(let failure): failureObservers.tell(failure)
        default: break
        }
    }

    /// The status of the service.
    public var status: NearbyStatus {
        NearbyStatus(
            adapter: adapterState,
            advertising: setup.options.accepts
                ? advertiser?.assumeIsolated { $0.state } ?? .on : nil)
    }

    /// The status now, and the newest status after each change, until the service is closed.
    public func states() -> Observation<NearbyStatus> {
        statusObservers.add(beginningWith: status, isOver: isClosed)
    }

    /// The failed attempts to make a channel, in either direction, from now on; for logs.
    public func failures() -> Observation<PeerFailure> {
        failureObservers.add(capacity: Observers<PeerFailure>.failureCapacity, isOver: isClosed)
    }

    /// The address where peers can dial; `nil` if the service accepts no links over L2CAP.
    public var localAddress: L2CAPAddress? { get async { await listener?.localAddress } }
    /// The peers whose advertisements were heard.
    package var peers: [PeerTable.Entry] { dialer?.assumeIsolated { $0.peers } ?? [] }

    /// Returns the next ready channel, accepted or dialed.
    ///
    /// - Throws: `closed` once the service is closed, `cancelled` when the task is cancelled.
    public func next() async throws(ChannelError) -> SecureChannel {
        while readyChannels.isEmpty {
            if isClosed { throw ChannelError(.closed, "the service is closed") }
            try await waiting.wait(for: .ready, on: self) { !readyChannels.isEmpty || isClosed }
        }
        let channel = readyChannels.removeFirst()
        resumeAcceptingAndDialing()
        return channel
    }

    /// Whether another ready channel may wait for ``next()``.
    var hasRoom: Bool { readyChannels.count < Self.backlog }

    /// Continues to accept and to dial, because there is room for another ready channel.
    private func resumeAcceptingAndDialing() {
        waiting.wake(.room)
        dialer?.assumeIsolated { $0.run() }
    }

    /// The channels that ``next()`` returns, one after another, until the service is closed.
    /// Several consumers share them: each channel goes to the consumer that asked first.
    public nonisolated var channels: SecureChannels {
        SecureChannels { [self] () throws(ChannelError) in try await next() }
    }

    /// Stops advertising, scanning and dialing. Ends the channels that nobody has taken, and the
    /// links that this service has made and none of its channels uses. Channels that were returned
    /// and are not over stay open.
    ///
    /// All programs of this machine share the link to a device, and a service knows only its own
    /// channels. When a service ends a link, here or after its last channel over it, the channels
    /// of other services and programs over this link end, too.
    ///
    /// Waits for the channels that are being closed, and returns when the links are down, which
    /// takes bluetoothd two seconds. A further call waits as well.
    public func close() async {
        isClosed = true
        let task = closingTask ?? Task(executorPreference: loop) { await self.end() }
        closingTask = task
        await task.value
        // Since the first call, further channels may have begun to close.
        await endLinks()
    }

    private func end() async {
        for task in tasks { task.cancel() }
        await advertiser?.close()
        await dialer?.close()
        let unclaimed = readyChannels
        readyChannels = []
        for channel in unclaimed { await discard(channel) }
        waiting.wake(.ready)
        waiting.wake(.room)
        await secureListener?.close()
        await listener?.close()
        await advertiser?.withdraw(hasOpenChannels: !registry.isEmpty)
        await endLinks()
        statusObservers.finish()
        failureObservers.finish()
    }

    /// Ends the links that no open channel uses; returns when they are down.
    private func endLinks() async {
        // A closed ``PeerConnection`` may still be closing its channel. The channel's link is ended
        // when the channel is over.
        for channel in registry.closingChannels { try? await channel.waitUntilOver() }
        for channel in registry.endedChannels { await ended(channel) }
        // Waits until the links are down, since a new dial over one of them would lose its channel.
        await dialer?.endUnusedLinks()
        if registry.isEmpty { await setup.adapter.bluetoothd.close() }
    }

    // MARK: - Accepting

    private func beginAccepting(_ dialer: NearbyDialer) async throws(ChannelError) {
        let listener: RenewableListener
        do throws(LinkError) {
            listener = try await RenewableListener.listen(
                on: setup.options.transports.contains(.l2cap) ? try Adapter.named(adapter) : nil,
                loop: loop
            ) { [weak dialer] link in
                guard let address = link.peerAddress?.device else { return }
                dialer?.assumeIsolated { $0.accepted(from: address) }
            }
        } catch {
            throw ChannelError(link: error)
        }
        self.listener = listener
        let address = await listener.localAddress
        let secureListener = SecureListener(
            listener, at: address.map { Endpoint($0) } ?? .gatt, configuration: setup.configuration,
            limits: SecureListener.Limits(), loop: loop
        ) { [weak self] failure in
            self?.assumeIsolated { $0.acceptFailed(failure) }
        }
        self.secureListener = secureListener
        await secureListener.start()
        let advertiser = NearbyAdvertiser(setup, listener: listener, of: self)
        self.advertiser = advertiser
        do throws(DiscoveryError) {
            try await advertiser.start()
        } catch {
            throw ChannelError(discovery: error)
        }
        tasks.append(
            Task(executorPreference: loop) { [weak self] in
                while await self?.waitForRoom() ?? false,
                    let channel = try? await secureListener.accept()
                {
                    guard let self else { return await channel.abort() }
                    await self.acceptSucceeded(channel)
                }
            })
    }

    /// Returns when there is room for another ready channel; false once the service is closed.
    private func waitForRoom() async -> Bool {
        do throws(ChannelError) {
            try await waiting.wait(for: .room, on: self) { hasRoom || isClosed }
        } catch {
            return false
        }
        return !isClosed
    }

    private func acceptFailed(_ failure: PeerFailure) {
        // A handshake that `close()` has cancelled is no failure of the peer.
        if !isClosed || failure.error.code != .cancelled { report(.acceptFailed(failure)) }
        // Without an address, no peer has failed: this side could not accept a peer.
        guard let address = failure.address?.device else { return }
        // Many failures of peers stop the advertising. Links that the handshake limits turned away
        // do not count as failures, because most such links cost little.
        if failure.error.code != .busy { advertiser?.assumeIsolated { $0.peerFailed() } }
        dialer?.assumeIsolated { $0.acceptFailed(from: address) }
    }

    private func acceptSucceeded(_ channel: SecureChannel) async {
        guard let address = channel.linkAddress?.device else { return await channel.abort() }
        await admit(channel, address) { [dialer] peer in
            dialer?.assumeIsolated { $0.acceptSucceeded(from: address, peer) }
        }
    }

    // MARK: - Advertising

    func advertisingChanged(to state: AdvertisingState) {
        report(.advertising(state))
        statusObservers.tell(status)
    }

    func tagChanged(to tag: AdvertisementTag) { dialer?.assumeIsolated { $0.tagChanged(to: tag) } }

    // MARK: - Channels

    func usesLink(to address: DeviceAddress) -> Bool { registry.uses(address) }

    /// Admits a channel that became ready. If there is another channel to the same peer, ends one of
    /// the two.
    ///
    /// - Parameter willAdmit: makes the dialer count the link as ready, and no longer as being
    ///   dialed or accepted.
    func admit(
        _ channel: SecureChannel, _ address: DeviceAddress,
        willAdmit: @Sendable (PeerIdentity) -> Void
    ) async {
        let fresh = await ChannelRegistry.Entry(channel, to: address)
        // Nothing suspends between the two calls, so that the link never counts as unused.
        willAdmit(fresh.peer)
        let admission = registry.admit(fresh)
        Task(executorPreference: loop) {
            try? await channel.waitUntilOver()
            await self.ended(channel)
        }
        switch admission {
        case .only: break
        case .ends(let older):
            report(.duplicate(fresh.peer))
            Task(executorPreference: loop) {
                try? await older.finish(.duplicate)
                try? await older.close()
            }
        case .endsNew:
            report(.duplicate(fresh.peer))
            // `channel.close()` would wait until the program has taken the peer's messages. But the
            // program gets this channel only when the channel is over.
            try? await channel.finish(.duplicate)
            await channel.abort()
            if await channel.hasWaitingMessages, !isClosed { offer(channel) }
            return
        }
        guard !isClosed else { return await discard(channel) }
        offer(channel)
    }

    /// Ends a ready channel that ``next()`` has not returned.
    private func discard(_ channel: SecureChannel) async {
        if let failure = await channel.discard() { report(.acceptFailed(failure)) }
    }

    private func offer(_ channel: SecureChannel) {
        readyChannels.append(channel)
        waiting.wake(.ready)
    }

    /// Called when a channel is over: removes the channel, and ends its link if nothing uses the link.
    private func ended(_ channel: SecureChannel) async {
        guard let entry = registry.remove(channel) else { return }
        // A channel with unread messages can still be taken.
        if await !channel.hasWaitingMessages,
            let index = readyChannels.firstIndex(where: { $0 === channel })
        {
            readyChannels.remove(at: index)
            resumeAcceptingAndDialing()
            // In place of a superseded channel, the program gets the other channel to the peer.
            if !entry.isSuperseded { await discard(channel) }
        }
        guard let dialer else { return }
        await dialer.ended(entry)
        if isClosed, registry.isEmpty, await !dialer.isEndingLinks {
            await setup.adapter.bluetoothd.close()
        }
    }

    /// Restarts the scan, for a connection that has not reached its peer.
    func searchAnew() async { await dialer?.searchAnew() }
}
