import BLESecPrimitives
import Testing

@Suite struct RandomTests {
    @Test("random bytes reach the second half of a span, and differ from call to call")
    func random() {
        var bytes = [UInt8](repeating: 0, count: 64)
        var span = bytes.mutableSpan
        randomBytes(into: &span)
        #expect(bytes.suffix(32).contains { $0 != 0 })
        #expect(randomBytes(count: 32) != randomBytes(count: 32))
        #expect(randomBytes(count: 0).isEmpty)
    }
}
