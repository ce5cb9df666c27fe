package import BLESecL2CAP
package import BLESecLinks

/// GATT as a client: other devices' services.
extension Bluetoothd {
    /// Connects to a device that was heard on the adapter.
    ///
    /// - Returns: whether it was this call that made the link, so that who made it may end it.
    /// - Throws: ``DiscoveryError/Code/notFound`` when it was not heard,
    ///   ``DiscoveryError/Code/unreachable``, ``DiscoveryError/Code/timedOut`` at the deadline.
    @discardableResult
    package func connect(
        to address: DeviceAddress, on adapter: String, until deadline: MonotonicTime
    ) async throws(DiscoveryError) -> Bool {
        let doing = "connect to \(address)"
        guard let path = device(address, on: adapter) else {
            throw DiscoveryError(.notFound, "cannot \(doing): it was not heard on \(adapter)")
        }
        let isMine = !flag("Connected", of: path)
        if isMine {
            let left = deadline.duration(since: loop.now)
            do throws(DiscoveryError) {
                _ = try await call(
                    doing, path, ObjectTree.Interface.device, "Connect",
                    timeout: max(left, .milliseconds(1)))
            } catch {
                // bluetoothd goes on trying unless it is told not to.
                disconnectSoon(path)
                if error.code == .failed {
                    throw DiscoveryError(.unreachable, error.reason, busError: error.busError)
                }
                throw error
            }
        }
        do throws(DiscoveryError) {
            // bluetoothd answers before it says that the device is connected.
            try await wait(until: deadline, doing) { flag("Connected", of: path) ? () : nil }
        } catch {
            if isMine { disconnectSoon(path) }
            throw error
        }
        return isMine
    }

    /// Waits until bluetoothd knows the services of a connected device.
    ///
    /// - Throws: ``DiscoveryError/Code/unreachable`` when it went away,
    ///   ``DiscoveryError/Code/timedOut`` at the deadline.
    package func waitForServices(
        of address: DeviceAddress, on adapter: String, until deadline: MonotonicTime
    ) async throws(DiscoveryError) {
        let doing = "learn the services of \(address)"
        guard let path = device(address, on: adapter) else {
            throw DiscoveryError(.notFound, "cannot \(doing): it was not heard on \(adapter)")
        }
        try await wait(until: deadline, doing) { () throws(DiscoveryError) in
            guard flag("Connected", of: path) else {
                throw DiscoveryError(.unreachable, "cannot \(doing): it went away")
            }
            return flag("ServicesResolved", of: path) ? () : nil
        }
    }

    /// The characteristics of a service of a connected device.
    ///
    /// - Throws: ``DiscoveryError/Code/notFound`` when it does not have the service.
    package func characteristics(
        of service: BluetoothUUID, at address: DeviceAddress, on adapter: String
    ) throws(DiscoveryError) -> [RemoteCharacteristic] {
        guard let device = device(address, on: adapter),
            let found = tree.characteristics(of: service, below: device)
        else {
            throw DiscoveryError(.notFound, "\(address) does not offer the service \(service)")
        }
        return found
    }

    /// Reads a characteristic's value.
    ///
    /// - Throws: ``DiscoveryError/Code/notSupported`` where it has not the property `read`, and then
    ///   bluetoothd is not asked; what bluetoothd says.
    package func read(
        _ characteristic: RemoteCharacteristic, until deadline: MonotonicTime
    ) async throws(DiscoveryError) -> [UInt8] {
        let doing = "read the characteristic \(characteristic.uuid)"
        try characteristic.require(.read, to: doing)
        let reply = try await call(
            doing, characteristic.path, ObjectTree.Interface.characteristic, "ReadValue",
            [.properties([:])],
            timeout: max(deadline.duration(since: loop.now), .milliseconds(1)))
        guard let bytes = reply.first?.bytes else {
            throw DiscoveryError(.malformed, "cannot \(doing): it has no value")
        }
        return bytes
    }

    /// Writes a value without response: returns when bluetoothd has it, and whether it arrives is not
    /// told.
    ///
    /// - Throws: ``DiscoveryError/Code/notSupported`` where it has not the property
    ///   `write-without-response`, and then bluetoothd is not asked; what bluetoothd says.
    package func write(
        _ bytes: [UInt8], to characteristic: RemoteCharacteristic
    ) async throws(DiscoveryError) {
        let doing = "write the characteristic \(characteristic.uuid)"
        try characteristic.require(.writeWithoutResponse, to: doing)
        _ = try await call(
            doing, characteristic.path, ObjectTree.Interface.characteristic, "WriteValue",
            Self.command(bytes))
    }

