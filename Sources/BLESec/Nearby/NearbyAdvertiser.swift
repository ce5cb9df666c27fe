internal import BLESecChannelCore
internal import BLESecDiscovery
internal import BLESecL2CAP
internal import BLESecLinks

/// Publishes an advertisement, and a GATT service with the PSM and a byte stream; renews the tag
/// and the PSM.
actor NearbyAdvertiser {
    /// How long after a failed request to bluetoothd, or a failed renewal of the PSM, the request or
    /// the renewal is repeated.
    private static let retryDelay = Duration.seconds(5)
    /// The shortest time after which a PSM and a tag are renewed because of their age. Each renewal
    /// opens another PSM, so renewals must not follow each other too fast.
    private static let leastRenewalInterval = Duration.seconds(1)

    private nonisolated let loop: EventLoop
    private let setup: NearbySetup
    private let listener: RenewableListener
    private weak let service: NearbyService?

    private var generator = SystemRandomNumberGenerator()
    /// The random tag in the advertisement, by which peers tell advertisements apart.
    private var tag: AdvertisementTag?
    /// When the tag and the PSM must be renewed.
    private var renewalTime: MonotonicTime?
    private var throttle = AdvertisingThrottle()
    /// The end, perhaps still to come, of the newest suspension for which the tag and the PSM have
    /// been renewed.
    private var renewedForSuspensionUntil: MonotonicTime?
    private(set) var state = AdvertisingState.on

    /// The GATT service, as published.
    private var application: Registration?
    private var advertisement: Registration?
    /// Two tasks that wake ``updateTask`` when bluetoothd refuses a repeated request for
    /// ``application`` or ``advertisement``, or grants it after a refusal.
    private var applicationWatch: Task<Void, Never>?
    private var advertisementWatch: Task<Void, Never>?
    /// The payload of the published advertisement.
    private var advertised: AdvertisementPayload?
    /// The byte stream over GATT, if this side offers it.
    private var streams: GATTStreamServer?

    /// Keeps the advertisement up to date.
    private var updateTask: Task<Void, Never>?
    /// The sleep of ``updateTask``; cancelled when there is something to do.
    private var sleepTask: Task<Void, Never>?
    /// Whether ``updateSoon()`` was called since the last ``update()`` began.
    private var mustUpdate = false
    /// Whether ``withdraw(hasOpenChannels:)`` has left ``application`` published.
    private var keepsApplication = false
    private var isClosed = false

    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

    init(_ setup: NearbySetup, listener: RenewableListener, of service: NearbyService?) {
        self.setup = setup
        self.listener = listener
        self.service = service
        loop = setup.loop
    }

    isolated deinit {
        updateTask?.cancel()
        sleepTask?.cancel()
        applicationWatch?.cancel()
        advertisementWatch?.cancel()
    }

    /// Publishes for the first time, and keeps the advertisement up to date from then on.
    func start() async throws(DiscoveryError) {
        try await publish(advertises: true)
        updateTask = Task(executorPreference: loop) { [weak self] in
            while let sleepTask = await self?.update() { await sleepTask.value }
        }
    }

    /// Counts a peer that connected and proved no identity.
    func peerFailed() {
        if throttle.peerFailed(at: loop.now) { updateSoon() }
    }

    /// The adapter is on again: renews the PSM at once if another controller has the adapter's name
    /// now.
    func adapterReturned() {
        if listener.assumeIsolated({ $0.isOnFormerAdapter }) { renewalTime = loop.now }
        updateSoon()
    }

    /// Wakes ``updateTask``, because what to advertise may have changed.
    func updateSoon() {
        mustUpdate = true
        sleepTask?.cancel()
    }

    func close() {
        isClosed = true
        updateTask?.cancel()
        sleepTask?.cancel()
        applicationWatch?.cancel()
        advertisementWatch?.cancel()
    }

    /// Makes bluetoothd withdraw what is published; does not wait until it is withdrawn.
    ///
    /// If this side offers GATT streams and `hasOpenChannels` is true, the GATT service stays
    /// published until the connection to bluetoothd ends, because open streams need it.
    func withdraw(hasOpenChannels: Bool = false) {
        if streams != nil, hasOpenChannels { keepsApplication = true }
        let registrations = [advertisement.take(), keepsApplication ? nil : application.take()]
        for registration in registrations.compactMap({ $0 }) {
            Task(executorPreference: loop) { await registration.end() }
        }
    }

    /// Publishes what has changed. After too many peers have failed to authenticate, advertising is
    /// suspended for a while, and the advertisement is withdrawn. Tag and PSM are renewed at their
    /// renewal time, and when a suspension begins, so that these peers lose the PSM soon.
    ///
    /// - Returns: a task that sleeps until the next time at which there is something to do, or
    ///   until ``updateSoon()`` cancels it; `nil` once the advertiser is closed, or the loop is
    ///   shut down: a loop that is shut down ends every sleep at once.
    private func update() async -> Task<Void, Never>? {
        guard !isClosed, !loop.isShutDown else { return nil }
        mustUpdate = false
        let suspensionEnd = throttle.resumptionTime(asOf: loop.now)
        let suspensionBegins = suspensionEnd != nil && suspensionEnd != renewedForSuspensionUntil
        var renewalError: ChannelError?
        if suspensionBegins || loop.now >= renewalTime ?? .distantFuture {
            renewalTime = nil
            do throws(LinkError) {
                try await renew(
                    grace: suspensionBegins
                        ? RenewableListener.graceInFlood : RenewableListener.grace)
                renewedForSuspensionUntil = suspensionEnd ?? renewedForSuspensionUntil
            } catch {
                // The old PSM and tag stay in use until a later attempt succeeds.
                renewalError = ChannelError(link: error)
            }
        }
        let renewalTime =
            renewalTime
            ?? loop.now.advanced(
                by: renewalError == nil
                    ? max(setup.options.renewal, Self.leastRenewalInterval) : Self.retryDelay)
        self.renewalTime = renewalTime
        let resumption = throttle.resumptionTime(asOf: loop.now)
        var next = min(renewalTime, resumption ?? .distantFuture)
        var state = resumption == nil ? AdvertisingState.on : .crowded
        if let renewalError, resumption == nil { state = .failed(renewalError) }
        do throws(DiscoveryError) {
            try await publish(advertises: resumption == nil)
            for registration in [application, advertisement] {
                if let refusal = await registration?.refusal { throw refusal }
            }
        } catch {
            state = .failed(ChannelError(discovery: error))
            next = min(next, loop.now.advanced(by: Self.retryDelay))
        }
        guard !isClosed else {
            // Withdraws what was published meanwhile. A GATT service with a byte stream stays until
            // the connection to bluetoothd ends, because channels over the stream may be open.
            withdraw(hasOpenChannels: true)
            return nil
        }
        setState(state)
        if mustUpdate { next = loop.now }
        let sleepTask = Task(executorPreference: loop) { [loop] in
            do { try await loop.sleep(until: next) } catch {}
        }
        self.sleepTask = sleepTask
        return sleepTask
    }

    /// Makes a new PSM and tag, so that an observer cannot track this device by them. The old PSMs
    /// are served for `grace`. If no new PSM can be opened, the tag stays too: with a new tag after
    /// each ``retryDelay``, no dialer would hear one tag often enough.
    private func renew(grace: Duration) async throws(LinkError) {
        try await listener.renew(grace: grace)
        makeTag()
    }

    private func setState(_ state: AdvertisingState) {
        let isOtherCase = !state.isSame(as: self.state)
        self.state = state
        if isOtherCase { service?.assumeIsolated { $0.advertisingChanged(to: state) } }
    }

    @discardableResult
    private func makeTag() -> AdvertisementTag {
        let tag = AdvertisementTag.random(using: &generator)
        self.tag = tag
        service?.assumeIsolated { $0.tagChanged(to: tag) }
        return tag
    }

    /// Updates what is published, if it has changed.
    private func publish(advertises: Bool) async throws(DiscoveryError) {
        // What is registered stays registered while the adapter is off. A later call updates it.
        guard await setup.adapter.state == .on else { return }
        let psm = await listener.localAddress?.psm
        guard !isClosed else { return }
        // The GATT application stays published: to replace it would end the streams over it.
        if application == nil {
            let application = try await setup.adapter.publish(gattApplication())
            self.application = application
            if !isClosed { applicationWatch = watch(application) }
            streams?.application = application
        }
        let payload = advertises ? payload(psm) : nil
        guard payload != advertised else { return }
        // An adapter has room for few advertisements, so the old one is withdrawn first.
        advertised = nil
        advertisementWatch?.cancel()
        await advertisement.take()?.end()
        guard let payload, !isClosed else { return }
        let fresh = try await setup.adapter.advertise(
            Advertisement(service: setup.service, payload: payload, carrier: setup.options.carrier))
        advertisement = fresh
        advertised = payload
        if !isClosed { advertisementWatch = watch(fresh) }
    }

    /// A task that wakes ``updateTask`` whenever bluetoothd refuses to repeat a
    /// registration, or grants it again.
    private func watch(_ registration: Registration) -> Task<Void, Never> {
        Task(executorPreference: loop) { [weak self] in
            var isRefused = false
            while (try? await registration.waitForChange(wasRefused: isRefused)) != nil {
                isRefused.toggle()
                await self?.updateSoon()
            }
        }
    }

    private func gattApplication() -> GATTApplication {
        var characteristics: [GATTCharacteristic] = []
        if setup.options.transports.contains(.l2cap) {
            var characteristic = GATTCharacteristic(PSMValue.characteristic)
            characteristic.read = { [weak listener] device in
                let psm = listener?.assumeIsolated { $0.psmForReading(by: device) }
                return psm.map { PSMValue.format($0) } ?? []
            }
            characteristics.append(characteristic)
        }
        if setup.options.transports.contains(.gattStream) {
            let streams = GATTStreamServer(on: setup.adapter) { [weak listener] link in
                guard let listener else { return link.close() }
                listener.assumeIsolated { $0.admit(link) }
            }
            self.streams = streams
            characteristics += streams.characteristics
        }
        return GATTApplication(service: setup.service, characteristics: characteristics)
    }

    private func payload(_ psm: PSM?) -> AdvertisementPayload {
        var capabilities: AdvertisementPayload.Capabilities = []
        if setup.options.transports.contains(.l2cap) { capabilities.insert(.l2cap) }
        if setup.options.transports.contains(.gattStream) { capabilities.insert(.gattStream) }
        for name in setup.configuration.offers {
            capabilities.insert(name.hasPrefix("Noise_") ? .noise : .tls)
        }
        return AdvertisementPayload(
            capabilities: capabilities, psm: setup.options.advertisesPSM ? psm : nil,
            tag: tag ?? makeTag())
    }
}

extension AdvertisingState {
    /// Whether both are the same case: a change of the error alone is not reported.
    fileprivate func isSame(as other: AdvertisingState) -> Bool {
        switch (self, other) {
        case (.on, .on), (.crowded, .crowded), (.failed, .failed): true
        default: false
        }
    }
}
