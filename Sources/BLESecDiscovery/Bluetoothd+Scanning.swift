internal import BLESecL2CAP
internal import BLESecLinks

/// A scan for one service on one adapter, which ends when the sequence is dropped.
package struct ServiceScan: Sendable {
    /// The advertisements as they are heard. Slow consumers lose the oldest values.
    package let sightings: AsyncStream<Sighting>
    let token: UInt64
}

/// Scanning for a service.
extension Bluetoothd {
    /// One active scan.
    struct Scan {
        let adapter: String
        let service: BluetoothUUID
        let continuation: AsyncStream<Sighting>.Continuation
    }

    /// The most sightings that wait for a slow consumer; older ones are dropped.
    static let waitingSightings = 256

    /// Begins to scan for a service.
    ///
    /// bluetoothd reports all devices, and the service is filtered here, since bluetoothd's own
    /// filter ignores service data. The scan continues by itself when bluetoothd or the adapter
    /// comes back.
    ///
    /// - Parameters:
    ///   - adapter: the adapter's name, as in `hci0`.
    ///   - interval: how often to restart the scan, for an adapter that reports an advertiser only
    ///     once per scan; nil leaves this to bluetoothd, which pauses for 5 of every 15 s.
    /// - Throws: the reason why the adapter cannot scan now.
    package func scan(
        for service: BluetoothUUID, on adapter: String, anewEvery interval: Duration? = nil
    ) async throws(DiscoveryError) -> ServiceScan {
        if let failure = adapterState(adapter).failure(of: adapter) { throw failure }
        let (stream, continuation) = AsyncStream<Sighting>.makeStream(
            bufferingPolicy: .bufferingNewest(Self.waitingSightings))
        let token = makeToken()
        scans[token] = Scan(adapter: adapter, service: service, continuation: continuation)
        continuation.onTermination = { [weak self, loop] _ in
            Task(executorPreference: loop) { await self?.endScan(token) }
        }
        do throws(DiscoveryError) {
            try await register(Request(.scan(anewEvery: interval), on: adapter), as: token)
        } catch {
            scans[token] = nil
            continuation.finish()
            throw error
        }
        // Report devices that are already known and were heard recently.
        for path in tree.paths(
            of: ObjectTree.Interface.device, below: Self.path(of: adapter))
        where tree[path, ObjectTree.Interface.device]?["RSSI"] != nil {
            heard(path, by: token)
        }
        return ServiceScan(sightings: stream, token: token)
    }

    /// Pauses a scan, and returns when the adapter has stopped scanning: while an adapter scans,
    /// the kernel makes no links.
    package func pause(_ scan: ServiceScan) async { await pause(scan.token) }

    /// Continues a paused scan.
    package func resume(_ scan: ServiceScan) { resume(scan.token) }

    private func endScan(_ token: UInt64) async {
        guard scans.removeValue(forKey: token) != nil else { return }
        await withdraw(token)
    }

    /// Reports a heard device to every scan of its adapter, or to the scan `only`.
    func heard(_ path: String, by only: UInt64? = nil) {
        guard !scans.isEmpty, let adapter = Self.name(of: path), let address = address(of: path),
            let device = tree[path, ObjectTree.Interface.device]
        else { return }
        for (token, scan) in scans
        where scan.adapter == adapter && (only ?? token) == token {
            guard let advertisement = Self.advertisement(of: device, scan.service) else { continue }
            scan.continuation.yield(
                Sighting(
                    address: address, advertisement: advertisement,
                    signal: Self.signal(device)))
        }
    }

    /// A controller reports 127 when the signal strength is unknown (Core specification, Vol 4,
    /// Part E, §7.7.65.2).
    private static func signal(_ device: ObjectTree.Properties) -> Int? {
        device["RSSI"]?.integer.flatMap { $0 == 127 ? nil : $0 }
    }

    private static func advertisement(
        of device: ObjectTree.Properties, _ service: BluetoothUUID
    ) -> ServiceAdvertisement? {
        var serviceData: [BluetoothUUID: [UInt8]] = [:]
        for (key, value) in device["ServiceData"]?.properties ?? [:] {
            if let uuid = BluetoothUUID(key) { serviceData[uuid] = value.bytes }
        }
        var manufacturerData: [UInt16: [UInt8]] = [:]
        for (key, value) in device["ManufacturerData"]?.entries ?? [] {
            if case .uint16(let company) = key { manufacturerData[company] = value.bytes }
        }
        return ServiceAdvertisement(
            of: service,
            uuids: (device["UUIDs"]?.texts ?? []).compactMap { BluetoothUUID($0) },
            name: device["Name"]?.text, serviceData: serviceData,
            manufacturerData: manufacturerData)
    }
}
