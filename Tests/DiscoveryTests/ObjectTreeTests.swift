import BLESecL2CAP
import Testing

@testable import BLESecDiscovery

@Suite("The objects of bluetoothd")
struct ObjectTreeTests {
    let device = "/org/bluez/hci0/dev_00_11_22_33_44_55"
    /// The interfaces of a device's object, as bluetoothd reports them.
    let interfaces = BusValue.array(
        [
            .entry(.string("org.bluez.Device1"), .properties(["Connected": .bool(false)])),
            .entry(.string("org.freedesktop.DBus.Properties"), .properties([:])),
        ], of: "{sa{sv}}")

    @Test(
        "signals add, change and remove objects; interfaces that this package does not use are ignored"
    )
    func signals() {
        var tree = ObjectTree()
        tree.add(device, interfaces)
        #expect(tree[device, "org.bluez.Device1"]?["Connected"]?.bool == false)
        #expect(tree[device, "org.freedesktop.DBus.Properties"] == nil)
        tree.change(
            device, "org.bluez.Device1", ["Connected": .bool(true), "RSSI": .int16(-40)],
            invalidated: [])
        #expect(tree[device, "org.bluez.Device1"]?["RSSI"]?.integer == -40)
        tree.change(device, "org.bluez.Device1", [:], invalidated: ["RSSI"])
        #expect(tree[device, "org.bluez.Device1"] == ["Connected": .bool(true)])
        tree.remove(device, ["org.bluez.Device1"])
        #expect(tree.paths(of: "org.bluez.Device1") == [])
    }

