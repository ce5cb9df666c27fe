import BLESecDiscovery
import BLESecL2CAP
import BLESecTesting
import Testing

@Suite("Advertisement payloads")
struct PayloadTests {
    static func psm(_ number: Int) throws -> PSM { try PSM(number) }

    @Test("a payload's six bytes and its eight characters follow the wire format")
    func wireFormat() throws {
        let payload = AdvertisementPayload(
            capabilities: [.l2cap, .noise], psm: try Self.psm(0x83),
            tag: AdvertisementTag(rawValue: 0xC0FF_EE01)
        )
        #expect(payload.bytes == [0x1A, 0x83, 0xC0, 0xFF, 0xEE, 0x01])
        #expect(payload.text == "GoPA_-4B")
        #expect(AdvertisementPayload(payload.bytes) == payload)
        #expect(AdvertisementPayload(text: payload.text) == payload)
    }

    @Test("a random payload is read back unchanged from its bytes and from its text")
    func roundTrips() throws {
        var generator = SeededGenerator(seed: 1)
        for _ in 0..<2_000 {
            let capabilities = AdvertisementPayload.Capabilities(
                rawValue: generator.next() as UInt8)
            // Here, the number 0x80 stands for no PSM.
            let number = Int(generator.next() as UInt8) | 0x80
            let payload = AdvertisementPayload(
                capabilities: capabilities,
                psm: capabilities.contains(.l2cap) && number != 0x80 ? try Self.psm(number) : nil,
                tag: .random(using: &generator))
            #expect(AdvertisementPayload(payload.bytes) == payload)
            #expect(AdvertisementPayload(text: payload.text) == payload)
        }
    }

