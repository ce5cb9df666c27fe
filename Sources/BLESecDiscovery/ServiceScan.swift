internal import BLESecL2CAP

/// A scan for one service on one adapter. It ends when `sightings` ends or is released.
package struct ServiceScan: Sendable {
    /// Each advertisement, as soon as it is heard. A slow consumer loses the oldest sightings.
    package let sightings: AsyncStream<Sighting>
    let registration: Registration

    /// Pauses the scan, so that the kernel can make links: it makes none while an adapter scans.
    /// If no other scan of the same ``Bluetoothd`` goes on, returns when bluetoothd has answered
    /// the request to stop, or after 3 seconds, or when the task is cancelled.
    package func pause() async { await registration.registrations.pause(registration.token) }
    /// Continues the scan.
    package func resume() async { await registration.registrations.resume(registration.token) }
}

/// The scans of one ``Bluetoothd``, and which devices they report.
struct ServiceScans {
    /// The most sightings that wait for a slow consumer; older ones are dropped.
    static let maximumWaitingSightings = 256
    /// Properties that change when a device is heard.
    static let heardProperties: Set<String> = ["RSSI", "ServiceData", "ManufacturerData"]

    struct Scan {
        let adapter: AdapterName
        let service: BluetoothUUID
        let continuation: AsyncStream<Sighting>.Continuation
    }

    /// The scans, by the tokens of their registrations.
    var byToken: [UInt64: Scan] = [:]

    mutating func finish() {
        let ended = byToken.values
        byToken = [:]
        for scan in ended { scan.continuation.finish() }
    }

    /// Reports a heard device to every scan of its adapter, or to the scan with the token `only`.
    func heard(_ path: String, in tree: ObjectTree, onlyTo only: UInt64? = nil) {
        guard !byToken.isEmpty, let adapter = AdapterName(of: path),
            let address = tree.address(of: path),
            let device = tree[path, Interface.device]
        else { return }
        for (token, scan) in byToken where scan.adapter == adapter && (only ?? token) == token {
            guard
                let advertisement = ServiceAdvertisement(
                    of: scan.service, device, listing: tree.services(of: path))
            else { continue }
            // A controller reports 127 when the signal strength is unknown (Core specification,
            // Vol 4, Part E, §7.7.65.2).
            let signal = device["RSSI"]?.integer.flatMap { $0 == 127 ? nil : $0 }
            scan.continuation.yield(
                Sighting(address: address, advertisement: advertisement, signal: signal))
        }
    }

    /// Reports the devices that bluetoothd has heard recently to a new scan.
    func reportHeardDevices(in tree: ObjectTree, to token: UInt64) {
        guard let adapter = byToken[token]?.adapter else { return }
        for path in tree.paths(of: Interface.device, below: adapter.path)
        where tree[path, Interface.device]?["RSSI"] != nil {
            heard(path, in: tree, onlyTo: token)
        }
    }
}

extension ServiceAdvertisement {
    /// Reads the properties of a device's object, which lists `services`.
    fileprivate init?(
        of service: BluetoothUUID, _ device: ObjectTree.Properties,
        listing services: [BluetoothUUID]
    ) {
        var serviceData: [BluetoothUUID: [UInt8]] = [:]
        for (key, value) in device["ServiceData"]?.properties ?? [:] {
            if let uuid = BluetoothUUID(key) { serviceData[uuid] = value.bytes }
        }
        var manufacturerData: [UInt16: [UInt8]] = [:]
        for (key, value) in device["ManufacturerData"]?.entries ?? [] {
            if case .uint16(let company) = key { manufacturerData[company] = value.bytes }
        }
        self.init(
            of: service, uuids: services, name: device["Name"]?.text, serviceData: serviceData,
            manufacturerData: manufacturerData)
    }
}
