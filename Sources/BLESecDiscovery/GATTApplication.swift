package import BLESecL2CAP

/// What BlueZ calls an application: a GATT service that this machine offers.
package struct GATTApplication: Sendable {
    /// The service's UUID.
    package let service: BluetoothUUID
    /// The service's characteristics.
    package let characteristics: [GATTCharacteristic]

    package init(service: BluetoothUUID, characteristics: [GATTCharacteristic]) {
        self.service = service
        self.characteristics = characteristics
    }
}

/// One characteristic of a service that this machine offers.
///
/// Any device nearby can read, write and subscribe: nothing here is authenticated. The closures are
/// called on the loop's thread and must not block.
package struct GATTCharacteristic: Sendable {
    package let uuid: BluetoothUUID
    /// Returns the value for a device, at most 512 bytes; `device` is nil if bluetoothd does not
    /// name it, or ``ObjectTree`` does not have it. Without `read`, the characteristic cannot be
    /// read.
    package var read: (@Sendable (_ device: DeviceAddress?) -> [UInt8])?
    /// Called with a value that a device has written without response; `device` is nil as for
    /// `read`. Without `write`, the characteristic cannot be written.
    package var write: (@Sendable (_ device: DeviceAddress?, _ bytes: [UInt8]) -> Void)?
    /// Called with true when the first device subscribes to notifications, and with false when the
    /// last subscriber has gone.
    package var subscribe: (@Sendable (_ isSubscribed: Bool) -> Void)?

    /// Makes a characteristic that can be neither read nor written, and does not notify, until its
    /// closures are set.
    package init(_ uuid: BluetoothUUID) { self.uuid = uuid }

    /// The characteristic's GATT properties, which BlueZ calls flags (doc/gatt-api.txt).
    var flags: [String] {
        var flags: [String] = []
        if read != nil { flags.append("read") }
        if write != nil { flags.append("write-without-response") }
        if subscribe != nil { flags.append("notify") }
        return flags
    }
}
