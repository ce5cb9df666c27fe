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
    var isScan: Bool { path == nil }

    /// The interface of the adapter's object whose methods begin and end the request.
    var interface: String {
        switch kind {
        case .advertisement: ObjectTree.Interface.advertisingManager
        case .application: ObjectTree.Interface.gattManager
        case .scan: ObjectTree.Interface.adapter
        }
    }

    /// The methods that begin the request, one after another.
    var begin: [(name: String, arguments: [BusValue])] {
        switch kind {
        case .advertisement(let path):
            [("RegisterAdvertisement", [.path(path), .properties([:])])]
        case .application(let path):
            [("RegisterApplication", [.path(path), .properties([:])])]
        case .scan:
            [
                (
                    "SetDiscoveryFilter",
                    [.properties(["Transport": .string("le"), "DuplicateData": .bool(true)])]
                ), ("StartDiscovery", []),
            ]
        }
    }

    /// The method that ends the request.
    var end: (name: String, arguments: [BusValue]) {
        switch kind {
        case .advertisement(let path): ("UnregisterAdvertisement", [.path(path)])
        case .application(let path): ("UnregisterApplication", [.path(path)])
        case .scan: ("StopDiscovery", [])
        }
    }
}
