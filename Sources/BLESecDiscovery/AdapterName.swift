/// The name of an adapter, such as `hci0`, which is also the last part of its D-Bus object path.
package struct AdapterName: Sendable, Hashable, CustomStringConvertible {
    package let description: String
    init(_ name: String) { description = name }

    /// The adapter that an object path belongs to: `hci0` for `/org/bluez/hci0` and for the paths
    /// below it.
    init?(of path: String) {
        let parts = path.split(separator: "/")
        guard parts.count >= 3 else { return nil }
        description = String(parts[2])
    }

    var path: String { "/org/bluez/" + description }
}
