internal import ChannelCore
internal import Discovery
internal import L2CAP
internal import Links

/// Being found: a listener, a GATT service that tells its PSM and has a byte stream, and an
/// advertisement.
extension NearbyService {
    func beginAccepting() async throws(ChannelError) {
        let listener: RenewableListener
        do throws(LinkError) {
            listener = try await RenewableListener.listen(
                on: options.transports.contains(.l2cap) ? try Adapter.named(adapter) : nil,
                loop: loop
            ) { [alarm] link in
                alarm.nearby?.assumeIsolated { $0.accepted(link) }
            }
        } catch {
            throw ChannelError(link: error)
        }
        self.listener = listener
        let address = await listener.localAddress
        let secure = SecureListener(
            listener, at: address.map { Endpoint($0) } ?? .gatt, configuration: configuration,
            limits: SecureListener.Limits(), loop: loop
        ) { [alarm, onEvent] peer, error in
            onEvent(.acceptFailed(peer, error))
            alarm.nearby?.assumeIsolated { $0.acceptFailed(peer) }
        }
        self.secure = secure
        await secure.start()
        do throws(DiscoveryError) {
            try await advertise()
        } catch {
            throw ChannelError(discovery: error)
        }
        tasks.append(
            Task(executorPreference: loop) { [weak self] in
                while let channel = try? await secure.accept() {
                    guard let self else { return await channel.abort() }
                    await self.acceptSucceeded(channel)
                }
            })
        tasks.append(
            Task(executorPreference: loop) { [weak self, loop, renewal = options.renewal] in
                while (try? await loop.sleep(for: renewal)) != nil { await self?.renew() }
            })
    }

    /// A fresh tag and PSM, so that nobody can follow this device by them.
    private func renew() async {
        guard let listener, !isClosed else { return }
        // Without a fresh PSM the old one goes on; the tag is renewed all the same.
        try? await listener.renew()
        try? await advertise()
    }

    /// Publishes what there is to know now, instead of what was published before.
    private func advertise() async throws(DiscoveryError) {
        guard let listener else { return }
        let psm = await listener.localAddress?.psm
        publishedPSM = psm
        let tag = Tag.random(using: &generator)
        policy.ownTag = tag
        // It stays: to publish another one would end the streams over it.
        if application == nil {
            let application = try await bluetoothd.publish(gattApplication(listener), on: adapter)
            self.application = application
            streams?.application = application
        }
        let payload = Payload(
            capabilities: capabilities, psm: options.advertisesPSM ? psm : nil, tag: tag)
        let oldAdvertisement = advertisement
        // An adapter holds few of them, so the old one goes first.
        if let oldAdvertisement { await bluetoothd.withdraw(oldAdvertisement) }
        advertisement = try await bluetoothd.advertise(
            Advertisement(service: service, payload: payload, carrier: options.carrier),
            on: adapter)
    }

    private func gattApplication(_ listener: RenewableListener) -> GATTApplication {
        var characteristics: [GATTCharacteristic] = []
        if options.transports.contains(.l2cap) {
            var psm = GATTCharacteristic(PSMValue.characteristic)
            psm.read = { [alarm] in
                let known = alarm.nearby?.assumeIsolated { $0.publishedPSM }
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

    private var capabilities: Payload.Capabilities {
        var capabilities: Payload.Capabilities = []
        if options.transports.contains(.l2cap) { capabilities.insert(.l2cap) }
        if options.transports.contains(.gattStream) { capabilities.insert(.gattStream) }
        for name in configuration.protocols {
            capabilities.insert(name.hasPrefix("Noise_") ? .noise : .tls)
        }
        return capabilities
    }

    private func accepted(_ link: any Link) {
        guard let address = link.peerAddress.flatMap({ DeviceAddress($0.description) }) else {
            return
        }
        for candidate in policy.accepted(from: address) { dials[candidate]?.cancel() }
    }

    private func acceptFailed(_ peer: String) {
        guard let address = DeviceAddress(peer) else { return }
        policy.acceptFailed(from: address)
        lookAround()
    }

    private func acceptSucceeded(_ channel: SecureChannel) async {
        guard let address = DeviceAddress(channel.linkDescription) else {
            return await channel.abort()
        }
        let identity = await channel.peer
        let now = loop.now
        policy.acceptSucceeded(from: address, identity: identity.fingerprint?.description)
        await admit(
            LiveChannel(
                channel: channel, address: address, identity: identity,
                side: .init(
                    began: await channel.began, ready: now, hash: await channel.handshakeHash),
                isConnectedByUs: false))
    }
}
