/// What bluetoothd is asked to do on an adapter for as long as a registration lasts.
struct RegistrationRequest: Sendable {
    enum Kind: Sendable {
        case advertisement(path: String)
        case application(path: String)
        case scan(anewEvery: Duration?)
    }

    let kind: Kind
    let adapter: AdapterName

    init(_ kind: Kind, on adapter: AdapterName) {
        self.kind = kind
        self.adapter = adapter
    }

    /// The operation, for the sentence "cannot …".
    var doing: String {
        switch kind {
        case .advertisement: "advertise on \(adapter)"
        case .application: "publish a GATT service on \(adapter)"
        case .scan: "scan on \(adapter)"
        }
    }

    /// The path of the object that bluetoothd was given.
    var path: String? {
        switch kind {
        case .advertisement(let path), .application(let path): path
        case .scan: nil
        }
    }

    var isAdvertisement: Bool { if case .advertisement = kind { true } else { false } }
    var isScan: Bool { if case .scan = kind { true } else { false } }

    /// A method of the adapter's object.
    struct Method {
        let interface: String
        let name: String
        var arguments: [BusValue] = []
    }

    /// The methods that begin the request, one after another.
    var begin: [Method] {
        switch kind {
        case .advertisement(let path):
            [
                Method(
                    interface: ObjectTree.Interface.advertisingManager,
                    name: "RegisterAdvertisement", arguments: [.path(path), .properties([:])])
            ]
        case .application(let path):
            [
                Method(
                    interface: ObjectTree.Interface.gattManager, name: "RegisterApplication",
                    arguments: [.path(path), .properties([:])])
            ]
        case .scan:
            [
                Method(
                    interface: ObjectTree.Interface.adapter, name: "SetDiscoveryFilter",
                    arguments: [
                        .properties(["Transport": .string("le"), "DuplicateData": .bool(true)])
                    ]),
                Method(interface: ObjectTree.Interface.adapter, name: "StartDiscovery"),
            ]
        }
    }

    /// The method that ends the request.
    var end: Method {
        switch kind {
        case .advertisement(let path):
            Method(
                interface: ObjectTree.Interface.advertisingManager,
                name: "UnregisterAdvertisement", arguments: [.path(path)])
        case .application(let path):
            Method(
                interface: ObjectTree.Interface.gattManager, name: "UnregisterApplication",
                arguments: [.path(path)])
        case .scan: Method(interface: ObjectTree.Interface.adapter, name: "StopDiscovery")
        }
    }
}
