internal import BLESecChannelCore
internal import BLESecDiscovery
internal import BLESecL2CAP
internal import BLESecLinks

/// Advertising: a GATT service with the PSM and a byte stream, and an advertisement.
extension NearbyService {
    /// After what time to ask bluetoothd again after it refused.
    private static let advertisingRetry = Duration.seconds(5)

    /// Publishes what has changed: tag and PSM after their renewal time, and nothing while
    /// advertising is suspended because of dials that failed to authenticate.
    ///
    /// - Returns: a task that sleeps until there is something to do, unless ``advertiseSoon()``
    ///   ends it; `nil` once the service is closed.
    func keepAdvertising() async -> Task<Void, Never>? {
        guard !isClosed else { return nil }
        mustAdvertise = false
        let isOver = advertisingState.isCrowded && advertisingThrottle.reopens(at: loop.now) == nil
        if isOver || loop.now >= renewal ?? .distantFuture {
            renewal = nil
            await renew()
        }
        let renewal = renewal ?? loop.now.advanced(by: options.renewal)
        self.renewal = renewal
        let reopening = advertisingThrottle.reopens(at: loop.now)
        var next = min(renewal, reopening ?? .distantFuture)
        var state = reopening == nil ? AdvertisingState.on : .crowded
        do throws(DiscoveryError) {
            try await publish(advertises: reopening == nil)
        } catch {
            state = .failed(ChannelError(discovery: error))
            next = min(next, loop.now.advanced(by: Self.advertisingRetry))
        }
        guard !isClosed else {
            withdraw()
            return nil
        }
        advertisingChanged(to: state)
        if mustAdvertise { next = loop.now }
        let sleepTask = Task(executorPreference: loop) { [loop] in
            do { try await loop.sleep(until: next) } catch {}
        }
        self.sleepTask = sleepTask
        return sleepTask
    }

    /// Wakes the advertising task, because what to advertise may have changed.
    func advertiseSoon() {
        mustAdvertise = true
        sleepTask?.cancel()
    }

    /// Makes a new tag and PSM, so that an observer cannot track this device by them.
    private func renew() async {
        policy.ownTag = AdvertisementTag.random(using: &generator)
        do throws(LinkError) {
            try await listener?.renew()
        } catch {
            // The old PSM stays in use.
            report(.advertising(.failed(ChannelError(link: error))))
        }
    }

    /// Publishes the current state instead of what was published before, if they differ.
    func publish(advertises: Bool) async throws(DiscoveryError) {
        // What was published before returns when the adapter comes back, and is replaced then.
        guard let listener, await bluetoothd.adapterState(adapter) == .on else { return }
        let psm = await listener.localAddress?.psm
        publishedPSM = psm
        // The application stays: publishing another one would end the streams over it.
        if application == nil {
            let application = try await bluetoothd.publish(gattApplication(listener), on: adapter)
            self.application = application
            streams?.application = application
        }
        let payload = advertises ? payload(psm) : nil
        guard payload != advertised else { return }
        // An adapter has room for few advertisements, so the old one is withdrawn first.
        advertised = nil
        if let old = advertisement.take() { await bluetoothd.withdraw(old) }
        guard let payload else { return }
        advertisement = try await bluetoothd.advertise(
            Advertisement(service: service, payload: payload, carrier: options.carrier),
            on: adapter)
        advertised = payload
    }

    private func gattApplication(_ listener: RenewableListener) -> GATTApplication {
        var characteristics: [GATTCharacteristic] = []
        if options.transports.contains(.l2cap) {
            var psm = GATTCharacteristic(PSMValue.characteristic)
            psm.read = { [weak self] in
                let known = self?.assumeIsolated { $0.publishedPSM }
                return known.map { PSMValue.format($0) } ?? []
            }
            characteristics.append(psm)
        }
        if options.transports.contains(.gattStream) {
            let streams = GATTStreamServer(bluetoothd, on: adapter) { [weak listener] link in
                guard let listener else { return link.close() }
                listener.assumeIsolated { $0.admit(link) }
            }
            self.streams = streams
            characteristics += streams.characteristics
        }
        return GATTApplication(service: service, characteristics: characteristics)
    }

    private func payload(_ psm: PSM?) -> AdvertisementPayload {
        var capabilities: AdvertisementPayload.Capabilities = []
        if options.transports.contains(.l2cap) { capabilities.insert(.l2cap) }
        if options.transports.contains(.gattStream) { capabilities.insert(.gattStream) }
        for name in configuration.protocols {
            capabilities.insert(name.hasPrefix("Noise_") ? .noise : .tls)
        }
        let tag = policy.ownTag ?? AdvertisementTag.random(using: &generator)
        policy.ownTag = tag
        return AdvertisementPayload(
            capabilities: capabilities, psm: options.advertisesPSM ? psm : nil, tag: tag)
    }

    /// Withdraws everything that is published; does not wait for bluetoothd to do so.
    func withdraw() {
        for token in [advertisement.take(), application.take()].compactMap({ $0 }) {
            Task(executorPreference: loop) { [bluetoothd] in await bluetoothd.withdraw(token) }
        }
    }
}

extension AdvertisingState {
    fileprivate var isCrowded: Bool { if case .crowded = self { true } else { false } }

    /// Whether a change from `other` need not be reported.
    func isSame(as other: AdvertisingState) -> Bool {
        switch (self, other) {
        case (.on, .on), (.crowded, .crowded), (.failed, .failed): true
        default: false
        }
    }
}
