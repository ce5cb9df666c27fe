internal import BLESecChannelCore
internal import BLESecDiscovery
internal import BLESecL2CAP
internal import BLESecLinks

/// Finding peers: a scan, and dials as the policy decides.
extension NearbyService {
    func beginScanning() async throws(ChannelError) {
        let scan: ServiceScan
        do throws(DiscoveryError) {
            scan = try await bluetoothd.scan(
                for: service, on: adapter, anewEvery: options.scansAnewEvery)
        } catch {
            throw ChannelError(discovery: error)
        }
        self.scan = scan
        tasks.append(
            Task(executorPreference: loop) { [weak self] in
                for await sighting in scan.sightings { await self?.heard(sighting) }
            })
    }

    private func heard(_ sighting: Sighting) {
        guard !isClosed else { return }
        policy.heard(sighting, at: loop.now, using: &generator)
        // Nearby devices determine how often sightings arrive, and the loop has other work.
        let soon = lastLook.advanced(by: Self.pause)
        if loop.now >= soon {
            runDialPolicy()
        } else if timer?.deadline.map({ $0 > soon }) ?? true {
            timer?.arm(at: soon)
        }
    }

    /// Dials as the policy decides, and arms the timer for the policy's next decision.
    func runDialPolicy() {
        guard !isClosed, options.dials else { return }
        lastLook = loop.now
        let (candidates, next) = policy.step(at: loop.now, using: &generator)
        for candidate in candidates { begin(candidate) }
        if dials.isEmpty, policy.hasPlaces, let scan {
            Task(executorPreference: loop) { await self.resume(scan) }
        }
        timer?.arm(at: next ?? .distantFuture)
    }

    private func begin(_ candidate: Candidate) {
        report(.dialing(candidate))
        dials[candidate] = Task(executorPreference: loop) {
            let result: Result<SecureChannel, ChannelError>
            do throws(ChannelError) {
                result = .success(try await self.dial(candidate))
            } catch {
                result = .failure(error)
            }
            await self.finish(candidate, result)
        }
    }

    /// Restarts the scan, for a connection that has not reached its peer.
    func searchAnew() async {
        guard !isClosed, dials.isEmpty, policy.hasPlaces, let scan else { return }
        await bluetoothd.pause(scan)
        runDialPolicy()
    }

    /// Resumes the scan, unless a dial has begun meanwhile.
    private func resume(_ scan: ServiceScan) async {
        if dials.isEmpty { await bluetoothd.resume(scan) }
    }

    private func finish(
        _ candidate: Candidate, _ result: Result<SecureChannel, ChannelError>
    ) async {
        switch result {
        case .success(let channel):
            dials[candidate] = nil
            let identity = await channel.peer
            let side = DuplicateRule.Side(
                began: await channel.began, ready: loop.now, hash: await channel.handshakeHash)
            policy.dialSucceeded(candidate, identity: identity.fingerprint?.description)
            await admit(
                LiveChannel(
                    channel: channel, address: candidate.address, identity: identity, side: side))
        case .failure(let error):
            await waitForPeersChannel(from: candidate.address)
            await release(candidate.address)
            dials[candidate] = nil
            if error.code == .cancelled {
                policy.dialCancelled(candidate)
            } else {
                // Another program may listen on the PSM by now.
                psms[candidate] = nil
                report(.dialFailed(candidate, error))
                policy.dialFailed(candidate, at: loop.now, using: &generator)
            }
        }
        runDialPolicy()
    }

    /// Waits for a channel that the peer may be opening over the link of a dial that has failed.
    ///
    /// Two sides that dial each other end one another's attempts, and the peer's channel arrives a
    /// moment after this side's has failed. bluetoothd takes 2 seconds to end a link, and would end
    /// the peer's channel with it. An accepted link ends the wait.
    private func waitForPeersChannel(from address: DeviceAddress) async {
        guard options.accepts, connected.contains(address) else { return }
        try? await loop.sleep(for: Self.peersTurn)
    }

