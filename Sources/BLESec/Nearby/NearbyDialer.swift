internal import BLESecChannelCore
internal import BLESecDiscovery
internal import BLESecLinks

/// Scans for a service, dials peers as the policy decides, and ends the links of these dials.
actor NearbyDialer {
    /// The longest time that making a link may take.
    private static let connectTimeout = Duration.seconds(4)
    /// The time that a peer has to open its channel over a link that it has made.
    private static let acceptTimeout = Duration.seconds(10)
    /// Sightings make the dialer act at most once in this time.
    private static let sightingInterval = Duration.milliseconds(50)
    private static let calledOff = ChannelError(.cancelled, "the dial was called off")

    private nonisolated let loop: EventLoop
    private let setup: NearbySetup
    private weak let service: NearbyService?

    private var policy: DialPolicy
    private var generator = SystemRandomNumberGenerator()
    private let transports: TransportDialer
    private var dials: [Candidate: RunningDial] = [:]
    private var links: DialedLinks
    /// The dials whose links have carried no ready channel; this side must end these links. Each dial
    /// says whether its device is to be removed although the device is paired.
    private var unreadyDials: [DeviceAddress: DeviceDial] = [:]
    /// The tasks in which bluetoothd is ending links; to end a link takes 2 seconds.
    private var releases: [DeviceAddress: Task<Bool, Never>] = [:]
    /// The addresses whose last connect collided with bluetoothd's own scan.
    private var collidedAddresses: Set<DeviceAddress> = []
    private var scan: ServiceScan?
    private var scanTask: Task<Void, Never>?
    private var timer: LoopTimer?
    private var lastRun = MonotonicTime(nanoseconds: 0)
    private var isClosed = false

    private struct RunningDial {
        let task: Task<Void, Never>
        /// Nil until the dial to the device begins.
        var device: DeviceDial?
        /// Whether the dial has ended because the device was paired.
        var isPaired = false
    }

    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

    init(_ setup: NearbySetup, of service: NearbyService) {
        self.setup = setup
        self.service = service
        loop = setup.loop
        policy = DialPolicy(rules: setup.options.rules)
        links = DialedLinks(accepts: setup.options.accepts)
        transports = TransportDialer(setup)
    }

    isolated deinit { scanTask?.cancel() }
    var peers: [PeerTable.Entry] { policy.table.entries }
    /// Whether links are being ended, or still have to be.
    var isEndingLinks: Bool { !releases.isEmpty || !dials.isEmpty || !links.addresses.isEmpty }
    func tagChanged(to tag: AdvertisementTag) { policy.ownTag = tag }

    func start() async throws(DiscoveryError) {
        timer = LoopTimer(loop: loop, handler: self)
        let scan = try await setup.adapter.scan(
            for: setup.service, anewEvery: setup.options.scansAnewEvery)
        self.scan = scan
        scanTask = Task(executorPreference: loop) { [weak self] in
            for await sighting in scan.sightings { await self?.heard(sighting) }
        }
    }

    func close() {
        isClosed = true
        timer?.disarm()
        scanTask?.cancel()
        for dial in dials.values { dial.task.cancel() }
    }

    /// Ends the links that no channel uses; returns when no dial is under way and no link is being
    /// ended. Called when the dialer is closed, and no more links are accepted.
    func endUnusedLinks() async {
        for dial in Array(dials.values) { await dial.task.value }
        for address in links.addresses { _ = beginRelease(address) }
        for task in Array(releases.values) { _ = await task.value }
    }

    // MARK: - Sightings

    private func heard(_ sighting: Sighting) {
        guard !isClosed else { return }
        policy.heard(sighting, at: loop.now, using: &generator)
        // Any device can cause any number of sightings, so the dialer does not act on each.
        let nextRun = lastRun.advanced(by: Self.sightingInterval)
        if loop.now >= nextRun {
            run()
        } else if timer?.deadline.map({ $0 > nextRun }) ?? true {
            timer?.arm(at: nextRun)
        }
    }

    /// Dials as the policy decides, and arms the timer for the policy's next decision. Does nothing if
    /// this side does not dial, or while too many ready channels wait for the program.
    func run() {
        guard !isClosed, setup.options.dials, service?.assumeIsolated({ $0.hasRoom }) ?? false
        else {
            return
        }
        lastRun = loop.now
        let (candidates, next) = policy.step(at: loop.now, using: &generator)
        for candidate in candidates { begin(candidate) }
        if dials.isEmpty, policy.hasPlaces, let scan {
            Task(executorPreference: loop) { await self.resume(scan) }
        }
        timer?.arm(at: next ?? .distantFuture)
    }

    /// Restarts the scan. Does nothing while a dial is under way, or while no more links are allowed.
    func searchAnew() async {
        guard !isClosed, dials.isEmpty, policy.hasPlaces, let scan else { return }
        await scan.pause()
        run()
    }

    /// Resumes the scan, unless a dial has begun meanwhile.
    private func resume(_ scan: ServiceScan) async { if dials.isEmpty { await scan.resume() } }

    // MARK: - Dials

    private func begin(_ candidate: Candidate) {
        report(.dialing(candidate))
        let task = Task(executorPreference: loop) {
            do throws(ChannelError) {
                await self.dialSucceeded(candidate, try await self.dial(candidate))
            } catch {
                await self.dialFailed(candidate, error)
            }
        }
        dials[candidate] = RunningDial(task: task)
    }

    /// The device of a dial was paired while the dial lasted: ends the dial, unless it was called
    /// off before.
    private func paired(_ candidate: Candidate) {
        guard let dial = dials[candidate], !dial.task.isCancelled else { return }
        dials[candidate]?.isPaired = true
        dial.task.cancel()
    }

    private func dialSucceeded(_ candidate: Candidate, _ channel: SecureChannel) async {
        if let service {
            await service.admit(channel, candidate.address) { peer in
                assumeIsolated { $0.dialSucceeded(candidate, peer) }
            }
        } else {
            dialSucceeded(candidate, await channel.peer)
            await channel.abort()
            await release(candidate.address)
        }
        run()
    }

    private func dialSucceeded(_ candidate: Candidate, _ peer: PeerIdentity) {
        dials[candidate] = nil
        policy.dialSucceeded(candidate, identity: peer.fingerprint?.description)
    }

    private func dialFailed(_ candidate: Candidate, _ failure: ChannelError) async {
        if let wait = links.timeForPeer(at: candidate.address) {
            // Gives the peer time to open its own channel over the link. If the peer does, this
            // task is cancelled, and so the wait ends.
            try? await loop.sleep(for: wait)
        }
        let isCollision = collidedAddresses.remove(candidate.address) != nil
        if let dial = dials[candidate], let device = dial.device, dial.isPaired,
            !links.contains(candidate.address), device.removesPairedDevice
        {
            // The link is gone, but the device has to be removed.
            didMakeLink(to: candidate.address, device)
        }
        let isRemoved = await release(candidate.address)
        await dials[candidate]?.device?.end()
        let dial = dials.removeValue(forKey: candidate)
        var error = failure
        if let device = dial?.device, dial?.isPaired ?? false {
            error = ChannelError(discovery: device.pairingFailure(isRemoved: isRemoved))
                .during(.connecting)
        }
        if error.code == .cancelled {
            report(.dialCancelled(candidate))
            policy.dialCancelled(candidate)
        } else if isCollision, dial?.isPaired != true, policy.dialCollided(candidate) {
            // `run()` below dials the candidate again at once.
        } else {
            // The PSM is forgotten, because another program may listen on it by now.
            transports.forget(candidate)
            report(.dialFailed(candidate, error))
            policy.dialFailed(candidate, at: loop.now, using: &generator)
        }
        run()
    }

    private func dial(_ candidate: Candidate) async throws(ChannelError) -> SecureChannel {
        let address = candidate.address
        collidedAddresses.remove(address)
        await scan?.pause()
        try await connect(candidate)
        if setup.options.accepts, !links.contains(address) {
            // The peer has made the link to open a channel of its own, and only one side may open
            // channels over a link. If the peer's channel arrives, this dial is cancelled; after
            // the timeout, the dial continues.
            do {
                try await loop.sleep(for: Self.acceptTimeout)
            } catch {
                throw Self.calledOff
            }
        }
        report(.opening(candidate))
        let advertised = policy.table[candidate]?.payload?.psm
        let (link, endpoint) = try await transports.open(candidate, advertised: advertised)
        report(.handshaking(candidate, endpoint))
        let channel = try await SecureChannel.open(
            over: link, role: .dialer, configuration: setup.configuration)
        guard becameReady(candidate) else {
            await channel.abort()
            throw Self.calledOff
        }
        return channel
    }

    /// The channel to a candidate is ready, so the peer is proven and trusted. If the user pairs with
    /// the device from now on, the device stays paired. Returns false if the device was paired
    /// during the dial.
    private func becameReady(_ candidate: Candidate) -> Bool {
        guard let dial = dials[candidate], !dial.isPaired else { return false }
        dial.device?.assumeIsolated { $0.end() }
        unreadyDials[candidate.address] = nil
        return true
    }

    /// Connects to a candidate's device.
    private func connect(_ candidate: Candidate) async throws(ChannelError) {
        let address = candidate.address
        let device = setup.adapter.device(address)
        let deadline = loop.now.advanced(by: Self.connectTimeout)
        let dial: DeviceDial
        do throws(DiscoveryError) {
            dial = try await device.beginDial(until: deadline) { [weak self] in
                self?.assumeIsolated { $0.paired(candidate) }
            }
        } catch {
            throw ChannelError(discovery: error).during(.connecting)
        }
        dials[candidate]?.device = dial
        do throws(DiscoveryError) {
            let makesLink = try await device.connect(
                until: deadline, mayEnd: { await !self.isUsed(address) })
            if makesLink { didMakeLink(to: address, dial) }
        } catch {
            if dials[candidate]?.isPaired ?? false {
                // Even if the link is gone, the device has to be removed.
                didMakeLink(to: address, dial)
            } else if error.code == .collision {
                collidedAddresses.insert(address)
            } else if await hasLink(to: address) {
                try await connectFailed(to: address, dial, error)
            }
            throw ChannelError(discovery: error).during(.connecting)
        }
    }

    /// A dial has made, or may have made, the link to an address.
    private func didMakeLink(to address: DeviceAddress, _ dial: DeviceDial) {
        links.insert(address)
        // A ready channel that the peer has opened over the link proves the peer as well.
        unreadyDials[address] = usesLink(to: address) ? nil : dial
    }

    /// Whether there is a link to an address. A channel may arrive over a new link before bluetoothd
    /// reports the link.
    private func hasLink(to address: DeviceAddress) async -> Bool {
        if isUsed(address) { return true }
        return await setup.adapter.device(address).isConnected
    }

    /// A connect has failed, or was called off, although there is a link to the address. The link
    /// may be the peer's, so the peer gets time to open its channel, which calls the dial off.
    ///
    /// bluetoothd does not say who has made the link. In any case this side ends the link when
    /// nothing uses the link any more. If each side took the link for the other side's, nobody
    /// would end it, and neither side could hear the other's advertisements.
    private func connectFailed(
        to address: DeviceAddress, _ dial: DeviceDial, _ error: DiscoveryError
    ) async throws(ChannelError) {
        var isCalledOff = error.code == .cancelled
        if !isCalledOff, setup.options.accepts {
            do {
                try await loop.sleep(for: Self.acceptTimeout)
            } catch {
                isCalledOff = true
            }
        }
        didMakeLink(to: address, dial)
        if isCalledOff { throw Self.calledOff }
    }

    private func report(_ event: NearbyEvent) { service?.assumeIsolated { $0.report(event) } }

    // MARK: - Links of either side

    /// A link from an address was accepted: cancels this side's dials to the address.
    func accepted(from address: DeviceAddress) {
        for candidate in policy.accepted(from: address) { dials[candidate]?.task.cancel() }
    }

    /// An accepted link has become a channel.
    func acceptSucceeded(from address: DeviceAddress, _ peer: PeerIdentity) {
        unreadyDials[address] = nil
        policy.acceptSucceeded(from: address, identity: peer.fingerprint?.description)
    }

    /// An accepted link has not become a channel.
    func acceptFailed(from address: DeviceAddress) {
        policy.acceptFailed(from: address)
        // The release begins now, so that `run()` does not dial the address before the link is
        // down.
        let release = beginRelease(address)
        Task(executorPreference: loop) {
            _ = await release?.value
            await self.run()
        }
    }

    /// A channel is over: ends its link, and tells the policy how the channel went.
    func ended(_ entry: ChannelRegistry.Entry) async {
        let lasted = loop.now.duration(since: entry.history.readyTime)
        // A new dial to the address before the link is down would lose its channel with the link.
        await release(entry.address)
        let hasCarriedMessage = await entry.channel.hasCarriedMessage
        let outcome = LinkOutcome(
            lasted: lasted, hasCarriedMessage: hasCarriedMessage,
            backoff: setup.options.rules.backoff)
        policy.linkEnded(with: entry.address, outcome, at: loop.now, using: &generator)
        run()
    }

    /// Whether a channel from an address is being accepted, or a ready channel uses the link to
    /// the address.
    private func isUsed(_ address: DeviceAddress) -> Bool {
        !isClosed && policy.isAccepting(from: address) || usesLink(to: address)
    }

    /// Whether a ready channel uses the link to an address.
    private func usesLink(to address: DeviceAddress) -> Bool {
        service?.assumeIsolated { $0.usesLink(to: address) } ?? false
    }

    /// Ends the link to an address, if this side's dial made the link and nothing uses it any more;
    /// returns when the link is down. Returns whether bluetoothd has forgotten the device.
    @discardableResult
    private func release(_ address: DeviceAddress) async -> Bool {
        await beginRelease(address)?.value ?? false
    }

    /// Begins to do what ``release(_:)`` does, and returns the task that ends the link; nil if the
    /// link is not to be ended.
    private func beginRelease(_ address: DeviceAddress) -> Task<Bool, Never>? {
        if let release = releases[address] { return release }
        guard links.removeIfUnused(address, isUsed: isUsed(address)) else { return nil }
        policy.releaseBegan(address)
        let dial = unreadyDials.removeValue(forKey: address)
        // A task of its own, so that cancelling the dial does not cancel the release.
        let release = Task(executorPreference: loop) { [adapter = setup.adapter] in
            let isForgotten = await adapter.device(address).forget(after: dial)
            await self.releaseEnded(address)
            return isForgotten
        }
        releases[address] = release
        return release
    }

    private func releaseEnded(_ address: DeviceAddress) {
        releases[address] = nil
        policy.releaseEnded(address)
    }
}

extension NearbyDialer: TimerHandler {
    nonisolated func timerFired(_ timer: LoopTimer) { assumeIsolated { $0.run() } }
}
