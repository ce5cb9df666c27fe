/// An object of ours that bluetoothd reads and calls.
struct ExportedObject: Sendable {
    /// Whom it goes with.
    let token: UInt64
    /// Its one interface, and that one's properties; none for the root of an application.
    var interface: String?
    var properties: [String: BusValue] = [:]
    /// What it does when it is a characteristic.
    var characteristic: GATTCharacteristic?
    var isNotifying = false
}