    /// Makes a link, finds out which transport the peer offers, and opens a channel over it.
    ///
    /// bluetoothd makes the link, and the channel is opened only after bluetoothd has queried the
    /// peer's services. bluetoothd opens L2CAP channels of its own for that query, and two sides
    /// that open channels at the same time confuse the kernel.
    private func dial(_ candidate: Candidate) async throws(ChannelError) -> SecureChannel {
        let address = candidate.address
        if let scan { await bluetoothd.pause(scan) }
        if try await connect(address) { connected.insert(address) }
        if options.accepts, !connected.contains(address) {
            // The peer has made the link to open a channel of its own, and only one side may open
            // it. The peer's channel cancels this dial.
            do {
                try await loop.sleep(for: Self.askTimeout)
            } catch {
                throw ChannelError(.cancelled, "the dial was called off")
            }
        }
        report(.opening(candidate))
        let link: any Link
        var endpoint: Endpoint?
        switch try await way(to: candidate) {
        case .l2cap(let psm):
            link = try await open(candidate, psm)
            endpoint = Endpoint(L2CAPAddress(device: address.address, type: address.type, psm: psm))
        case .gattStream: link = try await openStream(address)
        }
        report(.handshaking(candidate, endpoint))
        return try await SecureChannel.open(
            over: link, role: .dialer, configuration: configuration)
    }

    private func connect(_ address: DeviceAddress) async throws(ChannelError) -> Bool {
        do throws(DiscoveryError) {
            return try await bluetoothd.connect(
                to: address, on: adapter, until: loop.now.advanced(by: Self.connectTimeout))
        } catch {
            throw ChannelError(discovery: error).during(.connecting)
        }
    }

    /// The transport of a channel.
    private enum Way {
        case l2cap(PSM)
        case gattStream
    }

    /// Returns the candidate's transport: from an earlier GATT read, from its advertisement, or
    /// from a GATT read now. The GATT read is final: a candidate has no other transports.
    private func way(to candidate: Candidate) async throws(ChannelError) -> Way {
        let address = candidate.address
        if let psm = knownPSM(of: candidate) {
            // bluetoothd's query does not matter for a known PSM, but it should end before the
            // channel opens.
            try? await bluetoothd.waitForServices(
                of: address, on: adapter, until: loop.now.advanced(by: Self.quietTimeout))
            return .l2cap(psm)
        }
        let deadline = loop.now.advanced(by: Self.askTimeout)
        do throws(DiscoveryError) {
            try await bluetoothd.waitForServices(of: address, on: adapter, until: deadline)
            if options.transports.contains(.l2cap),
                let psm = try await bluetoothd.readPSM(
                    of: service, at: address, on: adapter, until: deadline)
            {
                psms[candidate] = psm
                return .l2cap(psm)
            }
            let offers = try await bluetoothd.offersStream(service, at: address, on: adapter)
            if options.transports.contains(.gattStream), offers { return .gattStream }
        } catch {
            throw ChannelError(discovery: error).during(.connecting)
        }
        throw ChannelError(
            .noSuchPeer, "\(address) offers the service, but nothing that a channel may run over",
            phase: .connecting)
    }

    private func knownPSM(of candidate: Candidate) -> PSM? {
        guard options.transports.contains(.l2cap) else { return nil }
        if let psm = psms[candidate] { return psm }
        let psm = policy.table[candidate]?.payload?.psm
        return psm == refusedPSMs[candidate] ? nil : psm
    }

    private func openStream(_ address: DeviceAddress) async throws(ChannelError) -> any Link {
        do throws(DiscoveryError) {
            return try await bluetoothd.openStream(
                of: service, at: address, on: adapter,
                until: loop.now.advanced(by: Self.connectTimeout))
        } catch {
            throw ChannelError(discovery: error).during(.connecting)
        }
    }

    private func open(
        _ candidate: Candidate, _ psm: PSM
    ) async throws(ChannelError) -> any Link {
        let address = candidate.address
        let target = L2CAPAddress(device: address.address, type: address.type, psm: psm)
        do throws(LinkError) {
            return try await L2CAPLink.dial(
                target, from: try Adapter.named(adapter),
                deadline: loop.now.advanced(by: Self.connectTimeout), loop: loop)
        } catch {
            // The PSM may have changed: the next dial reads it over GATT.
            if error.code == .refused { refusedPSMs[candidate] = psm }
            throw ChannelError(link: error).during(.connecting)
        }
    }
}
