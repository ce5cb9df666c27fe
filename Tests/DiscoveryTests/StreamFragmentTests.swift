import BLESecTesting
import Testing

@testable import BLESecDiscovery

@Suite("The fragments of a stream")
struct StreamFragmentTests {
    @Test("fragments follow the wire format")
    func wireFormat() {
        let opening = StreamFragment(
            .open, stream: 0xBEEF, number: 0, limit: 32,
            payload: StreamFragment.openingPayload(acceptedSize: 508)
        )
        #expect(opening.bytes == [1, 0xBE, 0xEF, 0, 0, 0, 32, 1, 1, 0xFC])
        #expect(opening.acceptedSize == 508)
        let data = StreamFragment(.data, stream: 0xBEEF, number: 7, limit: 0x128, payload: [9, 8])
        #expect(data.bytes == [2, 0xBE, 0xEF, 0, 7, 1, 0x28, 9, 8])
        for fragment in [opening, data] { #expect(StreamFragment(fragment.bytes) == fragment) }
    }

    @Test("fragments of a wrong length or an unknown kind are refused")
    func lengths() {
        for kind: UInt8 in 0...255 {
            for length in Array(0...40) + Array(500...520) {
                var bytes = [kind, 0, 1, 0, 0, 0, 32, 1, 0, 20] + [UInt8](repeating: 5, count: 510)
                bytes = Array(bytes[..<length])
                // A grant and an end have no payload.
                let lengths = [1: 10...508, 2: 8...508, 3: 7...7, 4: 7...7][kind]
                let isValid = lengths?.contains(length) ?? false
                #expect((StreamFragment(bytes) != nil) == isValid, "\(kind), \(length)")
            }
        }
    }

    @Test(
        "an opening needs version 1 and a size of at least 20, and a size above 508 counts as 508")
    func openings() {
        func acceptedSize(version: UInt8, size: Int) -> Int? {
            StreamFragment(
                [1, 0, 1, 0, 0, 0, 32, version, UInt8(size >> 8), UInt8(size & 0xFF)])?.acceptedSize
        }
        #expect(acceptedSize(version: 1, size: 19) == nil)
        #expect(acceptedSize(version: 1, size: 20) == 20)
        #expect(acceptedSize(version: 1, size: 508) == 508)
        #expect(
            acceptedSize(version: 1, size: 65_535) == 508, "bluetoothd drops values of 512 bytes")
        #expect(acceptedSize(version: 0, size: 100) == nil)
        #expect(acceptedSize(version: 2, size: 100) == nil)
    }

    @Test("any bytes that are accepted as a fragment are written back unchanged")
    func anyBytes() {
        var generator = SeededGenerator(seed: 5)
        for _ in 0..<5_000 {
            var bytes = generator.bytes(Int.random(in: 0...40, using: &generator))
            // The first byte is then 0 to 7; kinds 1 to 4 are valid.
            if !bytes.isEmpty { bytes[0] &= 7 }
            guard let fragment = StreamFragment(bytes) else { continue }
            #expect(fragment.bytes == bytes)
        }
    }
}
