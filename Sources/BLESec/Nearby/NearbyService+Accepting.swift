internal import BLESecChannelCore
internal import BLESecDiscovery
internal import BLESecL2CAP
internal import BLESecLinks

/// Accepting dials from peers.
extension NearbyService {
    func beginAccepting() async throws(ChannelError) {
        let listener: RenewableListener
        do throws(LinkError) {
            listener = try await RenewableListener.listen(
                on: options.transports.contains(.l2cap) ? try Adapter.named(adapter) : nil,
                loop: loop
            ) { [weak self] link in
                self?.assumeIsolated { $0.accepted(link) }
            }
        } catch {
            throw ChannelError(link: error)
        }
        self.listener = listener
        let address = await listener.localAddress
        let secure = SecureListener(
            listener, at: address.map { Endpoint($0) } ?? .gatt, configuration: configuration,
            limits: SecureListener.Limits(), loop: loop
        ) { [weak self] failure in
            self?.assumeIsolated { $0.acceptFailed(failure) }
        }
        self.secure = secure
        await secure.start()
        do throws(DiscoveryError) {
            try await publish(advertises: true)
        } catch {
            throw ChannelError(discovery: error)
        }
        tasks.append(
            Task(executorPreference: loop) { [weak self] in
                while await self?.waitForRoom() ?? false,
                    let channel = try? await secure.accept()
                {
                    guard let self else { return await channel.abort() }
                    await self.acceptSucceeded(channel)
                }
            })
        tasks.append(
            Task(executorPreference: loop) { [weak self] in
                while let sleepTask = await self?.keepAdvertising() { await sleepTask.value }
            })
    }

    private func accepted(_ link: any Link) {
        guard let address = link.peerAddress.flatMap({ DeviceAddress($0.description) }) else {
            return
        }
        for candidate in policy.accepted(from: address) { dials[candidate]?.cancel() }
    }

    private func acceptFailed(_ failure: PeerFailure) {
        report(.acceptFailed(failure))
        // A peer above its share was turned away at no cost, so it does not count as a failed dial.
        if failure.error.code != .busy { advertisingThrottle.failed(at: loop.now) }
        if advertisingThrottle.reopens(at: loop.now) != nil { advertiseSoon() }
        guard let address = DeviceAddress(failure.peer) else { return }
        policy.acceptFailed(from: address)
        Task(executorPreference: loop) {
            await self.release(address)
            await self.runDialPolicy()
        }
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
                    began: await channel.began, ready: now, hash: await channel.handshakeHash)))
    }
}
