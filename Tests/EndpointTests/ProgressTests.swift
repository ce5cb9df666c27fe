import BLESecDelivery
import Testing

@Suite("Progress")
struct ProgressTests {
    @Test("a program that takes or confirms a message, or reads from a stream, makes progress")
    func program() throws {
        var pair = EndpointPair()
        pair.connect()
        _ = pair.sides[0].send([1])
        let stream = pair.sides[0].streams.open("", .normal)
        _ = try pair.sides[0].streams.write([1, 2], to: stream)
        pair.commit()
        for _ in 0..<3 { try pair.exchange() }
        let receiver = pair.sides[1]
        let next = receiver.streams.accept()
        let accepted = try #require(next)
        var before = receiver.progressCount
        func expectProgress() {
            #expect(receiver.progressCount > before)
            before = receiver.progressCount
        }
        #expect(receiver.take() == [1])
        expectProgress()
        receiver.confirm(through: 1)
        expectProgress()
        for byte: UInt8 in [1, 2] {
            #expect(try receiver.streams.read(accepted.handle, atMost: 1) == [byte])
            expectProgress()
        }
        #expect(receiver.take() == nil)
        receiver.confirm(through: 1)
        #expect(try receiver.streams.read(accepted.handle, atMost: 1) == [])
        #expect(receiver.progressCount == before)
    }
}
