import BLESecTesting
import Testing

@testable import BLESecDiscovery

@Suite("The fragments of a stream")
struct StreamFragmentTests {
    @Test("fragments follow the wire format")
    func worked() {
        let opening = StreamFragment(
            .open, stream: 0xBEEF, number: 0, limit: 32,
            payload: StreamFragment.opening(taking: 508)
        )
        #expect(opening.bytes == [1, 0xBE, 0xEF, 0, 0, 0, 32, 1, 1, 0xFC])
        #expect(opening.opening == 508)
        let data = StreamFragment(.data, stream: 0xBEEF, number: 7, limit: 0x128, payload: [9, 8])
        #expect(data.bytes == [2, 0xBE, 0xEF, 0, 7, 1, 0x28, 9, 8])
        for fragment in [opening, data] { #expect(StreamFragment(fragment.bytes) == fragment) }
    }

    @Test("fragments of a wrong length are refused")
    func lengths() {
        for kind: UInt8 in 0...255 {
            for length in Array(0...40) + Array(500...520) {
                var bytes = [kind, 0, 1, 0, 0, 0, 32, 1, 0, 20] + [UInt8](repeating: 5, count: 510)
                bytes = Array(bytes[..<length])
                let least = [1: 10, 2: 8, 3: 7, 4: 7][kind]
                let isValid = least.map { ($0...508).contains(length) } ?? false
                #expect((StreamFragment(bytes) != nil) == isValid, "\(kind), \(length)")
            }
        }
    }

    @Test("an opening fragment with a size below 20 or another version is refused")
    func openings() {
        func opening(_ version: UInt8, _ size: Int) -> Int? {
            StreamFragment(
                [1, 0, 1, 0, 0, 0, 32, version, UInt8(size >> 8), UInt8(size & 0xFF)])?.opening
        }
        #expect(opening(1, 19) == nil)
        #expect(opening(1, 20) == 20)
        #expect(opening(1, 508) == 508)
        #expect(opening(1, 65_535) == 508, "no fragment is longer than bluetoothd takes")
        #expect(opening(0, 100) == nil)
        #expect(opening(2, 100) == nil)
    }

    @Test("any bytes that are accepted as a fragment are written back unchanged")
    func anyBytes() {
        var generator = SeededGenerator(seed: 5)
        for _ in 0..<5_000 {
            var bytes = generator.bytes(Int.random(in: 0...40, using: &generator))
            if !bytes.isEmpty { bytes[0] &= 7 }
            guard let fragment = StreamFragment(bytes) else { continue }
            #expect(fragment.bytes == bytes)
        }
    }
}
