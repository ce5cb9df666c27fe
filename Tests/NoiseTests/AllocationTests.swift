import BLESecNoise
import BLESecPrimitives
import CAllocationCounter
import Testing

@Suite struct AllocationTests {
    static let ciphers = ["ChaChaPoly", "AESGCM"]

    @Test(
        "a transport message needs no allocation, unless it is the first of its size",
        .enabled(if: blesec_counts_allocations()), arguments: ciphers)
    func transport(_ cipher: String) throws {
        var pair = try TransportPair("Noise_XX_25519_\(cipher)_SHA256")
        var buffer = [UInt8](repeating: 1, count: 65_535)
        var span = buffer.mutableSpan
        for count in [0, 64, 255, 256, 383, 384, 1024, 16_384, 65_519] {
            // The first message of a size may create a cipher context, which later messages use.
            for isFirst in [true, false, false] {
                let before = blesec_allocations()
                try pair.initiator.encrypt(inPlace: &span, count: count)
                let length = try pair.responder.decrypt(inPlace: &span, at: 0, count: count + 16)
                let allocations = blesec_allocations() - before
                #expect(length == count)
                if !isFirst { #expect(allocations == 0, "\(count) bytes") }
            }
        }
    }

    @Test(
        "the counter sees an allocation",
        .enabled(if: blesec_counts_allocations()))
    func counterWorks() {
        let before = blesec_allocations()
        // The array's length is not a constant, so the optimizer cannot remove the allocation.
        let bytes = [UInt8](repeating: 1, count: Int(before % 7) + 100)
        #expect(blesec_allocations() > before)
        #expect(bytes.count >= 100)
    }
}
