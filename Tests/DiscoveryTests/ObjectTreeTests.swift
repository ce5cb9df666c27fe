import Testing

@testable import BLESecDiscovery

@Suite("The objects of bluetoothd")
struct ObjectTreeTests {
    let device = "/org/bluez/hci0/dev_00_11_22_33_44_55"
    let interfaces = BusValue.array(
        [
            .entry(.string("org.bluez.Device1"), .properties(["Connected": .bool(false)])),
            .entry(.string("org.freedesktop.DBus.Properties"), .properties([:])),
        ], of: "{sa{sv}}")

    @Test(
        "signals add, change and remove objects; only interfaces that this package uses are kept"
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

    @Test("objects are found below a path, and not beside it")
    func below() {
        var tree = ObjectTree()
        tree.add("/org/bluez/hci1/dev_A", interfaces)
        tree.add("/org/bluez/hci10/dev_A", interfaces)
        #expect(
            tree.paths(of: "org.bluez.Device1", below: "/org/bluez/hci1")
                == ["/org/bluez/hci1/dev_A"])
    }

    @Test("the number of objects is bounded")
    func bounded() {
        var tree = ObjectTree()
        for number in 0..<10_000 { tree.add("/org/bluez/hci0/dev_\(number)", interfaces) }
        #expect(tree.paths(of: "org.bluez.Device1").count == ObjectTree.mostObjects)
        // Many devices do not keep out an adapter, or the services of a connected device.
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

    /// Expects that a new listing of the objects is requested, or not.
    private func expect(_ isRequested: Bool, _ tree: ObjectTree, _ reason: Comment) {
        var copy = tree
        let found = copy.takeGap()
        #expect(found == isRequested, reason)
    }

    @Test("a new listing is requested once objects were left out and over half of the room is free")
    func listingRequest() {
        var tree = ObjectTree()
        let paths = (0...ObjectTree.mostObjects).map { "/org/bluez/hci0/dev_\($0)" }
        for path in paths.dropLast() { tree.add(path, interfaces) }
        tree.add(paths[0], interfaces)
        for path in paths { tree.remove(path, ["org.bluez.Device1"]) }
        expect(false, tree, "none was left out")
        for path in paths { tree.add(path, interfaces) }
        expect(false, tree, "there is no room")
        for path in paths.prefix(ObjectTree.mostObjects / 2) {
            tree.remove(path, ["org.bluez.Device1"])
        }
        expect(false, tree, "half of the room is taken")
        tree.remove(paths[ObjectTree.mostObjects / 2], ["org.bluez.Device1"])
        expect(true, tree, "there is room again")
        _ = tree.takeGap()
        expect(false, tree, "only once")
    }

    @Test("values of a wrong type are ignored")
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

    @Test("values have their D-Bus type signatures")
    func signatures() {
        #expect(BusValue.properties(["A": .bytes([1])]).signature == "a{sv}")
        #expect(
            BusValue.structure([.byte(1), .entry(.path("/"), .strings([]))]).signature
                == "(y{oas})")
        #expect(BusValue.variant(.variant(.double(1))).signature == "v")
        #expect(BusValue.uint64(.max).integer == nil)
    }
}
