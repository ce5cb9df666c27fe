/// An object of this process that bluetoothd reads and calls.
struct ExportedObject: Sendable {
    /// The token of the request that the object belongs to.
    let token: UInt64
    /// Its only interface, and the properties of that interface; none for the root of an
    /// application.
    var interface: String?
    var properties: [String: BusValue] = [:]
    /// The characteristic, if the object is one.
    var characteristic: GATTCharacteristic?
    var isNotifying = false
}
