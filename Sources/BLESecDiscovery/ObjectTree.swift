internal import BLESecL2CAP

/// The names of D-Bus interfaces.
typealias Interface = ObjectTree.Interface

/// The objects of bluetoothd, as its listings and signals report them.
///
/// Only the interfaces that this package uses are kept. Anyone nearby can make devices appear, and
/// a device can have and can advertise any number of services, so all these numbers are bounded.
struct ObjectTree: Sendable {
    typealias Properties = [String: BusValue]

    /// The most devices that are kept, and also the most services and characteristics of all
    /// devices together. A further device replaces one of ``expendable``, or else one of
    /// ``advertisers``. A further service or characteristic of a connected device replaces all
    /// those of a device that is not connected. A further service or characteristic of a device that
    /// is not connected is ignored.
    static let mostObjects = 4_096
    /// The most services and characteristics of one device together; further ones are ignored, so
    /// that one device cannot keep out those of other devices. A service or a characteristic is
    /// called a *part* of the device here.
    static let mostParts = 256
    /// When one of ``advertisers`` has to be replaced, this many are chosen at random, and the one
    /// of these that was heard longest ago is replaced. So an advertiser that is heard again and
    /// again is hardly ever replaced.
    private static let sampleSize = 4
    /// The most services that are kept of a device's list `UUIDs`. Beyond them, only the services
    /// that this process scans for are kept.
    static let mostListedServices = 64

    enum Interface {
        static let adapter = "org.bluez.Adapter1"
        static let device = "org.bluez.Device1"
        static let service = "org.bluez.GattService1"
        static let characteristic = "org.bluez.GattCharacteristic1"
        static let gattManager = "org.bluez.GattManager1"
        static let advertisingManager = "org.bluez.LEAdvertisingManager1"
        static let advertisement = "org.bluez.LEAdvertisement1"
        static let objectManager = "org.freedesktop.DBus.ObjectManager"
        static let properties = "org.freedesktop.DBus.Properties"
        static let kept: Set<String> = [
            adapter, device, service, characteristic, gattManager, advertisingManager,
        ]
    }

    private var objects: [String: [String: Properties]] = [:]
    private var counts: [Kind: Int] = [:]
    /// The paths of the services and characteristics, by the path of the device that has them.
    private var parts: [String: Set<String>] = [:]
    /// Whether devices were left out or replaced at ``mostObjects``.
    private var lacksDevices = false
    /// The paths of devices some of whose services and characteristics were left out or replaced.
    private var devicesLackingParts: Set<String> = []

    /// The services that this process scans for, by their text form.
    private var soughtServices: [String: BluetoothUUID] = [:]
    /// The services in each device's property `UUIDs`, by the device's path. They are parsed when
    /// the property changes, and not for each advertisement that is heard.
    private var listedServices: [String: [BluetoothUUID]] = [:]
    /// Whether services were cut off a device's list.
    private var hasCutLists = false
    /// The devices that are not needed now, so that further devices may replace them: they are
    /// neither connected nor paired, and advertise no service that this process scans for.
    private var expendable = PathSet()
    /// The devices that are neither connected nor paired, and advertise a service that this process
    /// scans for.
    private var advertisers = PathSet()
    /// The properties of a device that decide whether it is expendable, or an advertiser.
    private static let vitalProperties: Set<String> = [
        "Bonded", "Connected", "Paired", "ServiceData", "UUIDs",
    ]
    /// For each device, the number of its last hearing; hearings are counted over all devices.
    private var hearings: [String: UInt64] = [:]
    private var lastHearing: UInt64 = 0

    private enum Kind {
        case device
        /// A service or a characteristic of a device.
        case part
        /// Adapters, and other objects that no nearby device creates.
        case local

        init(_ interfaces: [String: Properties]) {
            func has(_ interface: String) -> Bool { interfaces[interface] != nil }
            let isPart = has(Interface.service) || has(Interface.characteristic)
            self = has(Interface.device) ? .device : isPart ? .part : .local
        }
    }

    /// Whether bluetoothd should be asked to list its objects again, because objects were left out
    /// or replaced, and there is room for them now.
    var wantsListing: Bool {
        lacksDevices && counts[.device, default: 0] < Self.mostObjects
            || devicesLackingParts.contains { wantsParts(of: $0) }
    }

