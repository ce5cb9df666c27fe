/// The properties of an adapter that a program may check before it uses the adapter.
package struct AdapterInspection: Sendable {
    package let name: String
    package let address: String
    /// The kind of its address: `public`, which is fixed in the hardware, or `random`.
    package let addressType: String
    /// The name that it gives to other devices.
    package let alias: String
    package let state: AdapterState
    /// Its roles: `central`, `peripheral`, or both.
    package let roles: [String]
    /// How many advertisements are active, and how many more it can hold; nil where it does not
    /// report that.
    package let advertisements: (active: Int, free: Int)?
}

extension Bluetoothd {
    /// Every adapter with its properties.
    package var inspection: [AdapterInspection] {
        adapters.map { name in
            let path = Self.path(of: name)
            let adapter = tree[path, ObjectTree.Interface.adapter] ?? [:]
            let manager = tree[path, ObjectTree.Interface.advertisingManager]
            let counts = manager.flatMap { manager -> (Int, Int)? in
                guard let active = manager["ActiveInstances"]?.integer,
                    let free = manager["SupportedInstances"]?.integer
                else { return nil }
                return (active, free)
            }
            return AdapterInspection(
                name: name, address: adapter["Address"]?.text ?? "",
                addressType: adapter["AddressType"]?.text ?? "",
                alias: adapter["Alias"]?.text ?? "", state: adapterState(name),
                roles: adapter["Roles"]?.texts ?? [], advertisements: counts)
        }
    }

    /// Whether bluetoothd runs.
    package var isRunning: Bool { owner != nil }

    /// The process number of bluetoothd; nil when it does not run, or the bus does not report it.
    package var processNumber: Int? {
        get async {
            guard let owner else { return nil }
            let ask = Bus.Call.toBus("GetConnectionUnixProcessID", [.string(owner)])
            let result = await bus?.call(ask, timeout: Self.callTimeout, isolation: self)
            return try? result?.get().first?.integer
        }
    }
}
