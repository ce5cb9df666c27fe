package import BLESecL2CAP
package import BLESecLinks

/// Another device, with calls that connect to it over one adapter and use its GATT services.
package struct RemoteDevice: Sendable {
    /// The time limit for ending a link; bluetoothd takes 2 seconds.
    private static let forgetTimeout = Duration.seconds(5)

    package let adapter: BluetoothAdapter
    package let address: DeviceAddress

    var bluetoothd: Bluetoothd { adapter.bluetoothd }

    init(_ address: DeviceAddress, on adapter: BluetoothAdapter) {
        self.address = address
        self.adapter = adapter
    }

    /// The path of the device's object; nil until the adapter has heard the device.
    var path: String? { get async { await bluetoothd.tree.path(of: address, on: adapter.name) } }

    private func requirePath(to action: String) async throws(DiscoveryError) -> String {
        if let path = await path { return path }
        throw DiscoveryError(.notFound, "cannot \(action): it was not heard on \(adapter.name)")
    }

    // MARK: - The link

    /// Whether there is a link to the device, made by either side.
    package var isConnected: Bool {
        get async {
            let tree = await bluetoothd.tree
            return tree.path(of: address, on: adapter.name).map(tree.isConnected) ?? false
        }
    }

    /// Begins a dial to the device, which the adapter must have heard before, and asks bluetoothd
    /// whether the device is paired already.
    ///
    /// - Parameter onPairing: called on the loop, at most once and only until the dial ends, if the
    ///   device was not paired, and is paired now.
    /// - Throws: ``DiscoveryError/Code/notFound`` when the adapter has not heard the device, or
    ///   bluetoothd no longer knows it; ``DiscoveryError/Code/timedOut`` at the deadline.
    package func beginDial(
        until deadline: MonotonicTime, onPairing: @escaping @Sendable () -> Void
    ) async throws(DiscoveryError) -> DeviceDial {
        let action = "connect to \(address)"
        let path = try await requirePath(to: action)
        // bluetoothd is asked because the tree may be out of date. The answer arrives after all
        // signals that bluetoothd sent before it.
        let reply: [BusValue]
        do throws(DiscoveryError) {
            reply = try await call(
                to: action, path, Interface.properties, "GetAll", [.string(Interface.device)],
                until: deadline)
        } catch {
            throw Self.connectFailure(error)
        }
        let dial = DeviceDial(self, path, reply.first?.properties ?? [:], onPairing: onPairing)
        await bluetoothd.watch(dial)
        return dial
    }

    /// Connects to the device, which the adapter must have heard before.
    ///
    /// If this call throws, there may be a link all the same: one that the peer has made, or one
    /// that came up too late. This call does not end a link that bluetoothd has reported.
    ///
    /// - Parameter mayEnd: called after a failure; returns whether this call may tell bluetoothd to
    ///   stop connecting. This also ends a link that bluetoothd has not reported yet, so `mayEnd`
    ///   must return false while a channel uses that link.
    /// - Returns: true if this call made the link, so that the caller may end it; false if there
    ///   was a link before, or if another program made it.
    /// - Throws: ``DiscoveryError/Code/notFound`` when the adapter has not heard the device,
    ///   ``DiscoveryError/Code/unreachable`` when bluetoothd cannot connect,
    ///   ``DiscoveryError/Code/collision`` when the attempt collided with bluetoothd's own scan
    ///   (the next attempt may follow at once), ``DiscoveryError/Code/timedOut`` at the deadline.
    @discardableResult
    package func connect(
        until deadline: MonotonicTime, mayEnd: @Sendable () async -> Bool = { true }
    ) async throws(DiscoveryError) -> Bool {
        let action = "connect to \(address)"
        let path = try await requirePath(to: action)
        // Whether the attempt to connect was begun by this call. Another program's attempt must not
        // be ended.
        var makesLink = false
        do throws(DiscoveryError) {
            while await !bluetoothd.tree.isConnected(path) {
                makesLink = true
                do throws(DiscoveryError) {
                    try await call(to: action, path, Interface.device, "Connect", until: deadline)
                    break
                } catch {
                    guard error.code == .inProgress else { throw error }
                    makesLink = false
                }
                try await waitForOtherAttempt(path, to: action, until: deadline)
            }
            // bluetoothd replies before it reports the device as connected.
            try await bluetoothd.wait(until: deadline, to: action) {
                $0.tree.isConnected(path) ? () : nil
            }
        } catch {
            // bluetoothd keeps trying until it is asked to stop, except after a collision. If there
            // is a link by now, it may be the peer's, with a channel over it.
            if makesLink, error.code != .collision, await !bluetoothd.tree.isConnected(path),
                await mayEnd()
            {
                await bluetoothd.send(to: action, path, Interface.device, "Disconnect")
            }
            throw Self.connectFailure(error)
        }
        return makesLink
    }

    /// Waits for a second, or until the device is connected: bluetoothd does not tell when the
    /// attempt of another program has ended.
    private func waitForOtherAttempt(
        _ path: String, to action: String, until deadline: MonotonicTime
    ) async throws(DiscoveryError) {
        let pause = min(deadline, bluetoothd.loop.now.advanced(by: .seconds(1)))
        do throws(DiscoveryError) {
            try await bluetoothd.wait(until: pause, to: action) {
                $0.tree.isConnected(path) ? () : nil
            }
        } catch {
            guard error.code == .timedOut, pause < deadline else { throw error }
        }
    }

    private static func connectFailure(_ error: DiscoveryError) -> DiscoveryError {
        error.code == .failed
            ? DiscoveryError(.unreachable, error.reason, busError: error.busError) : error
    }

    /// Waits until bluetoothd knows the services of the connected device.
    ///
    /// - Throws: ``DiscoveryError/Code/unreachable`` when the device disconnects,
    ///   ``DiscoveryError/Code/timedOut`` at the deadline.
    package func waitForServices(until deadline: MonotonicTime) async throws(DiscoveryError) {
        let action = "learn the services of \(address)"
        let path = try await requirePath(to: action)
        try await bluetoothd.wait(until: deadline, to: action) {
            bluetoothd throws(DiscoveryError) in
            guard bluetoothd.tree.isConnected(path) else {
                throw DiscoveryError(.unreachable, "cannot \(action): it went away")
            }
            let isResolved = bluetoothd.tree.flag("ServicesResolved", of: path)
            return isResolved && !bluetoothd.tree.wantsParts(of: path) ? () : nil
        }
    }

    /// Ends the link to the device, with all its channels, and makes bluetoothd forget the device
    /// unless the device is paired. Returns when both are done, or when bluetoothd has not answered
    /// within 5 seconds.
    ///
    /// The device is forgotten because bluetoothd never updates the services and the handles of
    /// characteristics that it has read from a device, even if the device advertises other services
    /// later.
    ///
    /// - Parameter dial: the dial that has used the link and has failed. If the device had no link
    ///   and was not paired when the dial began, bluetoothd forgets the device with its keys even if
    ///   it is paired now, or is just being paired.
    /// - Returns: whether bluetoothd has forgotten the device.
    @discardableResult
    package func forget(after dial: DeviceDial? = nil) async -> Bool {
        let knownPath = await self.path
        guard let path = dial?.path ?? knownPath else { return false }
        let action = "disconnect from \(address)"
        let deadline = bluetoothd.loop.now.advanced(by: Self.forgetTimeout)
        let tree = await bluetoothd.tree
        let isKept =
            dial?.wasPaired == true
            || tree.isPaired(path) && dial?.removesPairedDevice != true
            // bluetoothd may remove the other object's keys as well.
            || tree.hasPairedTwin(path)
        if isKept {
            _ = try? await call(to: action, path, Interface.device, "Disconnect", until: deadline)
            return false
        }
        let reply = try? await call(
            to: action, adapter.name.path, Interface.adapter, "RemoveDevice", [.path(path)],
            until: deadline)
        return reply != nil
    }

    // MARK: - Services

    /// The characteristics of a service of the connected device.
    ///
    /// - Throws: ``DiscoveryError/Code/notFound`` when the device does not have the service,
    ///   ``DiscoveryError/Code/exhausted`` when the service is not known, and may be among those
    ///   that were left out.
    package func characteristics(
        of service: BluetoothUUID
    ) async throws(DiscoveryError) -> [RemoteCharacteristic] {
        let tree = await bluetoothd.tree
        let device = tree.path(of: address, on: adapter.name)
        if let device, let found = tree.characteristics(of: service, below: device) {
            return found
        }
        try checkParts(of: device, in: tree)
        throw DiscoveryError(.notFound, "\(address) does not offer the service \(service)")
    }

    /// Checks that none of the device's services and characteristics were left out of the tree.
    ///
    /// - Throws: ``DiscoveryError/Code/exhausted`` if some were left out.
    func checkParts() async throws(DiscoveryError) {
        let tree = await bluetoothd.tree
        try checkParts(of: tree.path(of: address, on: adapter.name), in: tree)
    }

    private func checkParts(of path: String?, in tree: ObjectTree) throws(DiscoveryError) {
        if let failure = path.flatMap({ tree.lackOfParts(of: $0, address) }) { throw failure }
    }

    /// Reads a characteristic's value.
    ///
    /// - Throws: ``DiscoveryError/Code/notSupported``, without asking bluetoothd, when the
    ///   characteristic lacks the property `read`; otherwise the error from bluetoothd.
    package func read(
        _ characteristic: RemoteCharacteristic, until deadline: MonotonicTime
    ) async throws(DiscoveryError) -> [UInt8] {
        let action = "read the characteristic \(characteristic.uuid)"
        try characteristic.require(oneOf: .read, to: action)
        let reply = try await call(
            to: action, characteristic.path, Interface.characteristic, "ReadValue",
            [.properties([:])], until: deadline)
        guard let bytes = reply.first?.bytes else {
            throw DiscoveryError(.malformed, "cannot \(action): it has no value")
        }
        return bytes
    }

    /// Subscribes to a characteristic's notifications; `handler` receives them on the loop's
    /// thread.
    ///
    /// - Throws: ``DiscoveryError/Code/notSupported``, without asking bluetoothd, when the
    ///   characteristic has neither the property `notify` nor `indicate`; otherwise the error from
    ///   bluetoothd, or ``DiscoveryError/Code/timedOut`` at the deadline.
    package func subscribe(
        to characteristic: RemoteCharacteristic, until deadline: MonotonicTime,
        _ handler: @escaping @Sendable ([UInt8]) -> Void
    ) async throws(DiscoveryError) {
        let action = "subscribe to the characteristic \(characteristic.uuid)"
        try characteristic.require(oneOf: .notify, .indicate, to: action)
        await bluetoothd.setHandler(handler, of: characteristic.path)
        do throws(DiscoveryError) {
            try await call(
                to: action, characteristic.path, Interface.characteristic, "StartNotify",
                until: deadline)
        } catch {
            await bluetoothd.setHandler(nil, of: characteristic.path)
            throw error
        }
    }

    /// Reads the PSM of a service of the connected device from the characteristic that Apple has
    /// defined for PSMs.
    ///
    /// - Returns: nil when the service lacks this characteristic, and so offers no L2CAP channel.
    /// - Throws: ``DiscoveryError/Code/malformed`` when the value is not a dynamic PSM, and what
    ///   ``characteristics(of:)`` and ``read(_:until:)`` throw.
    package func readPSM(
        of service: BluetoothUUID, until deadline: MonotonicTime
    ) async throws(DiscoveryError) -> PSM? {
        let found = try await characteristics(of: service)
        guard let characteristic = found.first(where: { $0.uuid == PSMValue.characteristic })
        else { return nil }
        let value = try await read(characteristic, until: deadline)
        guard let psm = PSMValue.parse(value) else {
            throw DiscoveryError(
                .malformed,
                "the PSM characteristic of \(address) holds \(value.count) bytes that are no PSM")
        }
        return psm
    }

    /// Calls a method of an object of bluetoothd, and waits for the reply, at most until
    /// `deadline`.
    @discardableResult
    func call(
        to action: String, _ path: String, _ interface: String, _ member: String,
        _ arguments: [BusValue] = [], until deadline: MonotonicTime
    ) async throws(DiscoveryError) -> [BusValue] {
        try await bluetoothd.call(
            to: action, path, interface, member, arguments,
            timeout: max(deadline.duration(since: bluetoothd.loop.now), .milliseconds(1)))
    }
}