    /// Whether some services and characteristics of the connected device at `path` were left out or
    /// replaced, and a new listing would add them.
    func wantsParts(of path: String) -> Bool {
        guard lacksParts(of: path), isConnected(path),
            parts[path, default: []].count < Self.mostParts
        else { return false }
        return counts[.part, default: 0] < Self.mostObjects
            || parts.keys.contains { !isConnected($0) }
    }

    /// Whether some services and characteristics of the device at `path` were left out or replaced.
    func lacksParts(of path: String) -> Bool { devicesLackingParts.contains(path) }

    /// The properties of an object's interface; nil when the object or its interface is unknown.
    subscript(path: String, interface: String) -> Properties? { objects[path]?[interface] }

    /// Replaces everything with the result of `GetManagedObjects`.
    mutating func replace(with managed: BusValue?) {
        let hearings = hearings
        removeAll()
        self.hearings = hearings
        let listed = managed?.entries ?? []
        // The devices first, since the state of a device decides whether its services and
        // characteristics are kept.
        for addsParts in [false, true] {
            for (path, interfaces) in listed where Self.isPart(interfaces) == addsParts {
                if let path = path.text { add(path, interfaces) }
            }
        }
        self.hearings = self.hearings.filter { objects[$0.key] != nil }
    }

    private static func isPart(_ interfaces: BusValue) -> Bool {
        (interfaces.entries ?? []).contains {
            $0.key.text == Interface.service || $0.key.text == Interface.characteristic
        }
    }

    /// Handles `InterfacesAdded`.
    mutating func add(_ path: String, _ interfaces: BusValue) {
        var kept = objects[path] ?? [:]
        for (name, properties) in interfaces.entries ?? [] {
            guard let name = name.text, Interface.kept.contains(name) else { continue }
            var reported = properties.properties ?? [:]
            if name == Interface.device { cutServices(of: &reported) }
            kept[name] = reported
        }
        guard !kept.isEmpty else { return }
        let kind = Kind(kept)
        if kind == .part, objects[path] == nil, !makeRoom(forPart: path) { return }
        put(kept, at: path)
        if kind == .device {
            if hearings[path] == nil { noteHearing(of: path) }
            removeSurplusDevice(afterAdding: path)
        }
    }

    /// Handles `InterfacesRemoved`.
    mutating func remove(_ path: String, _ interfaces: [String]) {
        if interfaces.contains(Interface.device) { devicesLackingParts.remove(path) }
        guard var kept = objects[path] else { return }
        for name in interfaces { kept[name] = nil }
        put(kept, at: path)
    }

    private mutating func put(_ interfaces: [String: Properties], at path: String) {
        if let old = objects[path] { count(-1, Kind(old), at: path) }
        objects[path] = interfaces.isEmpty ? nil : interfaces
        if !interfaces.isEmpty { count(1, Kind(interfaces), at: path) }
        if interfaces[Interface.device] == nil { hearings[path] = nil }
        parseServices(of: path)
        review(path)
    }

    /// Adds the object at `path` to the counts if `change` is 1, and subtracts it if `change` is -1.
    private mutating func count(_ change: Int, _ kind: Kind, at path: String) {
        counts[kind, default: 0] += change
        guard kind == .part else { return }
        let device = Self.device(of: path)
        if change > 0 {
            parts[device, default: []].insert(path)
        } else {
            parts[device]?.remove(path)
            if parts[device]?.isEmpty == true { parts[device] = nil }
        }
    }

    private mutating func noteHearing(of path: String) {
        lastHearing += 1
        hearings[path] = lastHearing
    }

    /// If there are more than ``mostObjects`` devices, removes one: if possible an expendable one,
    /// otherwise an advertiser, and otherwise the device at `path`, which was just added.
    private mutating func removeSurplusDevice(afterAdding path: String) {
        guard counts[.device, default: 0] > Self.mostObjects else { return }
        lacksDevices = true
        let replaced = expendable.randomElement() ?? advertiserHeardLongAgo ?? path
        put([:], at: replaced)
    }

    /// Of ``sampleSize`` random advertisers, the one that was heard longest ago.
    private var advertiserHeardLongAgo: String? {
        let sample = (0..<Self.sampleSize).compactMap { _ in advertisers.randomElement() }
        return sample.min { hearings[$0, default: 0] < hearings[$1, default: 0] }
    }

