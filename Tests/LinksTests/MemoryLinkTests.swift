import BLESecLinks
import BLESecTesting
import Testing

@Suite struct MemoryLinkTests {
    @Test("what one end sends arrives at the other in order, however reads divide it")
    func order() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            try #expect(a.send([1, 2, 3]) == 3)
            try #expect(a.send([4, 5]) == 2)
            try #expect(b.receive(upTo: 2).bytes == [1, 2])
            try #expect(b.receive().bytes == [3, 4, 5])
            try #expect(b.receive().outcome == .wouldBlock)
            try #expect(b.send([6]) == 1)
            try #expect(a.receive().bytes == [6])
        }
    }

    @Test("without room for the whole SDU a send takes nothing, and room for an SDU is reported")
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
            #expect(recorder.writableCount == 0)
            recorder.whenWritable = { a.wantsWrite = false }
            try #expect(b.receive(upTo: 20).bytes.count == 20)
            await loop.settle()
            #expect(recorder.writableCount == 1)
            try #expect(a.send(sdu) == 60)
        }
    }

    @Test("bytes keep their order while a ring of 97 bytes wraps around many times")
    func wraps() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop, capacity: 97, maximumSDU: 97)
            var random = SeededGenerator(seed: 1)
            var sent: [UInt8] = []
            var received: [UInt8] = []
            for _ in 0..<2_000 {
                let sdu = random.bytes(Int.random(in: 1...97, using: &random))
                if try a.send(sdu) > 0 { sent += sdu }
                received += try b.receive(upTo: Int.random(in: 1...97, using: &random)).bytes
            }
            received += try b.receive().bytes
            #expect(received == sent)
        }
    }

    @Test("a capacity or an SDU of more than 16 MiB counts as 16 MiB")
    func largest() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop, capacity: .max, maximumSDU: .max)
            let sdu = [UInt8](repeating: 7, count: 16 << 20)
            #expect(a.maximumSDU == sdu.count)
            try #expect(a.send(sdu) == sdu.count)
            try #expect(a.send([1]) == 0)
            try #expect(b.receive(upTo: 1).bytes == [7])
            try #expect(a.send([1]) == 1)
        }
    }

    @Test("readiness is reported by the loop, never from within a send")
    func notReentrant() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            let recorder = Recorder()
            recorder.whenReadable = { b.wantsRead = false }
            b.setHandler(recorder)
            b.wantsRead = true
            _ = try a.send([1])
            #expect(recorder.readableCount == 0)
            await loop.settle()
            #expect(recorder.readableCount == 1)
        }
    }

    @Test("the reader is notified again as long as unread bytes are left")
    func levelTriggered() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            let recorder = Recorder()
            recorder.whenReadable = { _ = try? b.receive(upTo: 1) }
            b.setHandler(recorder)
            b.wantsRead = true
            _ = try a.send([1, 2, 3])
            await loop.settle()
            #expect(recorder.readableCount == 3)
        }
    }

    @Test("bytes that were sent before a close are read before the end")
    func orderlyClose() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            let recorder = Recorder()
            b.setHandler(recorder)
            _ = try a.send([1])
            #expect(!a.isDrained)
            a.close()
            a.close()
            await loop.settle()
            #expect(recorder.hangUpCount == 1)
            try #expect(b.receive().bytes == [1])
            try #expect(b.receive().outcome == .end)
            #expect(throws: LinkError.self) { try b.send([2]) }
        }
    }

    @Test("a link that drops its queue has no half-close, and loses unread bytes when it is closed")
    func dropsQueue() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop, dropsQueueOnClose: true)
            _ = try a.send([1, 2])
            try #expect(b.receive(upTo: 1).bytes == [1])
            #expect(!a.halfClose())
            #expect(!a.isDrained)
            a.close()
            try #expect(b.receive().outcome == .end)
        }
    }

    @Test("a half-close ends one direction, and the other direction stays open")
    func halfClose() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            _ = try a.send([1])
            #expect(a.halfClose())
            try #expect(b.receive().bytes == [1])
            try #expect(b.receive().outcome == .end)
            try #expect(b.send([2]) == 1)
            try #expect(a.receive().bytes == [2])
            #expect(throws: LinkError.self) { try a.send([3]) }
        }
    }

    @Test("an SDU above the maximum is refused, and the link stays usable")
    func tooLarge() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop, capacity: 20, maximumSDU: 10)
            let error = #expect(throws: LinkError.self) {
                try a.send([UInt8](repeating: 0, count: 11))
            }
            #expect(error?.code == .tooLarge)
            try #expect(a.send([1]) == 1)
            try #expect(b.receive().bytes == [1])
        }
    }

    @Test(
        "the loop's shutdown completes while bytes are unread, even if the handler reads none",
        .timeLimit(.minutes(1)), arguments: [true, false])
    func shutdown(reads: Bool) async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            let recorder = Recorder()
            recorder.whenReadable = { if reads { _ = try? b.receive(upTo: 1) } }
            b.setHandler(recorder)
            b.wantsRead = true
            _ = try a.send([UInt8](repeating: 1, count: 1_000))
            await loop.shutdown()
            #expect(recorder.readableCount > 0)
            #expect(b.wantsRead == !reads)
            withExtendedLifetime(a) {}
        }
    }

    @Test("an end that is no longer referenced is closed")
    func dropped() async throws {
        try await withLoop { loop in
            var pair: (MemoryLink?, MemoryLink) = MemoryLink.pair(loop: loop)
            pair.0 = nil
            try #expect(pair.1.receive().outcome == .end)
        }
    }

    @Test("an end that only the loop's deferred work still references is closed after that work")
    func droppedWithDeferredWork() async throws {
        try await withLoop { loop in
            var pair: (MemoryLink?, MemoryLink) = MemoryLink.pair(loop: loop)
            let other = pair.1
            let recorders = (Recorder(), Recorder())
            other.setHandler(recorders.1)
            other.wantsRead = true
            recorders.1.whenReadable = { other.wantsRead = false }
            await loop.settle()
            #expect(recorders.1.readableCount == 0)
            // `setHandler` schedules deferred work, which keeps this end alive. When the work is
            // done, this end is released, and its release schedules deferred work of the other end.
            pair.0?.setHandler(recorders.0)
            pair.0 = nil
            await loop.settle()
            #expect(recorders.1.readableCount == 1)
            try #expect(other.receive().outcome == .end)
        }
    }
}
