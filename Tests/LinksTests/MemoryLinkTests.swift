import Links
import Testing

@testable import BLESecTesting

@Suite struct MemoryLinkTests {
    @Test("what one end sends arrives at the other, in order and in any pieces")
    func order() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            try #expect(a.send([1, 2, 3]) == 3)
            try #expect(a.send([4, 5]) == 2)
            try #expect(b.receive(2).bytes == [1, 2])
            try #expect(b.receive().bytes == [3, 4, 5])
            try #expect(b.receive().1 == .wouldBlock)
        }
    }

    @Test("a full queue takes nothing, and tells when there is room for an SDU")
    func backpressure() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop, capacity: 100, maximumSDU: 60)
            let recorder = Recorder()
            a.setHandler(recorder)
            let sdu = [UInt8](repeating: 7, count: 60)
            try #expect(a.send(sdu) == 60)
            try #expect(a.send(sdu) == 0)
            a.wantsWrite = true
            await loop.settle()
            #expect(recorder.writable == 0)
            recorder.whenWritable = { a.wantsWrite = false }
            try #expect(b.receive(20).bytes.count == 20)
            await loop.settle()
            #expect(recorder.writable == 1)
            try #expect(a.send(sdu) == 60)
        }
    }
}