    @Test("version 1 is accepted, with no PSM or with a dynamic PSM and the capability for L2CAP")
    func firstBytes() {
        // The high half of the first byte is the version, and the bit with the value 8 is the
        // capability for L2CAP. The second byte is the PSM, or 0 for no PSM.
        for first in UInt8.min ... .max {
            for second in UInt8.min ... .max {
                let payload = AdvertisementPayload([first, second, 1, 2, 3, 4])
                let isValid =
                    first >> 4 == 1 && (second == 0 || second >= 0x80 && first & 8 != 0)
                #expect((payload != nil) == isValid)
                if let payload { #expect(payload.bytes == [first, second, 1, 2, 3, 4]) }
            }
        }
    }

    @Test("a payload that is not six bytes or eight characters long is refused", arguments: 0..<300)
    func lengths(length: Int) {
        // The first six bytes are a payload, and the first eight characters are its text form.
        let longBytes: [UInt8] = [0x12, 0] + [UInt8](repeating: 1, count: 300)
        let bytes = Array(longBytes.prefix(length))
        #expect((AdvertisementPayload(bytes) != nil) == (length == 6))
        let longText = "EgAB" + String(repeating: "AQEB", count: 75)
        let text = String(longText.prefix(length))
        #expect((AdvertisementPayload(text: text) != nil) == (length == 8))
    }

    @Test(
        "a local name that is not a payload in text form is refused",
        arguments: [
            "", "GoPA_-4", "GoPA_-4B=", "GoPA/-4B", "GoPA+-4B", "GoPA -4B", "GoPÄ_-4", "Notebook",
            "\0\0\0\0\0\0\0\0", "🎈🎈", "AAAAAAAA", "________",
        ])
    func names(name: String) {
        #expect(AdvertisementPayload(text: name) == nil)
    }

    @Test("random bytes cause no trap, and a payload that is accepted is written back unchanged")
    func random() {
        var generator = SeededGenerator(seed: 2)
        var accepted = 0
        for _ in 0..<20_000 {
            var bytes = generator.bytes(Int.random(in: 0...12, using: &generator))
            let text = String(decoding: bytes, as: UTF8.self)
            if let payload = AdvertisementPayload(text: text) { #expect(payload.text == text) }
            // One in four has the version that is accepted.
            if !bytes.isEmpty, Bool.random(using: &generator), Bool.random(using: &generator) {
                bytes[0] = AdvertisementPayload.version << 4 | bytes[0] & 0x0F
            }
            guard let payload = AdvertisementPayload(bytes) else { continue }
            accepted += 1
            #expect(payload.bytes == bytes)
        }
        #expect(accepted > 100)
    }

    @Test("a text form with random changes is refused, or is written back as it was read")
    func changedTexts() {
        var generator = SeededGenerator(seed: 3)
        let alphabet = Array("ABCDEFGHIJKLMNOPwxyz0189-_+/= ".utf8)
        var accepted = 0
        for _ in 0..<20_000 {
            let payload = AdvertisementPayload(
                capabilities: .init(rawValue: generator.next() as UInt8), psm: nil,
                tag: .random(using: &generator))
            var bytes = Array(payload.text.utf8)
            for _ in 0..<Int.random(in: 1...2, using: &generator) {
                let position = Int.random(in: 0..<bytes.count, using: &generator)
                let byte = alphabet[Int.random(in: 0..<alphabet.count, using: &generator)]
                switch Int.random(in: 0..<8, using: &generator) {
                case 0: bytes.remove(at: position)
                case 1: bytes.insert(byte, at: position)
                default: bytes[position] = byte
                }
            }
            let text = String(decoding: bytes, as: UTF8.self)
            guard let payload = AdvertisementPayload(text: text) else { continue }
            accepted += 1
            #expect(payload.text == text)
        }
        #expect((1_000...19_000).contains(accepted), "\(accepted) are accepted")
    }
}

@Suite("The characteristic with the PSM")
struct PSMValueTests {
    @Test("every dynamic PSM is read in both byte orders, in two bytes and in four")
    func orders() throws {
        for number in 0x80...0xFF {
            let psm = try PSM(number)
            let byte = UInt8(number)
            #expect(PSMValue.format(psm) == [byte, 0])
            for value in [[byte, 0], [0, byte], [byte, 0, 0, 0], [0, 0, 0, byte]] {
                #expect(PSMValue.parse(value) == psm)
            }
        }
    }

    @Test("a value that is not one dynamic PSM in two or four bytes is refused")
    func refused() {
        for high in UInt8.min ... .max {
            for low in UInt8.min ... .max where (high == 0) == (low == 0) || max(high, low) < 0x80 {
                #expect(PSMValue.parse([high, low]) == nil)
                #expect(PSMValue.parse([high, low, 0, 1]) == nil)
            }
        }
        for length in 0..<64 where length != 2 && length != 4 {
            #expect(PSMValue.parse([UInt8](repeating: 0x80, count: length)) == nil)
        }
    }
}

@Suite("UUIDs")
struct BluetoothUUIDTests {
    @Test("the usual text forms of UUIDs are read")
    func forms() throws {
        let text = "abdd3056-28fa-441d-a470-55a75a52553a"
        #expect(PSMValue.characteristic.description == text)
        #expect(BluetoothUUID(text.uppercased()) == PSMValue.characteristic)
        let short = "0000180f-0000-1000-8000-00805f9b34fb"
        #expect(BluetoothUUID("180F")?.description == short)
        #expect(BluetoothUUID("0000180f")?.description == short)
        #expect(BluetoothUUID(short)?.description == short)
    }

    @Test(
        "a text in another form is not a UUID",
        arguments: [
            "", "-", "18", "180", "180FF", "18-0F", "abdd305628fa441da47055a75a52553a",
            "abdd3056-28fa-441d-a470-55a75a52553", "abdd3056-28fa-441d-a470-55a75a52553aa",
            "abdd3056-28fa-441d-a47055-a75a52553a", "gbdd3056-28fa-441d-a470-55a75a52553a",
            "abdd305-628fa-441d-a470-55a75a52553a", "------------------------------------",
            "{abdd3056-28fa-441d-a470-55a75a5255}", "１８０F", "abdd3056--28fa441d-a470-55a75a52553a",
            "abdd3056-28fa-441d-a47055a75a52553a-",
        ])
    func refused(text: String) {
        #expect(BluetoothUUID(text) == nil)
    }
}

@Suite("Advertisements of a service")
struct ServiceAdvertisementTests {
    let service = PSMValue.characteristic
    /// A UUID that the Bluetooth SIG has assigned: 0x180F, the battery service.
    let assignedService = BluetoothUUID(high: 0x180F_0000_1000, low: 0x8000_0080_5F9B_34FB)
    let payload = AdvertisementPayload(
        capabilities: .noise, psm: nil, tag: AdvertisementTag(rawValue: 7))

    func read(
        uuids: [BluetoothUUID] = [], name: String? = nil, data: [BluetoothUUID: [UInt8]] = [:],
        manufacturer: [UInt16: [UInt8]] = [:]
    ) -> ServiceAdvertisement? {
        ServiceAdvertisement(
            of: service, uuids: uuids, name: name, serviceData: data,
            manufacturerData: manufacturer)
    }

    @Test("a payload is read from the name, from service data and from manufacturer data")
    func carriers() {
        let expected = ServiceAdvertisement.payload(payload)
        #expect(read(uuids: [assignedService, service], name: payload.text) == expected)
        #expect(read(data: [service: payload.bytes]) == expected)
        #expect(read(uuids: [service], manufacturer: [0xFFFF: payload.bytes]) == expected)
    }

    @Test("a payload is ignored if the advertisement does not name the service")
    func withoutService() {
        #expect(read(name: payload.text) == nil)
        #expect(read(uuids: [assignedService], name: payload.text) == nil)
        #expect(read(manufacturer: [0xFFFF: payload.bytes]) == nil)
        #expect(read(data: [assignedService: payload.bytes]) == nil)
    }

    @Test("if another 128-bit service is advertised too, a payload is read only from service data")
    func besideAnotherService() {
        let otherService = BluetoothUUID(high: 1, low: 2)
        #expect(read(uuids: [service, otherService], name: payload.text) == .serviceOnly)
        #expect(
            read(uuids: [service, otherService], manufacturer: [0xFFFF: payload.bytes])
                == .serviceOnly)
        #expect(
            read(uuids: [service, otherService], data: [service: payload.bytes])
                == .payload(payload))
    }

    @Test("an advertisement without a valid payload is read as the service alone")
    func serviceOnly() {
        #expect(read(uuids: [service]) == .serviceOnly)
        #expect(read(uuids: [service], name: "Alice's phone") == .serviceOnly)
        #expect(read(data: [service: []]) == .serviceOnly)
        #expect(read(data: [service: payload.bytes + [0]]) == .serviceOnly)
        #expect(read(uuids: [service], manufacturer: [76: payload.bytes]) == .serviceOnly)
        #expect(read(uuids: [service], manufacturer: [0xFFFF: [1]]) == .serviceOnly)
    }
}
