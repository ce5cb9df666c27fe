/// A GATT service that this machine offers, with its characteristics.
package struct GATTApplication: Sendable {
    /// The service's UUID.
    package let service: BluetoothUUID
    /// What it consists of.
    package let characteristics: [GATTCharacteristic]

    /// Puts one together.
    package init(service: BluetoothUUID, characteristics: [GATTCharacteristic]) {
        self.service = service
        self.characteristics = characteristics
    }
}

/// One characteristic of a service that this machine offers.
///
/// Whoever is near can read, write and subscribe: nothing here is authenticated. The closures are
/// called on the loop's thread and must not block.
package struct GATTCharacteristic: Sendable {
    /// Its UUID.
    package let uuid: BluetoothUUID
    /// Its value, for a characteristic that can be read: at most 512 bytes.
    package var read: (@Sendable () -> [UInt8])?
    /// Takes what a device writes without response; nil where bluetoothd does not say which one.
    package var write: (@Sendable (_ device: DeviceAddress?, _ bytes: [UInt8]) -> Void)?
    /// Told when the first device subscribes to notifications, and when the last one has gone.
    package var subscribe: (@Sendable (_ isSubscribed: Bool) -> Void)?

    /// Makes one that can do nothing yet.
    package init(_ uuid: BluetoothUUID) {
        self.uuid = uuid
    }

    /// As in BlueZ's doc/gatt-api.txt.
    var flags: [String] {
        var flags: [String] = []
        if read != nil { flags.append("read") }
        if write != nil { flags.append("write-without-response") }
        if subscribe != nil { flags.append("notify") }
        return flags
    }
}