    @Test("a search below hci1 does not find the objects of hci10")
    func below() {
        var tree = ObjectTree()
        tree.add("/org/bluez/hci1/dev_A", interfaces)
        tree.add("/org/bluez/hci10/dev_A", interfaces)
        #expect(
            tree.paths(of: "org.bluez.Device1", below: "/org/bluez/hci1")
                == ["/org/bluez/hci1/dev_A"])
    }

    @Test("an object is found by the address that its device has now, whatever its path is")
    func resolvedAddress() throws {
        var tree = ObjectTree()
        let adapter = AdapterName("hci0")
        let old = DeviceAddress(try #require(BluetoothAddress("4A:11:22:33:44:55")), .random)
        let new = DeviceAddress(try #require(BluetoothAddress("AC:DE:48:00:00:01")), .public)
        let path = "/org/bluez/hci0/dev_4A_11_22_33_44_55"
        tree.add(
            path,
            Self.device([
                "Address": .string("4A:11:22:33:44:55"), "AddressType": .string("random"),
            ]))
        #expect(tree.path(of: old, on: adapter) == path)
        #expect(tree.path(of: new, on: adapter) == nil)
        tree.change(
            path, "org.bluez.Device1",
            ["Address": .string("AC:DE:48:00:00:01"), "AddressType": .string("public")],
            invalidated: [])
        #expect(tree.path(of: old, on: adapter) == nil)
        #expect(tree.path(of: new, on: adapter) == path)
        #expect(tree.path(of: new, on: AdapterName("hci1")) == nil)
    }

    @Test("of a long list of services, only the first ones and those that are sought are kept")
    func longLists() {
        var tree = ObjectTree()
        let soughtService = BluetoothUUID(high: 9, low: 9)
        let otherServices = (0..<1_000).map { BluetoothUUID(high: 1, low: $0) }
        let list = BusValue.strings((otherServices + [soughtService]).map(\.description))
        let firstServices = Array(otherServices.prefix(ObjectTree.mostListedServices))
        tree.add(device, Self.device(["UUIDs": list]))
        #expect(tree.services(of: device) == firstServices)
        #expect(
            tree.seek([soughtService]) == true,
            "the service may be among those that were cut off")
        #expect(tree.seek([soughtService]) == false, "the service was sought before")
        tree.change(device, "org.bluez.Device1", ["UUIDs": list], invalidated: [])
        #expect(tree.services(of: device) == firstServices + [soughtService])
        tree.change(device, "org.bluez.Device1", ["RSSI": .int16(-40)], invalidated: [])
        #expect(tree.services(of: device) == firstServices + [soughtService])
        tree.change(device, "org.bluez.Device1", [:], invalidated: ["UUIDs"])
        #expect(tree.services(of: device) == [])
    }

    @Test(
        "a device that is connected, paired or of a sought service is not replaced while there are other devices"
    )
    func replacement() {
        var tree = ObjectTree()
        let service = BluetoothUUID(high: 9, low: 9)
        _ = tree.seek([service])
        func add(_ name: String, _ properties: [String: BusValue] = [:]) {
            tree.add("/org/bluez/hci0/dev_\(name)", Self.device(properties))
        }
        for number in 0..<ObjectTree.mostObjects { add("\(number)") }
        let neededDevices: [String: [String: BusValue]] = [
            "connected": ["Connected": .bool(true)], "paired": ["Paired": .bool(true)],
            "bonded": ["Bonded": .bool(true)],
            "listed": ["UUIDs": .strings([service.description])],
            "data": ["ServiceData": .properties([service.description: .bytes([1])])],
        ]
        for (name, properties) in neededDevices { add(name, properties) }
        // Each further device replaces a random one. A device that may be replaced survives all
        // these additions once in 20,000 runs.
        for number in 0..<10 * ObjectTree.mostObjects { add("later_\(number)") }
        #expect(tree.paths(of: "org.bluez.Device1").count == ObjectTree.mostObjects)
        for name in neededDevices.keys {
            #expect(tree["/org/bluez/hci0/dev_\(name)", "org.bluez.Device1"] != nil, "\(name)")
        }
    }

    @Test(
        "if all devices are of a sought service, a further device replaces one heard long ago"
    )
    func advertisers() {
        var tree = ObjectTree()
        let service = BluetoothUUID(high: 9, low: 9)
        _ = tree.seek([service])
        let ofService = Self.device(["UUIDs": .strings([service.description])])
        for number in 0..<ObjectTree.mostObjects {
            tree.add("/org/bluez/hci0/dev_\(number)", ofService)
        }
        tree.add(device, ofService)
        // If devices were replaced without regard to when they were heard, `device` would survive
        // all these additions once in 150 runs.
        for number in 0..<5 * ObjectTree.mostObjects {
            tree.change(device, "org.bluez.Device1", ["RSSI": .int16(-40)], invalidated: [])
            tree.add("/org/bluez/hci0/dev_later_\(number)", ofService)
        }
        #expect(tree[device, "org.bluez.Device1"] != nil)
        #expect(tree.paths(of: "org.bluez.Device1").count == ObjectTree.mostObjects)
        // A device that does not advertise the service replaces none of them.
        tree.add("/org/bluez/hci0/dev_other", interfaces)
        #expect(tree["/org/bluez/hci0/dev_other", "org.bluez.Device1"] == nil)
    }

    @Test("a paired device with the same address on the same adapter is a paired twin")
    func pairedTwin() {
        let address = BusValue.string("AC:DE:48:00:00:01")
        func hasTwin(_ path: String, _ properties: [String: BusValue]) -> Bool {
            var tree = ObjectTree()
            tree.add(
                device, Self.device(["Address": address, "Paired": .bool(true)]))
            tree.add(path, Self.device(properties))
            return tree.hasPairedTwin(device)
        }
        let other = "/org/bluez/hci0/dev_other"
        #expect(hasTwin(other, ["Address": address, "Paired": .bool(true)]))
        #expect(hasTwin(other, ["Address": address, "Bonded": .bool(true)]))
        #expect(!hasTwin(other, ["Address": address, "Paired": .bool(false)]))
        #expect(!hasTwin(other, ["Paired": .bool(true)]))
        #expect(
            !hasTwin(
                "/org/bluez/hci1/dev_other", ["Address": address, "Paired": .bool(true)]))
        #expect(!ObjectTree().hasPairedTwin(device))
    }

    @Test("the tree notices that it lacks a connected device; once added, this device stays")
    func replacedDevice() {
        var tree = ObjectTree()
        func flood(_ name: String) {
            for number in 0..<ObjectTree.mostObjects {
                tree.add("/org/bluez/hci0/dev_\(name)_\(number)", interfaces)
            }
        }
        let connected: ObjectTree.Properties = ["Connected": .bool(true)]
        tree.add(device, interfaces)
        #expect(!tree.lacksConnectedDevice(device, "org.bluez.Device1", connected))
        // Each further device replaces a random one.
        for round in 0..<1_000 where tree[device, "org.bluez.Device1"] != nil { flood("\(round)") }
        #expect(tree.lacksConnectedDevice(device, "org.bluez.Device1", connected))
        for change: ObjectTree.Properties in [["Connected": .bool(false)], ["RSSI": .int16(-40)]] {
            #expect(!tree.lacksConnectedDevice(device, "org.bluez.Device1", change))
        }
        #expect(!tree.lacksConnectedDevice(device, "org.bluez.Adapter1", connected))
        let heard: ObjectTree.Properties = ["RSSI": .int16(-40)]
        #expect(tree.lacksHeardDevice(device, "org.bluez.Device1", heard))
        #expect(!tree.lacksHeardDevice(device, "org.bluez.Device1", ["Connected": .bool(false)]))
        #expect(!tree.lacksHeardDevice(device, "org.bluez.Adapter1", heard))
        tree.add(device, Self.device(connected))
        for round in 0..<10 { flood("later_\(round)") }
        #expect(tree.isConnected(device))
        #expect(!tree.lacksConnectedDevice(device, "org.bluez.Device1", connected))
        #expect(!tree.lacksHeardDevice(device, "org.bluez.Device1", heard))
    }

    @Test(
        "devices have a limit; services and characteristics have limits of their own, in total and per device"
    )
    func bounded() {
        var tree = ObjectTree()
        for number in 0..<10_000 { tree.add("/org/bluez/hci0/dev_\(number)", interfaces) }
        #expect(tree.paths(of: "org.bluez.Device1").count == ObjectTree.mostObjects)
        // Devices at their limit do not keep out an adapter, or the services of a connected device.
        tree.add("/org/bluez/hci1", Self.object("org.bluez.Adapter1"))
        func characteristics(of device: Int) -> Int {
            tree.paths(
                of: "org.bluez.GattCharacteristic1", below: "/org/bluez/hci0/dev_\(device)"
            ).count
        }
        for device in 0..<20 {
            let service = "/org/bluez/hci0/dev_\(device)/service0001"
            for number in 0..<1_000 {
                tree.add("\(service)/char\(number)", Self.object("org.bluez.GattCharacteristic1"))
            }
        }
        #expect(tree.paths(of: "org.bluez.Adapter1") == ["/org/bluez/hci1"])
        #expect(characteristics(of: 0) == ObjectTree.mostParts)
        #expect(
            tree.paths(of: "org.bluez.GattCharacteristic1").count == ObjectTree.mostObjects)
        // A device's room is free again when its characteristics have gone.
        for path in tree.paths(of: "org.bluez.GattCharacteristic1") {
            tree.remove(path, ["org.bluez.GattCharacteristic1"])
        }
        tree.add(
            "/org/bluez/hci0/dev_0/service0002", Self.object("org.bluez.GattCharacteristic1"))
        #expect(characteristics(of: 0) == 1)
    }

    private static func object(
        _ interface: String, _ properties: [String: BusValue] = [:]
    ) -> BusValue {
        .array([.entry(.string(interface), .properties(properties))], of: "{sa{sv}}")
    }

    private static func device(_ properties: [String: BusValue]) -> BusValue {
        object("org.bluez.Device1", properties)
    }

    @Test("after devices were left out, a new listing is wanted as soon as there is room")
    func leftOutDevices() {
        var tree = ObjectTree()
        // No device replaces one that is connected.
        let interfaces = Self.device(["Connected": .bool(true)])
        let paths = (0...ObjectTree.mostObjects).map { "/org/bluez/hci0/dev_\($0)" }
        for path in paths.dropLast() { tree.add(path, interfaces) }
        tree.add(paths[0], interfaces)
        tree.remove(paths[0], ["org.bluez.Device1"])
        #expect(!tree.wantsListing, "no device was left out")
        tree.add(paths[0], interfaces)
        tree.add(paths[ObjectTree.mostObjects], interfaces)
        #expect(!tree.wantsListing, "all of the room is taken")
        tree.remove(paths[0], ["org.bluez.Device1"])
        #expect(tree.wantsListing, "there is room for the device that was left out")
        tree.replace(with: Self.listing([ListedObject(paths[1], interfaces)]))
        #expect(!tree.wantsListing, "there was room for all devices of the listing")
    }

    /// An object of bluetoothd with its interfaces.
    private struct ListedObject {
        let path: String
        let interfaces: BusValue

        init(_ path: String, _ interfaces: BusValue) {
            self.path = path
            self.interfaces = interfaces
        }
    }

    /// The result of `GetManagedObjects`.
    private static func listing(_ objects: [ListedObject]) -> BusValue {
        .array(objects.map { .entry(.path($0.path), $0.interfaces) }, of: "{oa{sa{sv}}}")
    }

    /// How many devices with ``ObjectTree/mostParts`` characteristics take all the room.
    private static let capacity = ObjectTree.mostObjects / ObjectTree.mostParts

    private static func devicePath(_ number: Int) -> String { "/org/bluez/hci0/dev_\(number)" }

    /// The objects of a device with ``ObjectTree/mostParts`` characteristics, the device last.
    private static func fullDevice(
        _ number: Int, isConnected: Bool = false
    ) -> [ListedObject] {
        let path = devicePath(number)
        let characteristic = object("org.bluez.GattCharacteristic1")
        return (0..<ObjectTree.mostParts).map {
            ListedObject("\(path)/service0001/char\($0)", characteristic)
        } + [ListedObject(path, device(["Connected": .bool(isConnected)]))]
    }

    /// Adds the objects of a device, the device first.
    private static func add(_ objects: [ListedObject], to tree: inout ObjectTree) {
        for object in objects.reversed() { tree.add(object.path, object.interfaces) }
    }

    /// The number of characteristics of a device that `tree` has.
    private static func characteristics(of number: Int, in tree: ObjectTree) -> Int {
        tree.paths(of: "org.bluez.GattCharacteristic1", below: devicePath(number)).count
    }

    @Test(
        "the services and characteristics of a connected device replace those of a device that is not connected"
    )
    func replacedParts() {
        var tree = ObjectTree()
        for number in 0...Self.capacity { Self.add(Self.fullDevice(number), to: &tree) }
        let last = Self.devicePath(Self.capacity)
        #expect(Self.characteristics(of: Self.capacity, in: tree) == 0, "others take all the room")
        #expect(tree.lacksParts(of: last))
        #expect(!tree.wantsListing, "the device is not connected")
        let connected = Self.devicePath(Self.capacity + 1)
        Self.add(Self.fullDevice(Self.capacity + 1, isConnected: true), to: &tree)
        #expect(Self.characteristics(of: Self.capacity + 1, in: tree) == ObjectTree.mostParts)
        #expect(!tree.lacksParts(of: connected))
        let replaced = (0..<Self.capacity).filter { Self.characteristics(of: $0, in: tree) == 0 }
        #expect(replaced.count == 1)
        #expect(replaced.allSatisfy { tree.lacksParts(of: Self.devicePath($0)) })
        #expect(
            tree.paths(of: "org.bluez.GattCharacteristic1").count == ObjectTree.mostObjects)
        // With this service the device has one part too many. A new listing would not change that.
        tree.add(connected + "/service0002", Self.object("org.bluez.GattService1"))
        #expect(tree.lacksParts(of: connected))
        #expect(!tree.wantsListing)
        tree.change(last, "org.bluez.Device1", ["Connected": .bool(true)], invalidated: [])
        #expect(tree.wantsParts(of: last))
        #expect(tree.wantsListing)
    }

    @Test("a listing keeps the characteristics of a connected device, whatever the order is")
    func listedParts() {
        for position in [0, Self.capacity] {
            var devices = (0..<Self.capacity).map { Self.fullDevice($0) }
            devices.insert(Self.fullDevice(Self.capacity, isConnected: true), at: position)
            var tree = ObjectTree()
            tree.replace(with: Self.listing(devices.flatMap { $0 }))
            #expect(Self.characteristics(of: Self.capacity, in: tree) == ObjectTree.mostParts)
            #expect(!tree.wantsListing)
        }
    }

    @Test("if all devices are connected, the tree notices whose characteristics were left out")
    func connectedDevices() {
        var tree = ObjectTree()
        for number in 0...Self.capacity {
            Self.add(Self.fullDevice(number, isConnected: true), to: &tree)
        }
        let last = Self.devicePath(Self.capacity)
        #expect(tree.lacksParts(of: last))
        #expect(!tree.wantsListing)
        tree.change(
            Self.devicePath(0), "org.bluez.Device1", ["Connected": .bool(false)], invalidated: [])
        #expect(tree.wantsListing, "the characteristics of the first device can be replaced")
        tree.remove(last, ["org.bluez.Device1"])
        #expect(!tree.wantsListing)
    }

    @Test("values of a wrong type, and changes of an unknown object, are ignored")
    func wrongTypes() {
        var tree = ObjectTree()
        tree.replace(with: nil)
        tree.replace(with: .string("?"))
        tree.replace(with: .array([.entry(.byte(1), .byte(2)), .byte(3)], of: "{yy}"))
        tree.add(device, .uint32(7))
        tree.add(device, .array([.entry(.string("org.bluez.Device1"), .bool(true))], of: "{sb}"))
        #expect(tree[device, "org.bluez.Device1"] == [:])
        tree.change("/nowhere", "org.bluez.Device1", ["A": .bool(true)], invalidated: ["B"])
        #expect(tree["/nowhere", "org.bluez.Device1"] == nil)
    }

    @Test("values have their D-Bus type signatures, and a number above Int.max is no integer")
    func signatures() {
        #expect(BusValue.properties(["A": .bytes([1])]).signature == "a{sv}")
        #expect(
            BusValue.structure([.byte(1), .entry(.path("/"), .strings([]))]).signature
                == "(y{oas})")
        #expect(BusValue.variant(.variant(.double(1))).signature == "v")
        #expect(BusValue.uint64(.max).integer == nil)
    }
}
