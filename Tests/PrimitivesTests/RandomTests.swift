import BLESecPrimitives
import Testing

@Suite struct RandomTests {
    @Test("random bytes fill the whole span and differ each time")
    func random() {
        var bytes = [UInt8](repeating: 0, count: 64)
        var span = bytes.mutableSpan
        randomBytes(into: &span)
        #expect(bytes.suffix(32).contains { $0 != 0 })
        #expect(randomBytes(count: 32) != randomBytes(count: 32))
        #expect(randomBytes(count: 0).isEmpty)
    }
}
