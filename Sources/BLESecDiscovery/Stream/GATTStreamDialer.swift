package import BLESecLinks

/// The dialer's side of byte streams over GATT.
///
/// The dialer writes without response and receives notifications; see docs/wire-format.md. Nothing
/// is authenticated.
package struct GATTStreamDialer: Sendable {
    /// The bytes that ATT adds to the value of a write command: an opcode and a handle.
    private static let writeOverhead = 3
    /// The bytes that ATT adds to the value of a notification: an opcode, a handle, and a length
    /// where one packet holds several notifications.
    private static let notificationOverhead = 5
    /// The ATT MTU until the two devices negotiate another.
    private static let defaultMTU = 23
    /// The MTUs that bluetoothd can have negotiated; bluetoothd allows at most 517.
    private static let negotiableMTUs = defaultMTU...517

    private let device: RemoteDevice
    private let toListener: RemoteCharacteristic
    private let toDialer: RemoteCharacteristic
    private var bluetoothd: Bluetoothd { device.bluetoothd }

    /// Finds the stream of a service of a connected device; nil when the service has no stream.
    ///
    /// - Throws: ``DiscoveryError/Code/notFound`` when the device does not have the service,
    ///   ``DiscoveryError/Code/exhausted`` when the service or the stream is not known, and may be
    ///   among those that were left out.
    package init?(to service: BluetoothUUID, of device: RemoteDevice) async throws(DiscoveryError) {
        let found = try await device.characteristics(of: service)
        guard let toListener = found.first(where: { $0.uuid == GATTStreamServer.toListener }),
            let toDialer = found.first(where: { $0.uuid == GATTStreamServer.toDialer })
        else {
            try await device.checkParts()
            return nil
        }
        self.device = device
        self.toListener = toListener
        self.toDialer = toDialer
    }

    /// Opens the stream.
    ///
    /// - Throws: ``DiscoveryError/Code/notSupported`` when one of the characteristics lacks the
    ///   required property, ``DiscoveryError/Code/unreachable`` when the device disconnects,
    ///   ``DiscoveryError/Code/timedOut`` at the deadline: for example, the device may serve
    ///   another dialer.
    package func dial(until deadline: MonotonicTime) async throws(DiscoveryError) -> any Link {
        let action = "open a stream to \(device.address)"
        guard let path = await device.path else {
            throw DiscoveryError(.notFound, "cannot \(action): the adapter no longer knows it")
        }
        try toListener.require(
            oneOf: .writeWithoutResponse, to: "\(action) over \(toListener.uuid)")
        try toDialer.require(oneOf: .notify, .indicate, to: "\(action) over \(toDialer.uuid)")
        let mtu = await mtu(until: deadline)
        let stream = FragmentStream(
            dialing: .random(in: .min ... .max), sendableSize: mtu - Self.writeOverhead,
            acceptedSize: mtu - Self.notificationOverhead)
        let link = GATTStreamLink(stream, to: device.address, loop: bluetoothd.loop, over: carrier)
        do throws(DiscoveryError) {
            try await device.subscribe(to: toDialer, until: deadline) {
                [weak link, weak bluetoothd = bluetoothd] value in
                guard let link, let fragment = StreamFragment(value) else { return }
                let wasOpen = link.isOpen
                link.take(fragment)
                if !wasOpen { bluetoothd?.assumeIsolated { $0.wakeWaiting() } }
            }
            await start(link, path, in: bluetoothd)
            try await bluetoothd.wait(until: deadline, to: action) {
                bluetoothd throws(DiscoveryError) in
                guard bluetoothd.tree.isConnected(path) else {
                    throw DiscoveryError(.unreachable, "cannot \(action): it went away")
                }
                return link.isOpen ? () : nil
            }
            return link
        } catch {
            await close(link, in: bluetoothd)
            throw error
        }
    }

    private func start(_ link: GATTStreamLink, _ path: String, in bluetoothd: isolated Bluetoothd) {
        bluetoothd.watch(path, for: link)
        link.open()
    }

    private func close(_ link: GATTStreamLink, in bluetoothd: isolated Bluetoothd) { link.close() }

    private func mtu(until deadline: MonotonicTime) async -> Int {
        let reply = try? await device.call(
            to: "ask for an MTU", toListener.path, Interface.properties, "Get",
            [.string(Interface.characteristic), .string("MTU")], until: deadline)
        guard let mtu = reply?.first?.integer, Self.negotiableMTUs.contains(mtu) else {
            return Self.defaultMTU
        }
        return mtu
    }

    private var carrier: GATTStreamLink.Carrier {
        let action = "write the characteristic \(toListener.uuid)"
        return GATTStreamLink.Carrier(
            carry: { [weak bluetoothd = bluetoothd, path = toListener.path] value, done in
                bluetoothd?.assumeIsolated {
                    $0.send(
                        to: action, path, Interface.characteristic, "WriteValue",
                        RemoteCharacteristic.writeCommandArguments(value), done: done)
                }
            },
            close: { [weak bluetoothd = bluetoothd, uuid = toDialer.uuid, path = toDialer.path] in
                bluetoothd?.assumeIsolated {
                    guard $0.setHandler(nil, of: path) else { return }
                    $0.send(
                        to: "unsubscribe from \(uuid)", path, Interface.characteristic,
                        "StopNotify")
                }
            })
    }
}
