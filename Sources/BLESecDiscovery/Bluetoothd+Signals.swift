internal import BLESecL2CAP

/// The signals from bluetoothd.
extension Bluetoothd {
    func take(signal message: BusMessage) {
        switch (message.interface, message.member) {
        case ("org.freedesktop.DBus", "NameOwnerChanged"):
            // Any process on the bus can send a signal of this name to this process directly.
            guard message.sender == "org.freedesktop.DBus" else { return }
            let names = message.body().map { $0.text ?? "" }
            guard names.count == 3, names[0] == "org.bluez" else { return }
            return tookOwner(names[2])
        default: break
        }
        // Signals about its objects count only from bluetoothd, and only after it has listed them.
        guard let owner, message.sender == owner else { return }
        let body = message.body()
        switch (message.interface, message.member) {
        case ("org.freedesktop.DBus.ObjectManager", "InterfacesAdded"):
            guard body.count == 2, let path = body[0].text else { return }
            tree.add(path, body[1])
            treeChanged()
            if isDevice(body[1]) { heard(path) }
        case ("org.freedesktop.DBus.ObjectManager", "InterfacesRemoved"):
            guard body.count == 2, let path = body[0].text else { return }
            let wasConnected = tree[path, ObjectTree.Interface.device]?["Connected"]?.bool ?? false
            tree.remove(path, body[1].texts ?? [])
            treeChanged()
            if tree.takeGap() { listObjects(of: owner) }
            if wasConnected { deviceLinkEnded(path) }
        case ("org.freedesktop.DBus.Properties", "PropertiesChanged"):
            guard body.count == 3, let interface = body[0].text else { return }
            change(
                message.path, interface, body[1].properties ?? [:],
                invalidated: body[2].texts ?? [])
        default: break
        }
    }

    private func isDevice(_ interfaces: BusValue) -> Bool {
        interfaces.properties?[ObjectTree.Interface.device] != nil
    }

    private func change(
        _ path: String, _ interface: String, _ changed: ObjectTree.Properties,
        invalidated: [String]
    ) {
        tree.change(path, interface, changed, invalidated: invalidated)
        if interface == ObjectTree.Interface.characteristic, let value = changed["Value"]?.bytes,
            let handler = notified[path]
        {
            handler(value)
            // A change of the value alone concerns only this handler.
            if changed.count == 1 { return }
        }
        if interface == ObjectTree.Interface.device,
            !Self.heardProperties.isDisjoint(with: changed.keys)
        {
            heard(path)
            // If the change only shows that the device was heard, nothing else depends on it.
            if changed.keys.allSatisfy(Self.heardProperties.contains) { return }
        }
        treeChanged()
        if interface == ObjectTree.Interface.device, changed["Connected"]?.bool == false {
            deviceLinkEnded(path)
        }
    }

    private func deviceLinkEnded(_ path: String) {
        if let adapter = Self.name(of: path) { linkEnded(on: adapter) }
    }

    /// Properties that change when a device is heard.
    private static let heardProperties: Set<String> = ["RSSI", "ServiceData", "ManufacturerData"]

    /// The address of a device's object.
    func address(of path: String) -> DeviceAddress? {
        guard let device = tree[path, ObjectTree.Interface.device],
            let address = device["Address"]?.text.flatMap({ BluetoothAddress($0) }),
            let type = device["AddressType"]?.text.flatMap({ AddressType(rawValue: $0) })
        else { return nil }
        return DeviceAddress(address, type)
    }

    /// The path of a device's object under an adapter; nil until the adapter has heard the device.
    func device(_ address: DeviceAddress, on adapter: String) -> String? {
        let parts = address.address.description.split(separator: ":").joined(separator: "_")
        let path = "\(Self.path(of: adapter))/dev_\(parts)"
        return self.address(of: path) == address ? path : nil
    }
}