    /// Writes a value without response, and tells once when bluetoothd has it, or why not. Whoever calls
    /// it has looked at the characteristic's properties.
    func write(
        _ bytes: [UInt8], to characteristic: RemoteCharacteristic,
        done: @escaping @Sendable (DiscoveryError?) -> Void
    ) {
        let doing = "write the characteristic \(characteristic.uuid)"
        guard let owner, let bus else { return done(.noService(doing)) }
        let call = Bus.Call(
            destination: owner, path: characteristic.path,
            interface: ObjectTree.Interface.characteristic, member: "WriteValue",
            arguments: Self.command(bytes))
        bus.call(call, timeout: Self.callTimeout) { result in
            if case .failure(let error) = result {
                done(DiscoveryError(bus: error, doing))
            } else {
                done(nil)
            }
        }
    }

    private static func command(_ bytes: [UInt8]) -> [BusValue] {
        [.bytes(bytes), .properties(["type": .string("command")])]
    }

    /// Subscribes to a characteristic's notifications, which `handler` gets on the loop's thread.
    ///
    /// - Throws: ``DiscoveryError/Code/notSupported`` where it has neither the property `notify` nor
    ///   `indicate`, and then bluetoothd is not asked; what bluetoothd says.
    package func subscribe(
        to characteristic: RemoteCharacteristic,
        _ handler: @escaping @Sendable ([UInt8]) -> Void
    ) async throws(DiscoveryError) {
        let doing = "subscribe to the characteristic \(characteristic.uuid)"
        try characteristic.require(.notify, .indicate, to: doing)
        notified[characteristic.path] = handler
        do throws(DiscoveryError) {
            _ = try await call(
                doing, characteristic.path, ObjectTree.Interface.characteristic, "StartNotify")
        } catch {
            notified[characteristic.path] = nil
            throw error
        }
    }

    /// Ends a subscription.
    package func unsubscribe(from characteristic: RemoteCharacteristic) async {
        guard notified.removeValue(forKey: characteristic.path) != nil else { return }
        _ = try? await call(
            "unsubscribe from \(characteristic.uuid)", characteristic.path,
            ObjectTree.Interface.characteristic, "StopNotify")
    }

    /// Ends the link to a device, with all channels over it, and has bluetoothd forget what it knew
    /// of it, unless it is paired; returns when both are done.
    ///
    /// What bluetoothd has once read of a device it believes for ever: the services that it offers,
    /// whatever it advertises later, and where its characteristics are.
    package func forget(_ address: DeviceAddress, on adapter: String) async {
        guard let path = device(address, on: adapter) else { return }
        let doing = "disconnect from \(address)"
        if flag("Paired", of: path) {
            _ = try? await call(doing, path, ObjectTree.Interface.device, "Disconnect")
        } else {
            _ = try? await call(
                doing, Self.path(of: adapter), ObjectTree.Interface.adapter, "RemoveDevice",
                [.path(path)])
        }
    }

    /// Reads where the L2CAP channel of a connected device is, in the characteristic that Apple has
    /// named for it.
    ///
    /// - Returns: nil when the service has no such characteristic, so no channel either.
    /// - Throws: ``DiscoveryError/Code/malformed`` when its value is no PSM, and what
    ///   ``read(_:until:)`` throws.
    package func readPSM(
        of service: BluetoothUUID, at address: DeviceAddress, on adapter: String,
        until deadline: MonotonicTime
    ) async throws(DiscoveryError) -> PSM? {
        let found = try characteristics(of: service, at: address, on: adapter)
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

    /// Whether there is a link to a device, by its path.
    func isConnected(_ path: String) -> Bool { flag("Connected", of: path) }

    private func flag(_ name: String, of path: String) -> Bool {
        tree[path, ObjectTree.Interface.device]?[name]?.bool ?? false
    }

    private func disconnectSoon(_ path: String) {
        guard let owner, let bus else { return }
        let call = Bus.Call(
            destination: owner, path: path, interface: ObjectTree.Interface.device,
            member: "Disconnect")
        bus.call(call, timeout: Self.callTimeout) { _ in }
    }
}
