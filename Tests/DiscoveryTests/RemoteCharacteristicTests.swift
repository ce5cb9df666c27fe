import BLESecL2CAP
import BLESecLinks
import Testing

@testable import BLESec
@testable import BLESecDiscovery

@Suite("Characteristics of other devices")
struct RemoteCharacteristicTests {
    static let device = "/org/bluez/hci0/dev_00_11_22_33_44_55"
    static let service = BluetoothUUID(high: 1, low: 2)

    /// bluetoothd's objects for a device with one service. The service has one characteristic for
    /// each element of `flags`. The element is the value of the characteristic's D-Bus property
    /// `Flags`, which lists its GATT properties; with nil, the characteristic has no `Flags`.
    static func tree(_ flags: [BusValue?]) -> ObjectTree {
        var tree = ObjectTree()
        func add(_ path: String, _ interface: String, _ properties: [String: BusValue]) {
            tree.add(
                path,
                .array([.entry(.string(interface), .properties(properties))], of: "{sa{sv}}"))
        }
        add(device, ObjectTree.Interface.device, ["Connected": .bool(true)])
        let path = device + "/service0010"
        add(path, ObjectTree.Interface.service, ["UUID": .string(service.description)])
        for (index, value) in flags.enumerated() {
            var properties: [String: BusValue] = [
                "UUID": .string(BluetoothUUID(high: 3, low: UInt64(index)).description)
            ]
            properties["Flags"] = value
            add("\(path)/char000\(index)", ObjectTree.Interface.characteristic, properties)
        }
        return tree
    }

    static func characteristics(_ flags: BusValue?...) throws -> [RemoteCharacteristic] {
        try #require(tree(flags).characteristics(of: service, below: device))
    }

    @Test(
        "a characteristic has exactly the listed properties, and a missing service is not found")
    func properties() throws {
        let found = try Self.characteristics(
            .strings(["read", "notify"]), .strings(["write-without-response", "x"]), .strings([]),
            nil, .string("read"))
        #expect(found.map(\.uuid) == (0..<5).map { BluetoothUUID(high: 3, low: $0) })
        #expect(RemoteCharacteristic.Property.allCases.filter(found[0].has) == [.read, .notify])
        #expect(
            RemoteCharacteristic.Property.allCases.filter(found[1].has) == [.writeWithoutResponse])
        for index in 2..<5 {
            #expect(!RemoteCharacteristic.Property.allCases.contains(where: found[index].has))
        }
        #expect(Self.tree([]).characteristics(of: Self.service, below: "/elsewhere") == nil)
        #expect(
            Self.tree([]).characteristics(of: BluetoothUUID(high: 9, low: 9), below: Self.device)
                == nil)
    }

    @Test("a call that needs a missing property throws an error that names the property")
    func missing() async throws {
        // Each characteristic has all properties except those that the call needs.
        func characteristic(
            without missing: RemoteCharacteristic.Property...
        ) throws -> RemoteCharacteristic {
            let others = RemoteCharacteristic.Property.allCases.filter { !missing.contains($0) }
            return try Self.characteristics(.strings(others.map(\.rawValue)))[0]
        }
        let loop = EventLoop(name: "test")
        // Each call must fail before it calls bluetoothd: otherwise the error would come from
        // bluetoothd, or say that bluetoothd does not run.
        let bluetoothd = await Bluetoothd.connect(loop: loop)
        let adapter = BluetoothAdapter(AdapterName("hci0"), of: bluetoothd)
        let device = adapter.device(DeviceAddress(.any, .random))
        await expectError(naming: "`read`") {
            _ = try await device.read(try characteristic(without: .read), until: loop.now)
        }
        await expectError(naming: "`write-without-response`") {
            try characteristic(without: .writeWithoutResponse)
                .require(oneOf: .writeWithoutResponse, to: "write")
        }
        await expectError(naming: "`notify` or `indicate`") {
            try await device.subscribe(
                to: try characteristic(without: .notify, .indicate), until: loop.now
            ) { _ in }
        }
        await bluetoothd.close()
        await loop.shutdown()
    }

    @Test("one of the properties notify and indicate is enough for a subscription")
    func subscription() throws {
        for flag in ["notify", "indicate"] {
            let found = try Self.characteristics(.strings([flag]))[0]
            try found.require(oneOf: .notify, .indicate, to: "subscribe")
            #expect(throws: DiscoveryError.self) { try found.require(oneOf: .read, to: "read") }
        }
    }

    @Test(
        "a channel error for a missing property has the code protocolViolation"
    )
    func channelError() throws {
        let found = try Self.characteristics(.strings(["notify"]))[0]
        let error = #expect(throws: DiscoveryError.self) {
            try found.require(oneOf: .read, to: "read it")
        }
        #expect(
            error?.reason == "cannot read it: it lacks the property `read`, and offers `notify`")
        #expect(ChannelError(discovery: try #require(error)).code == .protocolViolation)
    }

    @Test("the error for a missing service says so if services of the device were left out")
    func leftOut() throws {
        var tree = Self.tree([])
        #expect(tree.lackOfParts(of: Self.device, DeviceAddress(.any, .random)) == nil)
        for number in 0...ObjectTree.mostParts {
            tree.add(
                "\(Self.device)/service0010/char\(number)",
                .array(
                    [.entry(.string(ObjectTree.Interface.characteristic), .properties([:]))],
                    of: "{sa{sv}}"))
        }
        let error = try #require(tree.lackOfParts(of: Self.device, DeviceAddress(.any, .random)))
        #expect(error.code == .exhausted)
        #expect(
            error.reason.hasPrefix("cannot find out what 00:00:00:00:00:00 (random) offers: "),
            "\(error.reason)")
        #expect(ChannelError(discovery: error).code == .limitExceeded)
    }

    /// Expects that `body` throws an error that names the missing property.
    private func expectError(
        naming missing: String, _ body: () async throws -> Void,
        at location: SourceLocation = #_sourceLocation
    ) async {
        let error = await #expect(throws: DiscoveryError.self, sourceLocation: location) {
            try await body()
        }
        #expect(error?.code == .notSupported, sourceLocation: location)
        #expect(
            error?.reason.contains("it lacks the property \(missing), and offers ") == true,
            "\(error?.reason ?? "")", sourceLocation: location)
    }
}
