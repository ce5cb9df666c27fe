import Testing

@testable import BLESecL2CAP

@Suite struct BluetoothAddressTests {
    @Test("an address is parsed in upper and lower case, and printed in upper case")
    func parses() {
        #expect(BluetoothAddress("aa:BB:0c:Dd:ee:0F")?.description == "AA:BB:0C:DD:EE:0F")
        #expect(BluetoothAddress("00:00:00:00:00:00") == .any)
        #expect(
            BluetoothAddress("AA:BB:CC:DD:EE:FF")?.bytes == [0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF])
    }

    @Test(
        "an invalid address is refused",
        arguments: [
            "", "AA:BB:CC:DD:EE", "AA:BB:CC:DD:EE:FF:00", "AA-BB-CC-DD-EE-FF", "AA:BB:CC:DD:EE:FG",
            "AABBCCDDEEFF", "AA:BB:CC:DD:EE:F", " A:BB:CC:DD:EE:FF", "AA:BB:CC:DD:EE:FF ",
            "AA:BB:CC:DD:EE:F\u{301}F", "+A:BB:CC:DD:EE:FF",
        ])
    func refuses(_ text: String) {
        #expect(BluetoothAddress(text) == nil)
    }

    @Test("an address has six bytes")
    func sixBytes() {
        #expect(BluetoothAddress(bytes: [1, 2, 3, 4, 5]) == nil)
        #expect(BluetoothAddress(bytes: [1, 2, 3, 4, 5, 6, 7]) == nil)
        #expect(BluetoothAddress(bytes: [1, 2, 3, 4, 5, 6])?.description == "01:02:03:04:05:06")
    }
}
