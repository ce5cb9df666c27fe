/// bluetoothd's objects, as its signals have told of them.
///
/// Of the interfaces only those that are used are kept. Devices come and go with whoever advertises
/// nearby, and a device has as many services as it likes, so the number of each is bounded here too.
struct ObjectTree: Sendable {
    typealias Properties = [String: BusValue]

    /// More devices than an adapter keeps, and as many objects of their services: what comes beyond
    /// is not there for us.
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
    /// How many of them are devices, and how many are parts of a device.
    private var counts: [Kind: Int] = [:]
    private var isIncomplete = false

    private enum Kind {
        case device
        case part
        /// Adapters, and what is no neighbour's doing.
        case own

        init(_ interfaces: [String: Properties]) {
            if interfaces[Interface.device] != nil {
                self = .device
            } else if interfaces[Interface.service] != nil
                || interfaces[Interface.characteristic] != nil
            {
                self = .part
            } else {
                self = .own
            }
        }
    }

    /// Whether objects were left out for want of room and there is room again, so that it is worth
    /// to have bluetoothd list them; once for each time that happens.
    mutating func takeGap() -> Bool {
        guard isIncomplete, counts.values.allSatisfy({ $0 < Self.mostObjects / 2 }) else {
            return false
        }
        isIncomplete = false
        return true
    }

    /// The properties of an object's interface; nil when it does not have it.
    subscript(path: String, interface: String) -> Properties? { objects[path]?[interface] }

    /// Starts anew from what `GetManagedObjects` returns.
    mutating func replace(with managed: BusValue?) {
        removeAll()
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
        guard !kept.isEmpty else { return }
        let kind = Kind(kept)
        if objects[path] == nil, kind != .own, counts[kind, default: 0] >= Self.mostObjects {
            isIncomplete = true
            return
        }
        put(kept, at: path)
    }

    /// `InterfacesRemoved`.
    mutating func remove(_ path: String, _ interfaces: [String]) {
        guard var kept = objects[path] else { return }
        for name in interfaces { kept[name] = nil }
        put(kept, at: path)
    }

    private mutating func put(_ interfaces: [String: Properties], at path: String) {
        if let old = objects[path] { counts[Kind(old), default: 0] -= 1 }
        if interfaces.isEmpty {
            objects[path] = nil
        } else {
            objects[path] = interfaces
            counts[Kind(interfaces), default: 0] += 1
        }
    }

    /// `PropertiesChanged`; nothing for an interface that is not there.
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

    /// The paths of all objects below `path` that have the interface, in their order.
    func paths(of interface: String, below path: String = "") -> [String] {
        objects.compactMap { candidate, interfaces in
            interfaces[interface] != nil && (path.isEmpty || candidate.hasPrefix(path + "/"))
                ? candidate : nil
        }.sorted()
    }
}
