internal import BLESecL2CAP

/// A characteristic of a connected device.
package struct RemoteCharacteristic: Sendable, Hashable {
    /// A GATT property that a characteristic may have; BlueZ's word is "flag" (doc/gatt-api.txt).
    package enum Property: String, Sendable, Hashable, CaseIterable {
        /// The value can be read.
        case read
        /// The value can be written, with a response.
        case write
        /// The value can be written without a response.
        case writeWithoutResponse = "write-without-response"
        /// The characteristic sends notifications to subscribers.
        case notify
        /// The characteristic sends indications to subscribers, which confirm each indication.
        case indicate
    }

    package let uuid: BluetoothUUID
    /// The names of the characteristic's properties, for example `read` or `notify`.
    package let flags: Set<String>
    let path: String

    /// The D-Bus arguments of `WriteValue` for a write without response (an ATT Write Command).
    static func writeCommandArguments(_ bytes: [UInt8]) -> [BusValue] {
        [.bytes(bytes), .properties(["type": .string("command")])]
    }

    /// Whether the characteristic has the property.
    package func has(_ property: Property) -> Bool { flags.contains(property.rawValue) }

    /// Checks that the characteristic has at least one of `properties`, because `action` needs one.
    ///
    /// - Throws: ``DiscoveryError/Code/notSupported``, whose reason names these properties.
    func require(oneOf properties: Property..., to action: String) throws(DiscoveryError) {
        if properties.contains(where: has) { return }
        let missing = properties.map { "`\($0.rawValue)`" }.joined(separator: " or ")
        let offered = flags.sorted().map { "`\($0)`" }.joined(separator: ", ")
        throw DiscoveryError(
            .notSupported,
            "cannot \(action): it lacks the property \(missing), and offers "
                + (offered.isEmpty ? "none" : offered))
    }
}

extension ObjectTree {
    /// The characteristics of a device's service; nil if the device does not have the service.
    func characteristics(of service: BluetoothUUID, below device: String) -> [RemoteCharacteristic]?
    {
        let services = paths(of: Interface.service, below: device)
        guard let path = services.first(where: { uuid(of: $0, Interface.service) == service })
        else { return nil }
        return paths(of: Interface.characteristic, below: path).compactMap { path in
            guard let uuid = uuid(of: path, Interface.characteristic) else { return nil }
            let flags = self[path, Interface.characteristic]?["Flags"]?.texts ?? []
            return RemoteCharacteristic(uuid: uuid, flags: Set(flags), path: path)
        }
    }

    /// The error if services or characteristics of the device at `path` were left out; nil if none
    /// were. `address` is the device's address.
    func lackOfParts(of path: String, _ address: DeviceAddress) -> DiscoveryError? {
        guard lacksParts(of: path) else { return nil }
        return DiscoveryError(
            .exhausted,
            "cannot find out what \(address) offers: it, or all devices together, have more services "
                + "and characteristics than are kept")
    }

    private func uuid(of path: String, _ interface: String) -> BluetoothUUID? {
        self[path, interface]?["UUID"]?.text.flatMap { BluetoothUUID($0) }
    }
}
