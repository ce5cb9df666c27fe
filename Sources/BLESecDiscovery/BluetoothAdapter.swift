package import BLESecL2CAP
internal import BLESecLinks

/// An adapter that bluetoothd controls. This value refers to the adapter by name, and stays valid
/// while the adapter, or bluetoothd, is gone.
package struct BluetoothAdapter: Sendable {
    /// This process's view of bluetoothd, from which the adapter's state is read.
    package let bluetoothd: Bluetoothd
    package let name: AdapterName

    init(_ name: AdapterName, of bluetoothd: Bluetoothd) {
        self.name = name
        self.bluetoothd = bluetoothd
    }

    /// Whether the adapter can be used.
    package var state: AdapterState { get async { await bluetoothd.state(of: name) } }

    /// Waits until the state differs from `last`, and returns the new state.
    ///
    /// - Throws: once ``bluetoothd`` is closed, or the task is cancelled.
    package func state(otherThan last: AdapterState) async throws(DiscoveryError) -> AdapterState {
        try await bluetoothd.wait(until: .distantFuture, to: "watch \(name)") { [name] in
            let state = $0.state(of: name)
            return $0.session == nil || state == last ? nil : state
        }
    }

    /// A device that this adapter has heard or may hear.
    package func device(_ address: DeviceAddress) -> RemoteDevice {
        RemoteDevice(address, on: self)
    }

    /// Advertises until the registration ends.
    ///
    /// - Throws: the reason why the adapter cannot advertise now. After a success, the
    ///   advertisement is registered again automatically when necessary.
    package func advertise(
        _ advertisement: Advertisement
    ) async throws(DiscoveryError) -> Registration {
        try await bluetoothd.register { [name] exports, token in
            .advertisement(exports.add(advertisement, token), on: name)
        }
    }

    /// Offers a GATT service until the registration ends.
    ///
    /// - Throws: the reason why the adapter cannot publish now. After a success, the service is
    ///   registered again automatically when necessary.
    package func publish(
        _ application: GATTApplication
    ) async throws(DiscoveryError) -> Registration {
        try await bluetoothd.register { [name] exports, token in
            .application(exports.add(application, token), on: name)
        }
    }

    /// Begins to scan for a service.
    ///
    /// bluetoothd reports all devices, and this module selects those with the service, since
    /// bluetoothd's own filter ignores service data. After an interruption, the scan continues
    /// automatically when bluetoothd and the adapter are available again.
    ///
    /// Use one scan at a time for each ``Bluetoothd``. bluetoothd has one scan for each connection
    /// to the bus, so a restart or a refusal of one scan could stop another.
    ///
    /// - Parameter interval: how often to restart the scan, for an adapter that reports an
    ///   advertiser only once per scan; nil leaves this to bluetoothd, which pauses for 5 of every
    ///   15 s.
    /// - Throws: the reason why the adapter cannot scan now.
    package func scan(
        for service: BluetoothUUID, anewEvery interval: Duration? = nil
    ) async throws(DiscoveryError) -> ServiceScan {
        try await bluetoothd.scan(for: service, on: name, anewEvery: interval)
    }
}
