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
    /// devices together. A further device replaces a random one of ``expendable``, and is ignored
    /// if there is none. A further service or characteristic is ignored.
    static let mostObjects = 4_096
    /// The most services and characteristics of one device together; further ones are ignored, so
    /// that one device cannot keep out those of others.
    static let mostParts = 256
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
    /// The numbers of services and characteristics, by the paths of their devices.
    private var parts: [String: Int] = [:]
    /// Whether objects were left out at ``mostObjects``.
    private var isIncomplete = false

    /// The services that this process scans for, by their text form.
    private var soughtServices: [String: BluetoothUUID] = [:]
    /// The services in each device's property `UUIDs`, by the device's path. They are parsed when
    /// the property changes, and not for each advertisement that is heard.
    private var listedServices: [String: [BluetoothUUID]] = [:]
    /// Whether services were cut off a device's list.
    private var hasCutLists = false
    /// The devices that are not needed now, so that further devices may replace them: they are
    /// neither connected nor paired, and advertise no service that this process scans for.
    private var expendable: Set<String> = []
    /// The properties of a device that decide whether it is expendable.
    private static let vitalProperties: Set<String> = [
        "Connected", "Paired", "ServiceData", "UUIDs",
    ]

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

    /// Whether bluetoothd should be asked to list its objects again.
    ///
    /// True if objects were left out at a limit, and less than half of each limit is used now. A
    /// call that returns true resets this: further calls return false until objects are left out
    /// again.
    mutating func takeListingRequest() -> Bool {
        guard isIncomplete, counts.values.allSatisfy({ $0 < Self.mostObjects / 2 }) else {
            return false
        }
        isIncomplete = false
        return true
    }

    /// The properties of an object's interface; nil when the object or its interface is unknown.
    subscript(path: String, interface: String) -> Properties? { objects[path]?[interface] }

    /// Replaces everything with the result of `GetManagedObjects`.
    mutating func replace(with managed: BusValue?) {
        removeAll()
        for (path, interfaces) in managed?.entries ?? [] {
            if let path = path.text { add(path, interfaces) }
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
        if objects[path] == nil, !makeRoom(for: Kind(kept), at: path) { return }
        put(kept, at: path)
    }

    /// Handles `InterfacesRemoved`.
    mutating func remove(_ path: String, _ interfaces: [String]) {
        guard var kept = objects[path] else { return }
        for name in interfaces { kept[name] = nil }
        put(kept, at: path)
    }

    private mutating func put(_ interfaces: [String: Properties], at path: String) {
        if let old = objects[path] { count(-1, Kind(old), at: path) }
        objects[path] = interfaces.isEmpty ? nil : interfaces
        if !interfaces.isEmpty { count(1, Kind(interfaces), at: path) }
        parseServices(of: path)
        review(path)
    }

    private mutating func count(_ change: Int, _ kind: Kind, at path: String) {
        counts[kind, default: 0] += change
        guard kind == .part else { return }
        let device = Self.device(of: path)
        let number = parts[device, default: 0] + change
        parts[device] = number > 0 ? number : nil
    }

    /// Makes room for a new object, if necessary in place of an expendable one; returns whether
    /// there is room.
    private mutating func makeRoom(for kind: Kind, at path: String) -> Bool {
        if kind == .local { return true }
        // ``isIncomplete`` is not set: a new listing would not help, since the device keeps its
        // services.
        if kind == .part, parts[Self.device(of: path), default: 0] >= Self.mostParts {
            return false
        }
        guard counts[kind, default: 0] >= Self.mostObjects else { return true }
        isIncomplete = true
        guard kind == .device, let replaced = expendable.randomElement() else { return false }
        put([:], at: replaced)
        return true
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

    mutating func removeAll() {
        objects = [:]
        counts = [:]
        parts = [:]
        isIncomplete = false
        listedServices = [:]
        hasCutLists = false
        expendable = []
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
        return isNew && (isIncomplete || hasCutLists)
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

    /// Updates whether the object at `path` is an expendable device.
    private mutating func review(_ path: String) {
        if isExpendable(path) { expendable.insert(path) } else { expendable.remove(path) }
    }

    private func isExpendable(_ path: String) -> Bool {
        guard let device = self[path, Interface.device] else { return false }
        let services = services(of: path)
        return !isConnected(path) && !flag("Paired", of: path)
            && !soughtServices.values.contains { services.contains($0) }
            && !(device["ServiceData"]?.entries ?? []).contains { isSought($0.key) }
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
        let parts = text.split(separator: ":").joined(separator: "_")
        let path = "\(adapter.path)/dev_\(parts)"
        if self.address(of: path) == address { return path }
        let others = objects.filter {
            $0.value[Interface.device]?["Address"]?.text == text
                && $0.key.hasPrefix(adapter.path + "/") && self.address(of: $0.key) == address
        }
        return others.keys.min()
    }
}
