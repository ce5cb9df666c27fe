/// The properties of an adapter that a program may check before it uses the adapter.
package struct AdapterInspection: Sendable {
    package let name: String
    package let address: String
    /// The kind of the address: `public`, which is fixed in the hardware, or `random`.
    package let addressType: String
    /// The name under which other devices see the adapter.
    package let alias: String
    package let state: AdapterState
    /// The adapter's roles: `central`, `peripheral`, or both.
    package let roles: [String]
    /// Whether the adapter accepts Bluetooth pairing.
    package let isPairable: Bool
    /// How many advertisements are active, and how many more the adapter can hold; nil unless
    /// bluetoothd reports both.
    package let advertisements: (active: Int, free: Int)?

    init(_ name: AdapterName, _ state: AdapterState, in tree: ObjectTree) {
        self.name = name.description
        self.state = state
        let adapter = tree[name.path, Interface.adapter] ?? [:]
        address = adapter["Address"]?.text ?? ""
        addressType = adapter["AddressType"]?.text ?? ""
        alias = adapter["Alias"]?.text ?? ""
        roles = adapter["Roles"]?.texts ?? []
        isPairable = adapter["Pairable"]?.bool ?? false
        let manager = tree[name.path, Interface.advertisingManager]
        let active = manager?["ActiveInstances"]?.integer
        let free = manager?["SupportedInstances"]?.integer
        advertisements = if let active, let free { (active, free) } else { nil }
    }
}
