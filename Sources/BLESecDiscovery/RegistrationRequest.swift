/// What bluetoothd is asked to do on an adapter for as long as a registration lasts.
struct RegistrationRequest: Sendable {
    typealias Method = (name: String, arguments: [BusValue])

    let adapter: AdapterName
    /// The operation, for the sentence "cannot …".
    let doing: String
    /// The path of the object that bluetoothd is given; nil for a scan.
    let path: String?
    /// The interface of the adapter's object whose methods begin and end the request.
    let interface: String
    /// The method that sets the filter of a scan, before it begins.
    let filter: Method?
    let begin: Method
    let end: Method
    /// How often to restart a scan, if it must be.
    let interval: Duration?

    var isAdvertisement: Bool { interface == ObjectTree.Interface.advertisingManager }
    var isScan: Bool { path == nil }

    static func advertisement(_ path: String, on adapter: AdapterName) -> RegistrationRequest {
        .init(
            registering: "Advertisement", path, on: adapter, "advertise on \(adapter)",
            ObjectTree.Interface.advertisingManager)
    }

    static func application(_ path: String, on adapter: AdapterName) -> RegistrationRequest {
        .init(
            registering: "Application", path, on: adapter, "publish a GATT service on \(adapter)",
            ObjectTree.Interface.gattManager)
    }

    private init(
        registering object: String, _ path: String, on adapter: AdapterName, _ doing: String,
        _ interface: String
    ) {
        self.adapter = adapter
        self.doing = doing
        self.path = path
        self.interface = interface
        filter = nil
        begin = ("Register\(object)", [.path(path), .properties([:])])
        end = ("Unregister\(object)", [.path(path)])
        interval = nil
    }

    /// A scan, which is restarted after each interval, if there is one.
    init(scanningOn adapter: AdapterName, anewEvery interval: Duration?) {
        self.adapter = adapter
        self.interval = interval
        doing = "scan on \(adapter)"
        path = nil
        interface = ObjectTree.Interface.adapter
        let properties = ["Transport": BusValue.string("le"), "DuplicateData": .bool(true)]
        filter = ("SetDiscoveryFilter", [.properties(properties)])
        begin = ("StartDiscovery", [])
        end = ("StopDiscovery", [])
    }
}
