/// What there is to know about an adapter before one relies on it.
package struct AdapterInspection: Sendable {
    package let name: String
    package let address: String
    /// Whether it shows the address that was burned in: `public` or `random`.
    package let addressType: String
    /// What it calls itself to whoever asks.
    package let alias: String
    package let state: AdapterState
    /// What it can be: `central`, `peripheral`, both.
    package let roles: [String]
    /// How many advertisements it holds, and how many more it would; nil where it does not tell.
    package let advertisements: (active: Int, free: Int)?
}

extension Bluetoothd {
    /// Looks at every adapter.
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

    /// The process that is bluetoothd; nil when it does not run, or the bus does not tell.
    package var processNumber: Int? {
        get async {
            guard let owner else { return nil }
            let ask = Bus.Call.toBus("GetConnectionUnixProcessID", [.string(owner)])
            let result = await bus?.call(ask, timeout: Self.callTimeout, isolation: self)
            return try? result?.get().first?.integer
        }
    }
}