    /// Makes room for a new service or characteristic of a device, if necessary in place of those
    /// of another device; returns whether there is room.
    private mutating func makeRoom(forPart path: String) -> Bool {
        let device = Self.device(of: path)
        var hasRoom = parts[device, default: []].count < Self.mostParts
        if hasRoom, counts[.part, default: 0] >= Self.mostObjects {
            hasRoom = isConnected(device) && removePartsOfOneDevice()
        }
        if !hasRoom { notePartsLeftOut(of: device) }
        return hasRoom
    }

    /// Removes the services and characteristics of a device that is not connected; returns false if
    /// there is no such device.
    private mutating func removePartsOfOneDevice() -> Bool {
        guard let device = parts.keys.first(where: { !isConnected($0) }), let paths = parts[device]
        else { return false }
        for path in paths { put([:], at: path) }
        notePartsLeftOut(of: device)
        return true
    }

    private mutating func notePartsLeftOut(of device: String) {
        // The set is bounded, since bluetoothd may have any number of devices.
        if devicesLackingParts.count < Self.mostObjects { devicesLackingParts.insert(device) }
    }

    /// The path of the device that has the service or characteristic at `path`: the first four
    /// parts of `path`.
    private static func device(of path: String) -> String {
        "/" + path.split(separator: "/").prefix(4).joined(separator: "/")
    }

    /// Handles `PropertiesChanged`; ignores an unknown interface.
    mutating func change(
        _ path: String, _ interface: String, _ changed: Properties, invalidated: [String]
    ) {
        guard objects[path]?[interface] != nil else { return }
        var changed = changed
        if interface == Interface.device { cutServices(of: &changed) }
        objects[path]?[interface]?.merge(changed) { $1 }
        for name in invalidated { objects[path]?[interface]?[name] = nil }
        guard interface == Interface.device else { return }
        if Self.isHeard(changed) { noteHearing(of: path) }
        let vital = Self.vitalProperties.filter {
            changed[$0] != nil || invalidated.contains($0)
        }
        if vital.contains("UUIDs") { parseServices(of: path) }
        if !vital.isEmpty { review(path) }
    }

    /// Whether a change reports a connected device that is not kept: another device has replaced
    /// it, or there was no room for it.
    func lacksConnectedDevice(_ path: String, _ interface: String, _ changed: Properties) -> Bool {
        interface == Interface.device && changed["Connected"]?.bool == true
            && self[path, interface] == nil
    }

    /// Whether a change reports that a device was heard, and the device is not kept: another device
    /// has replaced it, or there was no room for it.
    func lacksHeardDevice(_ path: String, _ interface: String, _ changed: Properties) -> Bool {
        interface == Interface.device && self[path, interface] == nil && Self.isHeard(changed)
    }

    /// Whether these changed properties of a device show that the device was heard.
    private static func isHeard(_ changed: Properties) -> Bool {
        !ServiceScans.heardProperties.isDisjoint(with: changed.keys)
    }

    mutating func removeAll() {
        objects = [:]
        counts = [:]
        parts = [:]
        lacksDevices = false
        devicesLackingParts = []
        listedServices = [:]
        hasCutLists = false
        expendable = PathSet()
        advertisers = PathSet()
        hearings = [:]
    }

    // MARK: - Advertised services

    /// Sets the services that this process scans for.
    ///
    /// - Returns: whether bluetoothd should be asked to list its objects again, because what was
    ///   left out or cut off before may concern a service that was not scanned for until now.
    mutating func seek(_ services: Set<BluetoothUUID>) -> Bool {
        let isNew = services.contains { !soughtServices.values.contains($0) }
        soughtServices = [:]
        for service in services { soughtServices[service.description] = service }
        for path in listedServices.keys { review(path) }
        return isNew && (lacksDevices || hasCutLists)
    }

    /// The services that a device lists in `UUIDs`.
    func services(of path: String) -> [BluetoothUUID] { listedServices[path] ?? [] }

