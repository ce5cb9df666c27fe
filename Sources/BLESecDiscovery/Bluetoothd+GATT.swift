package import BLESecL2CAP
package import BLESecLinks

/// The GATT client: services of other devices.
extension Bluetoothd {
    /// Connects to a device that the adapter has heard.
    ///
    /// - Returns: whether this call made the link, so that the caller may end it.
    /// - Throws: ``DiscoveryError/Code/notFound`` when the adapter has not heard the device,
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
                // bluetoothd keeps trying until it is asked to stop.
                disconnectSoon(path)
                if error.code == .failed {
                    throw DiscoveryError(.unreachable, error.reason, busError: error.busError)
                }
                throw error
            }
        }
        do throws(DiscoveryError) {
            // bluetoothd replies before it reports the device as connected.
            try await wait(until: deadline, doing) { flag("Connected", of: path) ? () : nil }
        } catch {
            if isMine { disconnectSoon(path) }
            throw error
        }
        return isMine
    }

    /// Waits until bluetoothd knows the services of a connected device.
    ///
    /// - Throws: ``DiscoveryError/Code/unreachable`` when the device disconnects,
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
    /// - Throws: ``DiscoveryError/Code/notFound`` when the device does not have the service.
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
    /// - Throws: ``DiscoveryError/Code/notSupported``, without asking bluetoothd, when the
    ///   characteristic lacks the property `read`; otherwise the error from bluetoothd.
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

    /// Writes a value without response. Returns when bluetoothd has the value; whether the value
    /// arrives is unknown.
    ///
    /// - Throws: ``DiscoveryError/Code/notSupported``, without asking bluetoothd, when the
    ///   characteristic lacks the property `write-without-response`; otherwise the error from
    ///   bluetoothd.
    package func write(
        _ bytes: [UInt8], to characteristic: RemoteCharacteristic
    ) async throws(DiscoveryError) {
        let doing = "write the characteristic \(characteristic.uuid)"
        try characteristic.require(.writeWithoutResponse, to: doing)
        _ = try await call(
            doing, characteristic.path, ObjectTree.Interface.characteristic, "WriteValue",
            Self.command(bytes))
    }

    /// Writes a value without response. Calls `done` once, when bluetoothd has the value, or with
    /// an error. The caller has checked the characteristic's properties.
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

    /// Subscribes to a characteristic's notifications; `handler` receives them on the loop's
    /// thread.
    ///
    /// - Throws: ``DiscoveryError/Code/notSupported``, without asking bluetoothd, when the
    ///   characteristic has neither the property `notify` nor `indicate`; otherwise the error from
    ///   bluetoothd.
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

    /// Ends the link to a device, with all its channels, and makes bluetoothd forget the device
    /// unless it is paired; returns when both are done.
    ///
    /// bluetoothd never updates what it has read from a device: neither its services, even if the
    /// device advertises others later, nor the handles of its characteristics.
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

    /// Reads the PSM of a connected device's L2CAP channel from the characteristic that Apple
    /// defined for it.
    ///
    /// - Returns: nil when the service lacks this characteristic, and therefore a channel.
    /// - Throws: ``DiscoveryError/Code/malformed`` when the value is not a PSM, and what
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

    /// Whether the device with this path is connected.
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
