import BLESecLinks
import BLESecTesting
import Testing

@Suite struct SocketLinkTests {
    @Test(
        "a stream pair and a seqpacket pair carry bytes in both directions",
        arguments: [UnixAddress.Kind.stream, .seqpacket])
    func bothDirections(_ kind: UnixAddress.Kind) async throws {
        try await withLoop { loop in
            let (a, b) = try await SocketLink.pair(kind, loop: loop)
            try #expect(a.send([1, 2, 3]) == 3)
            try #expect(b.receive().bytes == [1, 2, 3])
            try #expect(b.receive().outcome == .wouldBlock)
            try #expect(b.send([4]) == 1)
            try #expect(a.receive().bytes == [4])
        }
    }

    @Test("a packet larger than the reader's buffer is never truncated")
    func noTruncation() async throws {
        try await withLoop { loop in
            let (a, b) = try await SeqpacketPair.make(loop: loop)
            var random = SeededGenerator(seed: 2)
            let sdu = random.bytes(8_192)
            try #expect(a.send(sdu) == 8_192)
            _ = try a.send([9])
            var received: [UInt8] = []
            while case let part = try b.receive(upTo: 1_000), part.outcome == .bytes {
                received += part.bytes
            }
            #expect(received == sdu + [9])
        }
    }

    @Test("the handler is notified of the rest of a packet, although the kernel has no bytes left")
    func restIsReported() async throws {
        try await withLoop { loop in
            let (a, b) = try await SeqpacketPair.make(loop: loop)
            let recorder = Recorder()
            var received: [UInt8] = []
            recorder.whenReadable = {
                if let part = try? b.receive(upTo: 2) { received += part.bytes }
            }
            b.setHandler(recorder)
            b.wantsRead = true
            _ = try a.send([1, 2, 3, 4, 5])
            await loop.settle()
            #expect(received == [1, 2, 3, 4, 5])
            #expect(recorder.readableCount == 3)
        }
    }

    @Test(
        "a full socket stops taking bytes, and reports when it has room again",
        arguments: [UnixAddress.Kind.stream, .seqpacket])
    func backpressure(_ kind: UnixAddress.Kind) async throws {
        try await withLoop { loop in
            let (a, b) = try await SocketLink.pair(kind, loop: loop)
            let recorder = Recorder()
            a.setHandler(recorder)
            let sdu = [UInt8](repeating: 1, count: 8_000)
            while try a.send(sdu) == 8_000 {}
            #expect(!a.isDrained)
            a.wantsWrite = true
            await loop.settle()
            #expect(recorder.writableCount == 0)
            recorder.whenWritable = { a.wantsWrite = false }
            while try b.receive().outcome == .bytes {}
            await loop.settle()
            #expect(recorder.writableCount == 1)
            #expect(a.isDrained)
            try #expect(a.send(sdu) == 8_000)
        }
    }

    @Test("bytes that arrive after a link was emptied are reported, and readable without a report")
    func afterEmpty() async throws {
        try await withLoop { loop in
            let (a, b) = try await SocketLink.pair(.stream, loop: loop)
            let recorder = Recorder()
            var received: [UInt8] = []
            recorder.whenReadable = {
                while let part = try? b.receive(), part.outcome == .bytes { received += part.bytes }
            }
            b.setHandler(recorder)
            b.wantsRead = true
            for byte in UInt8(0)..<10 {
                _ = try a.send([byte])
                await loop.settle()
            }
            #expect(received == Array(0..<10))
            #expect(recorder.readableCount == 10)
            b.setHandler(nil)
            _ = try a.send([10])
            try #expect(b.receive().bytes == [10])
            b.setHandler(recorder)
            b.wantsRead = false
            _ = try a.send([11])
            try #expect(b.receive().bytes == [11])
            // The link itself stops waiting for bytes when the handler has read the end.
            a.close()
            b.wantsRead = true
            await loop.settle()
            #expect(!b.wantsRead)
        }
    }

    @Test("while reading is off no bytes are reported, and they are reported when it is on again")
    func readingOff() async throws {
        try await withLoop { loop in
            let (a, b) = try await SeqpacketPair.make(loop: loop)
            let recorder = Recorder()
            b.setHandler(recorder)
            b.wantsRead = true
            b.wantsRead = false
            _ = try a.send([1])
            await loop.settle()
            #expect(recorder.readableCount == 0)
            recorder.whenReadable = { b.wantsRead = false }
            b.wantsRead = true
            await loop.settle()
            #expect(recorder.readableCount == 1)
            try #expect(b.receive().bytes == [1])
        }
    }

