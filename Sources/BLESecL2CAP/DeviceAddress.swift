package import BLESecLinks

/// Where a device can be dialed: its address and the type of that address. An address authenticates
/// nobody.
package struct DeviceAddress: Sendable, Hashable, CustomStringConvertible {
    package let address: BluetoothAddress
    package let type: AddressType

    package init(_ address: BluetoothAddress, _ type: AddressType) {
        self.address = address
        self.type = type
    }

    /// The form `AA:BB:CC:DD:EE:FF (random)`, which links also use to describe their peers.
    package var description: String { "\(address) (\(type.rawValue))" }
}

extension LinkAddress {
    /// The Bluetooth device at the other end; nil for the address of another kind of link.
    package var device: DeviceAddress? { value as? DeviceAddress }
}
