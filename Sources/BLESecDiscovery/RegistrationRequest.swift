/// What bluetoothd is asked to do on an adapter for as long as a registration lasts.
struct RegistrationRequest: Sendable {
    typealias Method = (name: String, arguments: [BusValue])

    let adapter: AdapterName
    /// The words that complete the sentence "cannot …" in an error's reason.
    let action: String
    /// The path of the object to register with bluetoothd; nil for a scan.
    var path: String?
    /// The interface that has the methods below; the adapter's object implements it.
    let interface: String
    /// The method that sets the filter of a scan, before the scan begins.
    var filter: Method?
    let begin: Method
    let end: Method
    /// How often this process restarts a scan; nil leaves restarts to bluetoothd.
    var interval: Duration?

    var isAdvertisement: Bool { interface == Interface.advertisingManager }
    var isScan: Bool { path == nil }

    static func advertisement(_ path: String, on adapter: AdapterName) -> Self {
        registering("Advertisement", path, Interface.advertisingManager, on: adapter, "advertise")
    }

    static func application(_ path: String, on adapter: AdapterName) -> Self {
        registering(
            "Application", path, Interface.gattManager, on: adapter, "publish a GATT service")
    }

    private static func registering(
        _ kind: String, _ path: String, _ interface: String, on adapter: AdapterName,
        _ action: String
    ) -> Self {
        Self(
            adapter: adapter, action: "\(action) on \(adapter)", path: path, interface: interface,
            begin: ("Register\(kind)", [.path(path), .properties([:])]),
            end: ("Unregister\(kind)", [.path(path)]))
    }

    static func scan(on adapter: AdapterName, anewEvery interval: Duration?) -> Self {
        let filter: [String: BusValue] = ["Transport": .string("le"), "DuplicateData": .bool(true)]
        return Self(
            adapter: adapter, action: "scan on \(adapter)", interface: Interface.adapter,
            filter: ("SetDiscoveryFilter", [.properties(filter)]), begin: ("StartDiscovery", []),
            end: ("StopDiscovery", []), interval: interval)
    }
}
