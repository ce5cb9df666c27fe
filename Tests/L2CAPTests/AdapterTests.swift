import BLESecLinks
import Glibc
import Testing

@testable import BLESecL2CAP

@Suite struct AdapterTests {
    private let adapters: [Adapter]

    init() throws {
        let first = try #require(BluetoothAddress("00:AA:01:00:00:00"))
        let second = try #require(BluetoothAddress("00:AA:01:01:00:01"))
        let third = try #require(BluetoothAddress("00:AA:01:02:00:02"))
        adapters = [
            Adapter(name: "hci0", address: first, isUp: false),
            Adapter(name: "hci1", address: second, isUp: true),
            Adapter(name: "hci2", address: third, isUp: true),
        ]
    }

    @Test("an adapter is found by its name and by its address")
    func found() throws {
        #expect(try Adapter.choose("hci2", among: adapters).name == "hci2")
        #expect(try Adapter.choose("00:aa:01:01:00:01", among: adapters).name == "hci1")
    }

    @Test("without a name the first adapter that is on is used")
    func first() throws {
        #expect(try Adapter.choose(nil, among: adapters).name == "hci1")
    }

    @Test("an unknown adapter, an adapter that is off, and a machine without adapters are errors")
    func refusals() {
        let unknownError = #expect(throws: LinkError.self) {
            try Adapter.choose("hci7", among: adapters)
        }
        #expect(unknownError?.code == .noSuchAdapter)
        #expect(unknownError?.reason.contains("hci1 (00:AA:01:01:00:01)") == true)
        let offError = #expect(throws: LinkError.self) {
            try Adapter.choose("hci0", among: adapters)
        }
        #expect(offError?.reason.contains("power on") == true)
        let noAdapterError = #expect(throws: LinkError.self) { try Adapter.choose(nil, among: []) }
        #expect(noAdapterError?.code == .noSuchAdapter)
    }
}

@Suite struct L2CAPFailureTests {
    @Test(
        "each error of the kernel is reported with a likely cause or a remedy",
        arguments: [
            (ECONNREFUSED, LinkError.Code.refused, "nobody listens on PSM 0x81"),
            (EHOSTUNREACH, .unreachable, "power on"),
            (EACCES, .permission, "pair"),
            (EINVAL, .unavailable, "all 128 dynamic PSMs"),
            (EAFNOSUPPORT, .unavailable, "modprobe bluetooth"),
            (ETIMEDOUT, .timedOut, "no answer"),
        ])
    func dialing(_ number: Int32, _ code: LinkError.Code, _ phrase: String) throws {
        let address = try L2CAPAddress(parsing: "01:02:03:04:05:06/0x81")
        let error = L2CAPFailure.explainDial(SystemError(number), address)
        #expect(error.code == code)
        #expect(error.systemError == number)
        #expect(error.reason.contains(phrase))
        #expect(error.reason.contains("01:02:03:04:05:06"))
    }

    @Test("a PSM in use, a reserved PSM, and no free PSM give the listener different errors")
    func listening() throws {
        let psm = try PSM(0x25)
        let inUse = L2CAPFailure.explainListen(SystemError(EADDRINUSE), psm: psm)
        #expect(inUse.code == .addressInUse)
        let reserved = L2CAPFailure.explainListen(SystemError(EACCES), psm: psm)
        #expect(reserved.code == .permission)
        #expect(reserved.reason.contains("0x80 to 0xFF"))
        let full = L2CAPFailure.explainListen(SystemError(EINVAL), psm: nil)
        #expect(full.reason.contains("dynamic PSM"))
    }
}
