package import BLESecLinks

/// A Bluetooth controller of this machine.
package struct Adapter: Sendable, Hashable, CustomStringConvertible {
    /// The kernel's name for the adapter, such as `hci0`.
    package let name: String
    /// The adapter's public address.
    package let address: BluetoothAddress
    /// Whether the adapter is powered, which is necessary to dial and to be dialed.
    package let isUp: Bool

    /// All adapters, in the order of their numbers. Needs no privilege.
    ///
    /// - Throws: ``LinkError/Code/unavailable`` when the kernel has no Bluetooth.
    package static func all() throws(LinkError) -> [Adapter] {
        try L2CAPFailure.translate(HCI.adapters()) {
            L2CAPFailure.explain($0, cannot: "look for Bluetooth adapters")
        }
    }

    /// The powered adapter with that name or address.
    ///
    /// - Parameter nameOrAddress: `hci1` or `AA:BB:CC:DD:EE:FF`.
    /// - Throws: ``LinkError/Code/noSuchAdapter`` when there is no such adapter, or it is off. If no
    ///   adapter has that name or address, the reason lists the existing adapters.
    package static func named(_ nameOrAddress: String) throws(LinkError) -> Adapter {
        try choose(nameOrAddress, among: all())
    }

    /// The first adapter that is powered.
    ///
    /// - Throws: ``LinkError/Code/noSuchAdapter`` when no adapter is powered.
    package static func first() throws(LinkError) -> Adapter { try choose(nil, among: all()) }

    /// The first powered adapter with the name or address `wanted`, or the first powered one if
    /// `wanted` is nil.
    static func choose(_ wanted: String?, among adapters: [Adapter]) throws(LinkError) -> Adapter {
        let address = wanted.flatMap { BluetoothAddress($0) }
        let matches = adapters.filter {
            wanted == nil || $0.name == wanted || $0.address == address
        }
        if let adapter = matches.first(where: \.isUp) { return adapter }
        let reason =
            if let adapter = matches.first {
                "the Bluetooth adapter \(adapter.name) is off: `bluetoothctl power on` switches it on"
            } else if adapters.isEmpty {
                "this machine has no Bluetooth adapter, or its driver has not found it"
            } else {
                "there is no Bluetooth adapter \(wanted ?? ""), only "
                    + adapters.map(\.description).joined(separator: "; ")
            }
        throw LinkError(.noSuchAdapter, reason)
    }

    /// The kernel's number for the adapter, such as 0 for `hci0`.
    var number: UInt16 {
        get throws(LinkError) {
            guard let number = UInt16(name.dropFirst("hci".count)) else {
                throw LinkError(.noSuchAdapter, "\(name) is no adapter's name")
            }
            return number
        }
    }

    /// The form `hci0 (AA:BB:CC:DD:EE:FF)`, and `, off` after it when the adapter is off.
    package var description: String { "\(name) (\(address))\(isUp ? "" : ", off")" }
}
