internal import BLESecL2CAP

/// The objects of this process whose methods bluetoothd calls: advertisements, and services with
/// their characteristics.
///
/// This is a class, since a characteristic's closures may call methods of this object while
/// ``answer(_:addressOf:onRelease:)`` runs.
final class ExportedObjects {
    private static let root = "/blesec"

    private struct Object {
        /// The token of the registration that the object belongs to.
        let token: UInt64
        /// The object's only interface; nil for the root of an application.
        var interface: String?
        /// The properties of that interface.
        var properties: [String: BusValue] = [:]
        var characteristic: GATTCharacteristic?
        /// Whether a device is subscribed to the characteristic.
        var isNotifying = false
    }

    private var objects: [String: Object] = [:]

    /// Adds the objects of an application; returns the path of their root.
    func add(_ application: GATTApplication, _ token: UInt64) -> String {
        let root = "\(Self.root)/application\(token)"
        let service = root + "/service"
        objects[root] = Object(token: token)
        objects[service] = Object(
            token: token, interface: Interface.service,
            properties: [
                "UUID": .string(application.service.description), "Primary": .bool(true),
            ])
        for (index, characteristic) in application.characteristics.enumerated() {
            objects["\(service)/characteristic\(index)"] = Object(
                token: token, interface: Interface.characteristic,
                properties: [
                    "UUID": .string(characteristic.uuid.description), "Service": .path(service),
                    "Flags": .strings(characteristic.flags),
                ], characteristic: characteristic)
        }
        return root
    }

    /// Adds the object of an advertisement; returns its path.
    func add(_ advertisement: Advertisement, _ token: UInt64) -> String {
        let path = "\(Self.root)/advertisement\(token)"
        objects[path] = Object(
            token: token, interface: Interface.advertisement,
            properties: advertisement.properties)
        return path
    }

    func remove(_ token: UInt64) {
        for (path, object) in objects where object.token == token {
            if object.isNotifying { object.characteristic?.subscribe?(false) }
            objects[path] = nil
        }
    }

    func path(of uuid: BluetoothUUID, _ token: UInt64) -> String? {
        objects.first { $0.value.token == token && $0.value.characteristic?.uuid == uuid }?.key
    }

    /// Carries out a method call of bluetoothd, and returns the answer. `addressOf` returns the
    /// address of the device at a path; `onRelease` is called when bluetoothd drops an
    /// advertisement.
    func answer(
        _ message: BusMessage, addressOf: (String) -> DeviceAddress?,
        onRelease: (String) -> Void
    ) -> Result<[BusValue], BusError> {
        let path = message.path
        let body = message.body()
        guard let object = objects[path] else { return .failure(.unknownObject) }
        switch (message.interface, message.member) {
        case (Interface.objectManager, "GetManagedObjects"):
            return .success([managedObjects(below: path)])
        case (Interface.properties, "GetAll"):
            let hasInterface = body.first?.text == object.interface
            return .success([.properties(hasInterface ? object.properties : [:])])
        case (Interface.properties, "Get"):
            guard body.count == 2, body[0].text == object.interface,
                let value = body[1].text.flatMap({ object.properties[$0] })
            else { return .failure(.unknown("property")) }
            return .success([.variant(value)])
        case (Interface.advertisement, "Release"):
            onRelease(path)
            return .success([])
        case (Interface.characteristic, let member):
            return object.characteristic.map { call($0, at: path, member, body, addressOf) }
                ?? .failure(.unknown("characteristic"))
        default: return .failure(.unknown("method"))
        }
    }

    private func call(
        _ characteristic: GATTCharacteristic, at path: String, _ member: String,
        _ body: [BusValue], _ addressOf: (String) -> DeviceAddress?
    ) -> Result<[BusValue], BusError> {
        let options = body.last?.properties ?? [:]
        let device = options["device"]?.text.flatMap(addressOf)
        switch member {
        case "StartNotify", "StopNotify":
            guard let subscribe = characteristic.subscribe else { return .failure(.notSupported) }
            objects[path]?.isNotifying = member == "StartNotify"
            subscribe(member == "StartNotify")
            return .success([])
        case "ReadValue":
            guard let value = characteristic.read?(device) else { return .failure(.notSupported) }
            let offset = options["offset"]?.integer ?? 0
            guard (0...value.count).contains(offset) else { return .failure(.invalidOffset) }
            return .success([.bytes(Array(value[offset...]))])
        case "WriteValue":
            guard let write = characteristic.write, let bytes = body.first?.bytes else {
                return .failure(.notSupported)
            }
            write(device, bytes)
            return .success([])
        default: return .failure(.unknown("method"))
        }
    }

    private func managedObjects(below path: String) -> BusValue {
        let managed = objects.filter { $0.key.hasPrefix(path + "/") }.sorted { $0.key < $1.key }
        return .array(
            managed.map { path, object in
                let interface = BusValue.entry(
                    .string(object.interface ?? ""), .properties(object.properties))
                return .entry(.path(path), .array([interface], of: "{sa{sv}}"))
            }, of: "{oa{sa{sv}}}")
    }
}

extension BusError {
    fileprivate static func unknown(_ kind: String) -> BusError {
        BusError(name: "org.freedesktop.DBus.Error.UnknownMethod", text: "no such \(kind)")
    }

    fileprivate static let invalidOffset = BusError(
        name: "org.bluez.Error.InvalidOffset", text: "the offset is beyond the end of the value")
    fileprivate static let notSupported = BusError(
        name: "org.bluez.Error.NotSupported", text: "the characteristic does not support it")
}
