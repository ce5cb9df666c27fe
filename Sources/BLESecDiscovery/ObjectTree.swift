internal import BLESecL2CAP

/// The names of D-Bus interfaces.
typealias Interface = ObjectTree.Interface

/// The objects of bluetoothd, as its listings and signals report them.
///
/// Only the interfaces that this package uses are kept. Anyone nearby can make devices appear, and
/// a device can have any number of services, so both numbers are bounded.
struct ObjectTree: Sendable {
    typealias Properties = [String: BusValue]

    /// The most devices that are kept, and also the most services and characteristics of all
    /// devices together; further objects are ignored.
    static let mostObjects = 4_096

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
    private var isIncomplete = false

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
            kept[name] = properties.properties ?? [:]
        }
        guard !kept.isEmpty else { return }
        let kind = Kind(kept)
        if objects[path] == nil, kind != .local, counts[kind, default: 0] >= Self.mostObjects {
            isIncomplete = true
            return
        }
        put(kept, at: path)
    }

    /// Handles `InterfacesRemoved`.
    mutating func remove(_ path: String, _ interfaces: [String]) {
        guard var kept = objects[path] else { return }
        for name in interfaces { kept[name] = nil }
        put(kept, at: path)
    }

    private mutating func put(_ interfaces: [String: Properties], at path: String) {
        if let old = objects[path] { counts[Kind(old), default: 0] -= 1 }
        objects[path] = interfaces.isEmpty ? nil : interfaces
        if !interfaces.isEmpty { counts[Kind(interfaces), default: 0] += 1 }
    }

    /// Handles `PropertiesChanged`; ignores an unknown interface.
    mutating func change(
        _ path: String, _ interface: String, _ changed: Properties, invalidated: [String]
    ) {
        guard objects[path]?[interface] != nil else { return }
        objects[path]?[interface]?.merge(changed) { $1 }
        for name in invalidated { objects[path]?[interface]?[name] = nil }
    }

    mutating func removeAll() {
        objects = [:]
        counts = [:]
        isIncomplete = false
    }

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

    func address(of path: String) -> DeviceAddress? {
        guard let device = self[path, Interface.device],
            let address = device["Address"]?.text.flatMap({ BluetoothAddress($0) }),
            let type = device["AddressType"]?.text.flatMap({ AddressType(rawValue: $0) })
        else { return nil }
        return DeviceAddress(address, type)
    }

    /// The path of a device's object under an adapter; nil until the adapter has heard the device.
    func path(of address: DeviceAddress, on adapter: AdapterName) -> String? {
        let parts = address.address.description.split(separator: ":").joined(separator: "_")
        let path = "\(adapter.path)/dev_\(parts)"
        return self.address(of: path) == address ? path : nil
    }
}
