package import BLESecLinks

/// The dialer's end of a byte stream over GATT.
extension Bluetoothd {
    /// Opens the byte stream of a service of a connected device.
    ///
    /// The dialer writes without response and receives notifications; see docs/wire-format.md.
    /// Nothing is authenticated.
    ///
    /// - Throws: ``DiscoveryError/Code/notFound`` when the service has no stream,
    ///   ``DiscoveryError/Code/notSupported`` when one of its characteristics lacks the required
    ///   property, ``DiscoveryError/Code/unreachable`` when the device disconnects,
    ///   ``DiscoveryError/Code/timedOut`` at the deadline, for example because the device serves
    ///   another one.
    package func openStream(
        of service: BluetoothUUID, at address: DeviceAddress, on adapter: String,
        until deadline: MonotonicTime
    ) async throws(DiscoveryError) -> any Link {
        let doing = "open a stream to \(address)"
        let found = try characteristics(of: service, at: address, on: adapter)
        guard let device = device(address, on: adapter),
            let there = found.first(where: { $0.uuid == GATTStreamServer.toListener }),
            let back = found.first(where: { $0.uuid == GATTStreamServer.toDialer })
        else {
            throw DiscoveryError(.notFound, "\(address) offers no byte stream over GATT")
        }
        try there.require(.writeWithoutResponse, to: "\(doing) over \(there.uuid)")
        try back.require(.notify, .indicate, to: "\(doing) over \(back.uuid)")
        let mtu = await mtu(of: there)
        let stream = FragmentStream(
            dialing: .random(in: .min ... .max), sending: mtu - Self.writeOverhead,
            taking: mtu - Self.notificationOverhead)
        let token = makeToken()
        let link = GATTStreamLink(
            stream, to: address, loop: loop, over: carrier(there, back, token))
        do throws(DiscoveryError) {
            try await subscribe(to: back) { [weak link, changes] value in
                guard let link, let fragment = StreamFragment(value) else { return }
                let wasOpen = link.isOpen
                link.take(fragment)
                if !wasOpen { changes.tell() }
            }
            watch(device, for: link, token)
            link.open()
            try await wait(until: deadline, doing) { () throws(DiscoveryError) in
                guard isConnected(device) else {
                    throw DiscoveryError(.unreachable, "cannot \(doing): it went away")
                }
                return link.isOpen ? () : nil
            }
            return link
        } catch {
            link.close()
            throw error
        }
    }

    /// Whether a service of a connected device offers a byte stream.
    package func offersStream(
        _ service: BluetoothUUID, at address: DeviceAddress, on adapter: String
    ) throws(DiscoveryError) -> Bool {
        let found = try characteristics(of: service, at: address, on: adapter).map(\.uuid)
        return Set(found).isSuperset(of: [GATTStreamServer.toListener, GATTStreamServer.toDialer])
    }

    /// The bytes that ATT adds to the value of a write command: an opcode and a handle.
    private static let writeOverhead = 3
    /// The bytes that ATT adds to the value of a notification. One packet may hold several
    /// notifications, with their lengths.
    private static let notificationOverhead = 5
    /// The MTU of a device with which none was negotiated.
    private static let leastMTU = 23

    private func mtu(of characteristic: RemoteCharacteristic) async -> Int {
        let reply = try? await call(
            "ask for an MTU", characteristic.path, "org.freedesktop.DBus.Properties", "Get",
            [.string(ObjectTree.Interface.characteristic), .string("MTU")])
        return reply?.first?.integer ?? Self.leastMTU
    }

    private func carrier(
        _ there: RemoteCharacteristic, _ back: RemoteCharacteristic, _ token: UInt64
    ) -> GATTStreamLink.Carrier {
        GATTStreamLink.Carrier(
            carry: { [weak self] value, done in
                self?.assumeIsolated { $0.write(value, to: there, done: done) }
            },
            close: { [weak self, loop] in
                self?.assumeIsolated { bluetoothd in
                    bluetoothd.watched[token] = nil
                    Task(executorPreference: loop) { await bluetoothd.unsubscribe(from: back) }
                }
            })
    }

    // MARK: - Disconnections

    /// A link that must be told when its device disconnects.
    struct WatchedDevice {
        let path: String
        let link: () -> GATTStreamLink?
    }

    /// Ends the link when its device disconnects, or bluetoothd stops.
    func watch(_ device: String, for link: GATTStreamLink, _ token: UInt64) {
        watched[token] = WatchedDevice(path: device) { [weak link] in link }
        tellOfDisconnections()
    }

    /// Ends the links of all devices that are no longer connected.
    func tellOfDisconnections() {
        for (token, device) in watched where !isConnected(device.path) {
            watched[token] = nil
            device.link()?.lose()
        }
    }
}
