package import BLESecLinks

/// Where a device can be dialed: its address and the address type. It proves nothing.
package struct DeviceAddress: Sendable, Hashable, CustomStringConvertible {
    /// The six bytes.
    package let address: BluetoothAddress
    /// The address type.
    package let type: AddressType

    /// Makes a device address from its two parts.
    package init(_ address: BluetoothAddress, _ type: AddressType) {
        self.address = address
        self.type = type
    }

    /// The form `AA:BB:CC:DD:EE:FF (random)`, in which links also print their peers.
    package var description: String { "\(address) (\(type.rawValue))" }
}

extension LinkAddress {
    /// The device at the other end of the link; nil for a link that leads to no device.
    package var device: DeviceAddress? { value as? DeviceAddress }
}
