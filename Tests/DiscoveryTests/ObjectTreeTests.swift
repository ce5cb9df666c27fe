import Testing

@testable import Discovery

@Suite("bluetoothd's objects")
struct ObjectTreeTests {
    let device = "/org/bluez/hci0/dev_00_11_22_33_44_55"
    let interfaces = BusValue.array(
        [
            .entry(
                .string("org.bluez.Device1"), .properties(["Connected": .bool(false)])),
            .entry(.string("org.freedesktop.DBus.Properties"), .properties([:])),
        ], of: "{sa{sv}}")

    @Test("are kept as the signals tell, by the interfaces that are used")
    func course() {
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

    @Test("are found below a path, and not beside it")
    func below() {
        var tree = ObjectTree()
        tree.add("/org/bluez/hci1/dev_A", interfaces)
        tree.add("/org/bluez/hci10/dev_A", interfaces)
        #expect(
            tree.paths(of: "org.bluez.Device1", below: "/org/bluez/hci1")
                == ["/org/bluez/hci1/dev_A"])
    }

    @Test("are bounded in number")
    func bounded() {
        var tree = ObjectTree()
        for number in 0..<10_000 { tree.add("/org/bluez/hci0/dev_\(number)", interfaces) }
        #expect(tree.paths(of: "org.bluez.Device1").count == ObjectTree.mostObjects)
    }

    @Test("are nothing where a value has another type than it should")
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

    @Test("values know how D-Bus writes their types")
    func signatures() {
        #expect(BusValue.properties(["A": .bytes([1])]).signature == "a{sv}")
        #expect(
            BusValue.structure([.byte(1), .entry(.path("/"), .strings([]))]).signature
                == "(y{oas})")
        #expect(BusValue.variant(.variant(.double(1))).signature == "v")
        #expect(BusValue.uint64(.max).integer == nil)
    }
}
