/// The objects whose methods bluetoothd calls: advertisements, and services with their
/// characteristics.
extension Bluetoothd {
    private static let root = "/blesec"

    /// Makes the objects of an application; returns the path of their root.
    func export(_ application: GATTApplication, _ token: UInt64) -> String {
        let root = "\(Self.root)/application\(token)"
        let service = root + "/service"
        exported[root] = ExportedObject(token: token)
        exported[service] = ExportedObject(
            token: token, interface: ObjectTree.Interface.service,
            properties: [
                "UUID": .string(application.service.description), "Primary": .bool(true),
            ])
        for (index, characteristic) in application.characteristics.enumerated() {
            exported["\(service)/characteristic\(index)"] = ExportedObject(
                token: token, interface: ObjectTree.Interface.characteristic,
                properties: [
                    "UUID": .string(characteristic.uuid.description), "Service": .path(service),
                    "Flags": .strings(characteristic.flags),
                ], characteristic: characteristic)
        }
        return root
    }

    /// Makes the object of an advertisement; returns its path.
    func export(_ advertisement: Advertisement, _ token: UInt64) -> String {
        let path = "\(Self.root)/advertisement\(token)"
        exported[path] = ExportedObject(
            token: token, interface: ObjectTree.Interface.advertisement,
            properties: advertisement.properties)
        return path
    }

    func removeExports(of token: UInt64) {
        for (path, object) in exported where object.token == token {
            if object.isNotifying { object.characteristic?.subscribe?(false) }
            exported[path] = nil
        }
    }

    /// Answers a method call on one of these objects.
    ///
    /// The bus allows root, too, to call these objects; only calls from bluetoothd are accepted.
    func answer(_ message: BusMessage) {
        guard let owner, message.sender == owner, exported[message.path] != nil else {
            let error = BusError(
                name: "org.freedesktop.DBus.Error.UnknownObject", text: "no such object")
            bus?.reply(to: message, with: .failure(error))
            return
        }
        bus?.reply(to: message, with: result(of: message))
    }

    private func result(of message: BusMessage) -> Result<[BusValue], BusError> {
        let path = message.path
        let body = message.body()
        switch (message.interface, message.member) {
        case ("org.freedesktop.DBus.ObjectManager", "GetManagedObjects"):
            return .success([managedObjects(below: path)])
        case ("org.freedesktop.DBus.Properties", "GetAll"):
            guard body.first?.text == exported[path]?.interface else {
                return .success([.properties([:])])
            }
            return .success([.properties(exported[path]?.properties ?? [:])])
        case ("org.freedesktop.DBus.Properties", "Get"):
            guard body.count == 2, body[0].text == exported[path]?.interface,
                let value = body[1].text.flatMap({ exported[path]?.properties[$0] })
            else { return .failure(.unknown("property")) }
            return .success([.variant(value)])
        case (ObjectTree.Interface.advertisement, "Release"):
            lapse(path: path)
            return .success([])
        case (ObjectTree.Interface.characteristic, let member):
            return use(path, member, body)
        default:
            return .failure(.unknown("method"))
        }
    }

    private func use(
        _ path: String, _ member: String, _ body: [BusValue]
    ) -> Result<[BusValue], BusError> {
        guard let characteristic = exported[path]?.characteristic else {
            return .failure(.unknown("characteristic"))
        }
        let options = body.last?.properties ?? [:]
        switch member {
        case "ReadValue":
            guard let value = characteristic.read?() else { return .failure(.notSupported) }
            let offset = options["offset"]?.integer ?? 0
            guard (0...value.count).contains(offset) else {
                return .failure(
                    BusError(name: "org.bluez.Error.InvalidOffset", text: "beyond the value"))
            }
            return .success([.bytes(Array(value[offset...]))])
        case "WriteValue":
            guard let write = characteristic.write, let bytes = body.first?.bytes else {
                return .failure(.notSupported)
            }
            write(options["device"]?.text.flatMap { address(of: $0) }, bytes)
        case "StartNotify", "StopNotify":
            guard let subscribe = characteristic.subscribe else { return .failure(.notSupported) }
            exported[path]?.isNotifying = member == "StartNotify"
            subscribe(member == "StartNotify")
        default: return .failure(.unknown("method"))
        }
        return .success([])
    }

    private func managedObjects(below path: String) -> BusValue {
        let objects = exported.keys.sorted().filter { $0.hasPrefix(path + "/") }
        return .array(
            objects.map { path in
                let object = exported[path]
                let interface = BusValue.entry(
                    .string(object?.interface ?? ""), .properties(object?.properties ?? [:]))
                return .entry(.path(path), .array([interface], of: "{sa{sv}}"))
            }, of: "{oa{sa{sv}}}")
    }

    /// Notifies all subscribers of a characteristic of an application.
    ///
    /// - Throws: ``DiscoveryError/Code/notFound`` when there is no such characteristic,
    ///   ``DiscoveryError/Code/noService`` when bluetoothd has stopped.
    package func notify(
        _ uuid: BluetoothUUID, of application: UInt64, _ value: [UInt8]
    ) throws(DiscoveryError) {
        let found = exported.first {
            $0.value.token == application && $0.value.characteristic?.uuid == uuid
        }
        guard let path = found?.key else {
            throw DiscoveryError(.notFound, "the characteristic \(uuid) is not published")
        }
        guard let bus, owner != nil else {
            throw DiscoveryError(.noService, "cannot notify: bluetoothd does not run")
        }
        do throws(BusError) {
            try bus.signal(
                path: path, interface: "org.freedesktop.DBus.Properties",
                member: "PropertiesChanged",
                [
                    .string(ObjectTree.Interface.characteristic),
                    .properties(["Value": .bytes(value)]), .strings([]),
                ])
        } catch {
            throw DiscoveryError(bus: error, "notify")
        }
    }
}

extension BusError {
    fileprivate static func unknown(_ what: String) -> BusError {
        BusError(name: "org.freedesktop.DBus.Error.UnknownMethod", text: "no such \(what)")
    }

    fileprivate static let notSupported = BusError(
        name: "org.bluez.Error.NotSupported", text: "the characteristic does not do that")
}
