/// A signal of bluetoothd about one of its objects.
enum ObjectSignal {
    case added(String, BusValue)
    case removed(String, [String])
    case changed(
        String, interface: String, ObjectTree.Properties, invalidated: [String])

    /// Reads a message; nil if it is none of these signals.
    init?(_ message: BusMessage) {
        let body = message.body()
        switch (message.interface, message.member) {
        case ("org.freedesktop.DBus.ObjectManager", "InterfacesAdded"):
            guard body.count == 2, let path = body[0].text else { return nil }
            self = .added(path, body[1])
        case ("org.freedesktop.DBus.ObjectManager", "InterfacesRemoved"):
            guard body.count == 2, let path = body[0].text else { return nil }
            self = .removed(path, body[1].texts ?? [])
        case ("org.freedesktop.DBus.Properties", "PropertiesChanged"):
            guard body.count == 3, let interface = body[0].text else { return nil }
            self = .changed(
                message.path, interface: interface, body[1].properties ?? [:],
                invalidated: body[2].texts ?? [])
        default: return nil
        }
    }
}