    /// Cuts the list `UUIDs` in the properties of a device. bluetoothd adds every UUID that is
    /// advertised from the device's address, and so the list can grow without limit.
    private mutating func cutServices(of device: inout Properties) {
        guard let all = device["UUIDs"]?.elements, all.count > Self.mostListedServices else {
            return
        }
        hasCutLists = true
        let kept = all.enumerated().filter { index, service in
            index < Self.mostListedServices || isSought(service)
        }
        device["UUIDs"] = .array(kept.map(\.element), of: "s")
    }

    private mutating func parseServices(of path: String) {
        listedServices[path] = self[path, Interface.device].map { device in
            (device["UUIDs"]?.texts ?? []).compactMap { BluetoothUUID($0) }
        }
    }

    /// Updates whether the object at `path` is an expendable device, or an advertiser.
    private mutating func review(_ path: String) {
        expendable.remove(path)
        advertisers.remove(path)
        guard let device = self[path, Interface.device], !isConnected(path), !isPaired(path) else {
            return
        }
        let services = services(of: path)
        let isAdvertiser =
            soughtServices.values.contains { services.contains($0) }
            || (device["ServiceData"]?.entries ?? []).contains { isSought($0.key) }
        if isAdvertiser { advertisers.insert(path) } else { expendable.insert(path) }
    }

    /// Whether a value is the text form of a service that this process scans for.
    private func isSought(_ value: BusValue) -> Bool {
        value.text.map { soughtServices[$0] != nil } ?? false
    }

    // MARK: - Objects

    /// The paths of all objects below `path` that have the interface, sorted.
    func paths(of interface: String, below path: String = "") -> [String] {
        let owners = objects.filter { $0.value[interface] != nil }.keys
        return owners.filter { path.isEmpty || $0.hasPrefix(path + "/") }.sorted()
    }

    func isPowered(_ adapter: AdapterName) -> Bool {
        self[adapter.path, Interface.adapter]?["Powered"]?.bool ?? false
    }

    // MARK: - Devices

    func isConnected(_ path: String) -> Bool { flag("Connected", of: path) }

    /// Whether a device has been paired over Bluetooth, whether or not its keys are stored.
    func isPaired(_ path: String) -> Bool {
        flag("Paired", of: path) || flag("Bonded", of: path)
    }

    /// Whether the same adapter has another object with the address of the device at `path`, and
    /// the device of that other object is paired.
    func hasPairedTwin(_ path: String) -> Bool {
        guard let adapter = AdapterName(of: path), let address = addressText(of: path) else {
            return false
        }
        return objects.keys.contains {
            $0 != path && addressText(of: $0) == address && isPaired($0)
                && AdapterName(of: $0) == adapter
        }
    }

    private func addressText(of path: String) -> String? {
        self[path, Interface.device]?["Address"]?.text
    }

    /// Whether a property of the device with this path is true.
    func flag(_ name: String, of path: String) -> Bool {
        self[path, Interface.device]?[name]?.bool ?? false
    }

    /// Whether bluetoothd has added the device at `path` because it was heard. When an adapter comes
    /// back, bluetoothd also adds the paired devices that it has stored, without a signal strength.
    func wasNewDeviceHeard(_ path: String) -> Bool {
        self[path, Interface.device]?["RSSI"] != nil || !flag("Paired", of: path)
    }

    func address(of path: String) -> DeviceAddress? {
        guard let device = self[path, Interface.device],
            let address = device["Address"]?.text.flatMap({ BluetoothAddress($0) }),
            let type = device["AddressType"]?.text.flatMap({ AddressType(rawValue: $0) })
        else { return nil }
        return DeviceAddress(address, type)
    }

    /// The path of a device's object under an adapter; nil until the adapter has heard the device.
    ///
    /// bluetoothd makes the path from the address at which it has heard the device first. If the
    /// device pairs and reveals another address, the object keeps its path.
    func path(of address: DeviceAddress, on adapter: AdapterName) -> String? {
        let text = address.address.description
        let pathSuffix = text.split(separator: ":").joined(separator: "_")
        let path = "\(adapter.path)/dev_\(pathSuffix)"
        if self.address(of: path) == address { return path }
        let others = objects.filter {
            $0.value[Interface.device]?["Address"]?.text == text
                && $0.key.hasPrefix(adapter.path + "/") && self.address(of: $0.key) == address
        }
        return others.keys.min()
    }
}
