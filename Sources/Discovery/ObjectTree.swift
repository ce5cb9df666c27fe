/// bluetoothd's objects, as its signals have told of them.
///
/// Of the interfaces only those that are used are kept. Devices come and go with whoever advertises
/// nearby, so their number is bounded here too.
struct ObjectTree: Sendable {
    typealias Properties = [String: BusValue]

    /// More devices than an adapter keeps: what comes beyond is not there for us.
    static let mostObjects = 4_096

    enum Interface {
        static let adapter = "org.bluez.Adapter1"
        static let device = "org.bluez.Device1"
        static let service = "org.bluez.GattService1"
        static let characteristic = "org.bluez.GattCharacteristic1"
        static let gattManager = "org.bluez.GattManager1"
        static let advertisingManager = "org.bluez.LEAdvertisingManager1"
        static let advertisement = "org.bluez.LEAdvertisement1"
        static let kept: Set<String> = [
            adapter, device, service, characteristic, gattManager, advertisingManager,
        ]
    }

    private var objects: [String: [String: Properties]] = [:]

    /// The properties of an object's interface; nil when it does not have it.
    subscript(path: String, interface: String) -> Properties? { objects[path]?[interface] }

    /// Starts anew from what `GetManagedObjects` returns.
    mutating func replace(with managed: BusValue?) {
        objects = [:]
        for (path, interfaces) in managed?.entries ?? [] {
            if let path = path.text { add(path, interfaces) }
        }
    }

    /// `InterfacesAdded`.
    mutating func add(_ path: String, _ interfaces: BusValue) {
        var kept = objects[path] ?? [:]
        for (name, properties) in interfaces.entries ?? [] {
            guard let name = name.text, Interface.kept.contains(name) else { continue }
            kept[name] = properties.properties ?? [:]
        }
        let isNew = objects[path] == nil
        guard !kept.isEmpty, !isNew || objects.count < Self.mostObjects else { return }
        objects[path] = kept
    }

    /// `InterfacesRemoved`.
    mutating func remove(_ path: String, _ interfaces: [String]) {
        for name in interfaces { objects[path]?[name] = nil }
        if objects[path]?.isEmpty ?? false { objects[path] = nil }
    }

    /// `PropertiesChanged`; nothing for an interface that is not there.
    mutating func change(
        _ path: String, _ interface: String, _ changed: Properties, invalidated: [String]
    ) {
        guard objects[path]?[interface] != nil else { return }
        objects[path]?[interface]?.merge(changed) { $1 }
        for name in invalidated { objects[path]?[interface]?[name] = nil }
    }

    mutating func removeAll() { objects = [:] }

    /// The paths of all objects below `path` that have the interface, in their order.
    func paths(of interface: String, below path: String = "") -> [String] {
        objects.compactMap { candidate, interfaces in
            interfaces[interface] != nil && (path.isEmpty || candidate.hasPrefix(path + "/"))
                ? candidate : nil
        }.sorted()
    }
}
