import BLESecLinks
import BLESecLocking
import BLESecTesting
import Testing

@Suite struct FaultyLinkTests {
    /// Sends `sdus` through the faults and returns what arrives.
    private func arrivals(_ faults: [Fault], _ sdus: [[UInt8]]) async throws -> [UInt8] {
        let received = Locked<[UInt8]>([])
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            let faulty = FaultyLink(a, faults)
            for sdu in sdus { _ = try? faulty.send(sdu) }
            await loop.settle()
            let bytes = try b.receive().bytes
            received.withLock { $0 = bytes }
        }
        return received.withLock { $0 }
    }

    @Test("without faults everything passes")
    func none() async throws {
        #expect(try await arrivals([], [[1, 2], [3]]) == [1, 2, 3])
    }

    @Test("a flip changes one byte, whose offset counts from the first byte of the first send")
    func flip() async throws {
        let faults: [Fault] = [.flip(offset: 2, mask: 0xFF), .flip(offset: 0, mask: 1)]
        #expect(try await arrivals(faults, [[1, 2], [3, 4]]) == [0, 2, 0xFC, 4])
    }

    @Test("an SDU is dropped, sent twice, or swapped with the next one")
    func sends() async throws {
        let sdus: [[UInt8]] = [[1], [2], [3]]
        #expect(try await arrivals([.drop(sdu: 1)], sdus) == [1, 3])
        #expect(try await arrivals([.duplicate(sdu: 1)], sdus) == [1, 2, 2, 3])
        #expect(try await arrivals([.swap(sdu: 0)], sdus) == [2, 1, 3])
        #expect(try await arrivals([.swap(sdu: 0), .swap(sdu: 1)], sdus) == [3, 2, 1])
    }

    @Test("a half-close first sends an SDU that a swap holds back")
    func swapOfLastSDU() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            let faulty = FaultyLink(a, [.swap(sdu: 0)])
            try #expect(faulty.send([1]) == 1)
            #expect(faulty.queuedBytes == 1)
            #expect(faulty.halfClose())
            await loop.settle()
            try #expect(b.receive().bytes == [1])
            try #expect(b.receive().outcome == .end)
            #expect(faulty.isDrained)
        }
    }

    @Test("without a handler the loop is idle, and a later handler gets the events that have come")
    func withoutHandler() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            let faulty = FaultyLink(a, [])
            // The link holds its handler weakly. So after this call the link has no handler.
            faulty.setHandler(Recorder())
            faulty.wantsRead = true
            try #expect(b.send([1]) == 1)
            b.close()
            await loop.settle()
            let recorder = Recorder()
            recorder.whenReadable = {
                _ = try? faulty.receive()
                faulty.wantsRead = false
            }
            faulty.setHandler(recorder)
            await loop.settle()
            #expect(recorder.readableCount == 1)
            #expect(recorder.hangUpCount == 1)
        }
    }

    @Test("delayed bytes arrive after the delay, in order, and a link delays at most 64 KiB")
    func delay() async throws {
        let clock = ManualClock()
        let loop = EventLoop(name: "delay", clock: clock.loopClock)
        let (b, faulty) = await loop.run {
            let (a, b) = MemoryLink.pair(loop: loop)
            return (b, FaultyLink(a, [.delay(.milliseconds(10))]))
        }
        try await loop.run { try #expect(faulty.send([1]) == 1) }
        await clock.advance(by: .milliseconds(5))
        try await loop.run { try #expect(faulty.send([2]) == 1) }
        await clock.advance(by: .milliseconds(4))
        try await loop.run { try #expect(b.receive().outcome == .wouldBlock) }
        await clock.advance(by: .milliseconds(1))
        try await loop.run {
            try #expect(b.receive().bytes == [1])
            #expect(!faulty.isDrained)
        }
        await clock.advance(by: .milliseconds(5))
        try await loop.run {
            try #expect(b.receive().bytes == [2])
            #expect(faulty.isDrained)
            let sdu = [UInt8](repeating: 1, count: 8_192)
            for _ in 0..<FaultyLink.heldBytes / 8_192 { try #expect(faulty.send(sdu) == 8_192) }
            try #expect(faulty.send(sdu) == 0)
        }
        await clock.advance(by: .milliseconds(10))
        try await loop.run {
            try #expect(faulty.send([3]) == 1)
            faulty.close()
            #expect(loop.load.timers == 0)
        }
        await loop.shutdown()
    }

    @Test(
        "a cut link delivers exactly the given number of bytes, and its sender sees the end",
        arguments: 0...4)
    func cut(after count: Int) async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            let faulty = FaultyLink(a, [.cut(afterBytes: count)])
            let recorder = Recorder()
            faulty.setHandler(recorder)
            _ = try faulty.send([1, 2])
            if count > 2 { _ = try faulty.send([3, 4]) }
            await loop.settle()
            var received: [UInt8] = []
            while case let part = try b.receive(), part.outcome == .bytes { received += part.bytes }
            #expect(received == Array([1, 2, 3, 4].prefix(count)))
            #expect(recorder.hangUpCount == 1)
            try #expect(faulty.receive().outcome == .end)
            #expect(throws: LinkError.self) { try faulty.send([5]) }
        }
    }

    @Test(
        "a cut after fewer bytes than were sent before it was added cuts the next send",
        arguments: [Int.min, -1, 1])
    func cutBelowSentBytes(_ limit: Int) async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            let faulty = FaultyLink(a)
            try #expect(faulty.send([1, 2]) == 2)
            faulty.add(.cut(afterBytes: limit))
            try #expect(faulty.send([3]) == 1)
            try #expect(b.receive().bytes == [1, 2])
            try #expect(b.receive().outcome == .end)
            #expect(throws: LinkError.self) { try faulty.send([4]) }
        }
    }

    @Test("a handler that wanted no events during the cut is called when it wants events again")
    func cutWhilePaused() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            let faulty = FaultyLink(a)
            let recorder = Recorder()
            faulty.setHandler(recorder)
            faulty.cut()
            await loop.settle()
            #expect(recorder.readableCount == 0 && recorder.writableCount == 0)
            recorder.whenReadable = { _ = try? faulty.receive() }
            faulty.wantsRead = true
            #expect(recorder.readableCount == 0, "the loop makes the call, not the setter")
            await loop.settle()
            #expect(recorder.readableCount == 1)
            #expect(!faulty.wantsRead, "the end was read")
            recorder.whenWritable = { faulty.wantsWrite = false }
            faulty.wantsWrite = true
            await loop.settle()
            #expect(recorder.writableCount == 1)
            b.close()
        }
    }

    @Test("a link that is cut after the peer's close reports only one hang-up")
    func cutAfterPeersClose() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            let faulty = FaultyLink(a)
            let recorder = Recorder()
            faulty.setHandler(recorder)
            b.close()
            await loop.settle()
            #expect(recorder.hangUpCount == 1)
            faulty.cut()
            await loop.settle()
            #expect(recorder.hangUpCount == 1)
        }
    }

    @Test(
        "a half-close follows delayed bytes, and fails if the wrapped link has no half-close",
        arguments: [false, true])
    func delayedHalfClose(isRefused: Bool) async throws {
        let clock = ManualClock()
        let loop = EventLoop(name: "half-close", clock: clock.loopClock)
        let (b, faulty) = await loop.run {
            let (a, b) = MemoryLink.pair(loop: loop, dropsQueueOnClose: isRefused)
            return (b, FaultyLink(a, [.delay(.milliseconds(10))]))
        }
        try await loop.run {
            try #expect(faulty.send([1]) == 1)
            #expect(faulty.halfClose() == !isRefused)
            if isRefused {
                try #expect(faulty.send([2]) == 1)
            } else {
                #expect(throws: LinkError.self) { try faulty.send([2]) }
            }
            try #expect(b.receive().outcome == .wouldBlock)
        }
        await clock.advance(by: .milliseconds(10))
        try await loop.run {
            let bytes: [UInt8] = isRefused ? [1, 2] : [1]
            try #expect(b.receive().bytes == bytes)
            let next: LinkReceive = isRefused ? .wouldBlock : .end
            try #expect(b.receive().outcome == next)
            try #expect(b.send([3]) == 1)
            try #expect(faulty.receive().bytes == [3])
        }
        await loop.shutdown()
    }

    @Test(
        "a send throws after a close, a half-close or the loop's shutdown, even after a `hold`",
        arguments: [false, true])
    func sendAfterEnd(isHolding: Bool) async throws {
        try await withLoop { loop in
            for end in ["close", "half-close", "shutdown"] {
                let (a, b) = MemoryLink.pair(loop: loop)
                let faulty = FaultyLink(a)
                if isHolding { faulty.hold() }
                switch end {
                case "close": faulty.close()
                case "half-close": #expect(faulty.halfClose())
                default: await loop.shutdown()
                }
                let error = #expect(throws: LinkError.self) { try faulty.send([1]) }
                #expect(error?.code == .closed, "\(end)")
                b.close()
            }
        }
    }

    @Test(
        "after the peer's close a send throws, even if held bytes were released in between",
        arguments: [false, true])
    func sendAfterPeersClose(isHolding: Bool) async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            let faulty = FaultyLink(a)
            if isHolding {
                faulty.hold()
                try #expect(faulty.send([1]) == 1)
            }
            b.close()
            faulty.release()
            for _ in 0..<2 {
                let error = #expect(throws: LinkError.self) { try faulty.send([2]) }
                #expect(error?.code == .reset)
            }
            #expect(faulty.isDrained)
        }
    }

    @Test("held bytes arrive when they are released, and a link holds at most 64 KiB")
    func hold() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop, capacity: 8_192)
            let faulty = FaultyLink(a)
            faulty.hold()
            let sdu = [UInt8](repeating: 1, count: 8_192)
            var sentSDUs = 0
            while try faulty.send(sdu) > 0 { sentSDUs += 1 }
            #expect(sentSDUs == FaultyLink.heldBytes / 8_192)
            try #expect(b.receive().outcome == .wouldBlock)
            #expect(!faulty.isDrained)
            faulty.release()
            var received = 0
            while received < sentSDUs * 8_192 {
                await loop.settle()
                received += try b.receive().bytes.count
            }
            await loop.settle()
            #expect(faulty.isDrained)
        }
    }

    @Test("reads that get one byte, or one to five bytes at random, lose no byte")
    func shortReads() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            let oneByteReader = FaultyLink(b, [.shortReads(1)])
            let raggedReader = FaultyLink(a, [.raggedReads(upTo: 5, seed: 4)])
            var random = SeededGenerator(seed: 5)
            let bytes = random.bytes(100)
            _ = try a.send(bytes)
            var received: [UInt8] = []
            while case let part = try oneByteReader.receive(), part.outcome == .bytes {
                #expect(part.bytes.count == 1)
                received += part.bytes
            }
            #expect(received == bytes)
            _ = try b.send(bytes)
            received = []
            while case let part = try raggedReader.receive(), part.outcome == .bytes {
                #expect(part.bytes.count <= 5)
                received += part.bytes
            }
            #expect(received == bytes)
        }
    }

    @Test("a send takes at most the given number of bytes, as on a byte stream")
    func shortWrites() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop)
            let faulty = FaultyLink(a, [.shortWrites(3)])
            try #expect(faulty.send([1, 2, 3, 4, 5]) == 3)
            try #expect(faulty.send([4, 5]) == 2)
            try #expect(b.receive().bytes == [1, 2, 3, 4, 5])
        }
    }

    @Test("a link that holds bytes reports room, and does not keep the loop busy when it is full")
    func heldRoom() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop, capacity: 8_192)
            let faulty = FaultyLink(a)
            let recorder = Recorder()
            faulty.setHandler(recorder)
            faulty.hold()
            let sdu = [UInt8](repeating: 1, count: 8_192)
            try #expect(faulty.send(sdu) == sdu.count)
            recorder.whenWritable = {
                while (try? faulty.send(sdu)).map({ $0 > 0 }) ?? false {}
            }
            faulty.wantsWrite = true
            // Returns only when the loop has nothing to do.
            await loop.settle()
            #expect(recorder.writableCount == 1)
            recorder.whenWritable = { faulty.wantsWrite = false }
            faulty.release()
            await loop.settle()
            while try b.receive().bytes.count > 0 { await loop.settle() }
            #expect(recorder.writableCount == 2 && faulty.isDrained)
        }
    }

    @Test("readiness to read and readiness to write pass through")
    func readiness() async throws {
        try await withLoop { loop in
            let (a, b) = MemoryLink.pair(loop: loop, capacity: 10, maximumSDU: 10)
            let faulty = FaultyLink(a)
            let recorder = Recorder()
            faulty.setHandler(recorder)
            faulty.wantsRead = true
            recorder.whenReadable = { _ = try? faulty.receive() }
            _ = try b.send([1])
            await loop.settle()
            #expect(recorder.readableCount == 1)
            let sdu = [UInt8](repeating: 0, count: 10)
            // The first SDU fills `a`, the second one waits in `faulty`, and the third one is
            // refused.
            try #expect(faulty.send(sdu) == 10)
            try #expect(faulty.send(sdu) == 10)
            try #expect(faulty.send(sdu) == 0)
            faulty.wantsWrite = true
            await loop.settle()
            #expect(recorder.writableCount == 0)
            recorder.whenWritable = { faulty.wantsWrite = false }
            _ = try b.receive()
            await loop.settle()
            _ = try b.receive()
            await loop.settle()
            #expect(recorder.writableCount == 1)
        }
    }
}
