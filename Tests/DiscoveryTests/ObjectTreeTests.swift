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

    @Test("devices have a limit, and services and characteristics have a limit of their own")
    func bounded() {
        var tree = ObjectTree()
        for number in 0..<10_000 { tree.add("/org/bluez/hci0/dev_\(number)", interfaces) }
        #expect(tree.paths(of: "org.bluez.Device1").count == ObjectTree.mostObjects)
        // Devices at their limit do not keep out an adapter, or the services of a connected device.
        tree.add("/org/bluez/hci1", Self.object("org.bluez.Adapter1"))
        let service = "/org/bluez/hci0/dev_7/service0001"
        for number in 0..<10_000 {
            tree.add("\(service)/char\(number)", Self.object("org.bluez.GattCharacteristic1"))
        }
        #expect(tree.paths(of: "org.bluez.Adapter1") == ["/org/bluez/hci1"])
        #expect(
            tree.paths(of: "org.bluez.GattCharacteristic1", below: service).count
                == ObjectTree.mostObjects)
    }

    private static func object(_ interface: String) -> BusValue {
        .array([.entry(.string(interface), .properties([:]))], of: "{sa{sv}}")
    }

    /// Expects that `tree` requests a new listing of the objects, or that it does not. Uses a copy,
    /// because `takeListingRequest` clears the request.
    private func expectRequest(_ expected: Bool, of tree: ObjectTree, _ reason: Comment) {
        var copy = tree
        let isRequested = copy.takeListingRequest()
        #expect(isRequested == expected, reason)
    }

    @Test(
        "after objects were left out, one new listing is requested when over half the room is free")
    func listingRequest() {
        var tree = ObjectTree()
        let paths = (0...ObjectTree.mostObjects).map { "/org/bluez/hci0/dev_\($0)" }
        for path in paths.dropLast() { tree.add(path, interfaces) }
        tree.add(paths[0], interfaces)
        for path in paths { tree.remove(path, ["org.bluez.Device1"]) }
        expectRequest(false, of: tree, "no object was left out")
        for path in paths { tree.add(path, interfaces) }
        expectRequest(false, of: tree, "all of the room is taken")
        for path in paths.prefix(ObjectTree.mostObjects / 2) {
            tree.remove(path, ["org.bluez.Device1"])
        }
        expectRequest(false, of: tree, "half of the room is taken")
        tree.remove(paths[ObjectTree.mostObjects / 2], ["org.bluez.Device1"])
        expectRequest(true, of: tree, "over half of the room is free")
        _ = tree.takeListingRequest()
        expectRequest(false, of: tree, "the listing was requested already")
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