    @Test("a hang-up is reported once, even while reading is off, and does not keep the loop busy")
    func hangUp() async throws {
        try await withLoop { loop in
            let (a, b) = try await SeqpacketPair.make(loop: loop)
            let recorder = Recorder()
            b.setHandler(recorder)
            b.wantsRead = true
            b.wantsRead = false
            _ = try a.send([1])
            a.close()
            await loop.settle()
            #expect(recorder.hangUpCount == 1)
            #expect(recorder.readableCount == 0)
            recorder.whenReadable = { _ = try? b.receive() }
            b.wantsRead = true
            await loop.settle()
            // One report for the byte, and one for the end.
            #expect(recorder.readableCount == 2)
            #expect(!b.wantsRead)
            #expect(recorder.hangUpCount == 1)
        }
    }

    @Test("a half-close ends one direction, and the other direction stays open")
    func halfClose() async throws {
        try await withLoop { loop in
            let (a, b) = try await SocketLink.pair(.stream, loop: loop)
            #expect(a.halfClose())
            try #expect(b.receive().outcome == .end)
            try #expect(b.send([1]) == 1)
            try #expect(a.receive().bytes == [1])
            let error = #expect(throws: LinkError.self) { try a.send([1]) }
            #expect(error?.code == .closed)
        }
    }

    @Test("bytes that a peer sent before it closed are readable even after a failed send")
    func readAfterFailedSend() async throws {
        try await withLoop { loop in
            let (a, b) = try await SocketLink.pair(.stream, loop: loop)
            _ = try b.send([1, 2, 3])
            b.close()
            for _ in 0..<2 {
                let error = #expect(throws: LinkError.self) { try a.send([1]) }
                #expect(error?.code == .reset)
            }
            try #expect(a.receive().bytes == [1, 2, 3])
            try #expect(a.receive().outcome == .end)
        }
    }

    @Test("a send to a peer that has closed throws an error, and SIGPIPE does not end the process")
    func peerGone() async throws {
        try await withLoop { loop in
            let (a, b) = try await SocketLink.pair(.stream, loop: loop)
            b.close()
            let error = #expect(throws: LinkError.self) { try a.send([1]) }
            #expect(error?.code == .reset)
        }
    }

    @Test("an SDU above the maximum is refused, and the link stays usable")
    func tooLarge() async throws {
        try await withLoop { loop in
            let (a, b) = try await SeqpacketPair.make(loop: loop, maximumSDU: 100)
            let error = #expect(throws: LinkError.self) {
                try a.send([UInt8](repeating: 0, count: 101))
            }
            #expect(error?.code == .tooLarge)
            try #expect(a.send([1]) == 1)
            try #expect(b.receive().bytes == [1])
        }
    }

    @Test("a closed link has no descriptor, calls no handler, and its receive throws `closed`")
    func closed() async throws {
        try await withLoop { loop in
            let (a, _) = try await SocketLink.pair(.stream, loop: loop)
            let recorder = Recorder()
            a.setHandler(recorder)
            a.wantsRead = true
            a.wantsWrite = true
            a.close()
            a.close()
            await loop.settle()
            #expect(recorder.writableCount + recorder.readableCount + recorder.hangUpCount == 0)
            #expect(a.fileDescriptor == -1)
            #expect(loop.load.sources == 0)
            let error = #expect(throws: LinkError.self) { try a.receive() }
            #expect(error?.code == .closed)
        }
    }

    @Test("a handler may close its link when it is told that bytes can be read")
    func closeInHandler() async throws {
        try await withLoop { loop in
            let (a, b) = try await SocketLink.pair(.stream, loop: loop)
            let recorder = Recorder()
            recorder.whenReadable = { b.close() }
            b.setHandler(recorder)
            b.wantsRead = true
            b.wantsWrite = true
            _ = try a.send([1])
            await loop.settle()
            #expect(recorder.readableCount == 1)
            #expect(loop.load.sources == 0)
        }
    }
}
