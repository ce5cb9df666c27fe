import BLESecLinks
import Testing

@testable import BLESecL2CAP

@Suite struct L2CAPAddressTests {
    @Test(
        "a PSM is parsed in decimal and hexadecimal",
        arguments: [
            ("0x80", 0x80), ("128", 0x80), ("0XfF", 0xFF), ("1", 1), ("0x0025", 0x25),
        ])
    func parsesPSM(_ text: String, _ number: UInt16) throws {
        #expect(try PSM(parsing: text).rawValue == number)
    }

    @Test(
        "an invalid LE PSM is refused",
        arguments: [
            "0", "0x0", "0x100", "256", "65536", "-1", "+1", "", "0x", "0x8G", "eighty", "0x 80",
            "99999999999999999999", "١٢٨",
        ])
    func refusesPSM(_ text: String) {
        let error = #expect(throws: LinkError.self) { try PSM(parsing: text) }
        #expect(error?.code == .invalidPSM)
    }

    @Test("a PSM above 0xFF is refused with the reason")
    func aboveLimit() {
        let error = #expect(throws: LinkError.self) { try PSM(0x100) }
        #expect(error?.reason.contains("0x100") == true)
        #expect(error?.reason.contains("end at 0xFF") == true)
    }

    @Test("a PSM prints with two hexadecimal digits, and knows whether it is dynamic")
    func printsPSM() throws {
        #expect(try PSM(0x80).description == "0x80")
        #expect(try PSM(5).description == "0x05")
        #expect(try PSM(0x80).isDynamic)
        #expect(try !PSM(0x7F).isDynamic)
    }

    @Test("an endpoint that was printed can be parsed again")
    func roundTrip() throws {
        let address = try L2CAPAddress(parsing: "01:02:03:AA:BB:CC/0x81", type: .random)
        #expect(address.description == "l2cap:01:02:03:AA:BB:CC/0x81")
        #expect(
            try L2CAPAddress(parsing: address.description.dropFirst(6), type: .random) == address)
    }

    @Test(
        "an endpoint without a PSM, or with a bad part, is refused",
        arguments: [
            "AA:BB:CC:DD:EE:FF", "AA:BB:CC:DD:EE:FF/", "AA:BB:CC:DD:EE/0x80", "/0x80",
            "AA:BB:CC:DD:EE:FF/0x80/1", "AA:BB:CC:DD:EE:FF/0x100", "",
        ])
    func refusesEndpoint(_ text: String) {
        #expect(throws: LinkError.self) { try L2CAPAddress(parsing: text) }
    }

    @Test("a socket address has the kernel's size and layout")
    func layout() throws {
        let address = L2CAPSocketAddress(
            try L2CAPAddress(parsing: "01:02:03:04:05:06/0xA1", type: .random))
        let bytes = address.socketAddress.bytes
        #expect(bytes.count == HCI.l2capSocketAddressSize)
        #expect(bytes == [31, 0, 0xA1, 0, 6, 5, 4, 3, 2, 1, 0, 0, 2, 0])
        #expect(L2CAPSocketAddress(address.socketAddress) == address)
    }

    @Test("a socket address of another family or address type, or of too few bytes, is refused")
    func invalidSocketAddresses() {
        let good: [UInt8] = [31, 0, 0xA1, 0, 6, 5, 4, 3, 2, 1, 0, 0, 2, 0]
        #expect(L2CAPSocketAddress(SocketAddress(good)) != nil)
        for length in 0..<good.count {
            #expect(L2CAPSocketAddress(SocketAddress(Array(good.prefix(length)))) == nil)
        }
        for (index, value) in [(0, 1), (1, 1), (12, 0), (12, 3)] {
            var bad = good
            bad[index] = UInt8(value)
            #expect(L2CAPSocketAddress(SocketAddress(bad)) == nil)
        }
    }
}
