import BLESecTesting
import Glibc
import Testing

@testable import BLESecLinks

@Suite struct SocketLinkTests {
    @Test(
        "a stream pair and a seqpacket pair carry bytes in both directions",
        arguments: [UnixAddress.Kind.stream, .seqpacket])
    func bothDirections(_ kind: UnixAddress.Kind) async throws {
        try await withLoop { loop in
            let (left, right) = try await SocketLink.pair(kind, loop: loop)
            try #expect(left.send([1, 2, 3]) == 3)
            try #expect(right.receive().bytes == [1, 2, 3])
            try #expect(right.receive().outcome == .wouldBlock)
            try #expect(right.send([4]) == 1)
            try #expect(left.receive().bytes == [4])
        }
    }

    @Test("a packet larger than the reader's buffer is never truncated")
    func noTruncation() async throws {
        try await withLoop { loop in
            let (left, right) = try await SeqpacketPair.make(loop: loop)
            var random = SeededGenerator(seed: 2)
            let sdu = random.bytes(8_192)
            try #expect(left.send(sdu) == 8_192)
            _ = try left.send([9])
            var received: [UInt8] = []
            while case let part = try right.receive(upTo: 1_000), part.outcome == .bytes {
                received += part.bytes
            }
            #expect(received == sdu + [9])
        }
    }

    @Test(
        "an empty packet means nothing, and is not the end of the link",
        arguments: [0, 1, 2, 40])
    func emptyPackets(count: Int) async throws {
        try await withLoop { loop in
            let (descriptor, other) = try Socket.pair(.seqpacket)
            defer { Socket.close(other) }
            let link = SocketLink(
                EventSource(owning: descriptor, loop: loop),
                SocketLink.Traits(unix: .seqpacket, peerDescription: "a raw socket"))
            for value: UInt8 in [1, 2] {
                for _ in 0..<count {
                    let sent = send(other, nil, 0, 0)
                    try #require(sent == 0)
                }
                let sent = unsafe send(other, [value], 1, 0)
                try #require(sent == 1)
            }
            try #require(Glibc.shutdown(other, Int32(SHUT_WR)) == 0)
            var received: [UInt8] = []
            var calls = 0
            while true {
                let part = try link.receive()
                calls += 1
                try #require(calls < 20)
                if part.outcome == .end { break }
                received += part.bytes
            }
            #expect(received == [1, 2])
        }
    }

    @Test("the handler is notified of the rest of a packet, although the kernel has no bytes left")
    func restIsReported() async throws {
        try await withLoop { loop in
            let (left, right) = try await SeqpacketPair.make(loop: loop)
            let recorder = Recorder()
            var received: [UInt8] = []
            recorder.whenReadable = {
                if let part = try? right.receive(upTo: 2) { received += part.bytes }
            }
            right.setHandler(recorder)
            right.wantsRead = true
            _ = try left.send([1, 2, 3, 4, 5])
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
            let (left, right) = try await SocketLink.pair(kind, loop: loop)
            let recorder = Recorder()
            left.setHandler(recorder)
            let sdu = [UInt8](repeating: 1, count: 8_000)
            while try left.send(sdu) == 8_000 {}
            #expect(!left.isDrained)
            left.wantsWrite = true
            await loop.settle()
            #expect(recorder.writableCount == 0)
            recorder.whenWritable = { left.wantsWrite = false }
            while try right.receive().outcome == .bytes {}
            await loop.settle()
            #expect(recorder.writableCount == 1)
            #expect(left.isDrained)
            try #expect(left.send(sdu) == 8_000)
        }
    }

    @Test("after a link was emptied, new bytes are reported, and can be read without a report")
    func afterEmpty() async throws {
        try await withLoop { loop in
            let (left, right) = try await SocketLink.pair(.stream, loop: loop)
            let recorder = Recorder()
            var received: [UInt8] = []
            recorder.whenReadable = {
                while let part = try? right.receive(), part.outcome == .bytes {
                    received += part.bytes
                }
            }
            right.setHandler(recorder)
            right.wantsRead = true
            for byte in UInt8(0)..<10 {
                _ = try left.send([byte])
                await loop.settle()
            }
            #expect(received == Array(0..<10))
            #expect(recorder.readableCount == 10)
            right.setHandler(nil)
            _ = try left.send([10])
            try #expect(right.receive().bytes == [10])
            right.setHandler(recorder)
            right.wantsRead = false
            _ = try left.send([11])
            try #expect(right.receive().bytes == [11])
            // The link itself stops waiting for bytes when the handler has read the end.
            left.close()
            right.wantsRead = true
            await loop.settle()
            #expect(!right.wantsRead)
        }
    }

    @Test("bytes that arrive while reading is off are reported only when reading is on again")
    func readingOff() async throws {
        try await withLoop { loop in
            let (left, right) = try await SeqpacketPair.make(loop: loop)
            let recorder = Recorder()
            right.setHandler(recorder)
            right.wantsRead = true
            right.wantsRead = false
            _ = try left.send([1])
            await loop.settle()
            #expect(recorder.readableCount == 0)
            recorder.whenReadable = { right.wantsRead = false }
            right.wantsRead = true
            await loop.settle()
            #expect(recorder.readableCount == 1)
            try #expect(right.receive().bytes == [1])
        }
    }

    @Test("a hang-up is reported once, even while reading is off, and does not keep the loop busy")
    func hangUp() async throws {
        try await withLoop { loop in
            let (left, right) = try await SeqpacketPair.make(loop: loop)
            let recorder = Recorder()
            right.setHandler(recorder)
            right.wantsRead = true
            right.wantsRead = false
            _ = try left.send([1])
            left.close()
            await loop.settle()
            #expect(recorder.hangUpCount == 1)
            #expect(recorder.readableCount == 0)
            recorder.whenReadable = { _ = try? right.receive() }
            right.wantsRead = true
            await loop.settle()
            // One report for the byte, and one for the end.
            #expect(recorder.readableCount == 2)
            #expect(!right.wantsRead)
            #expect(recorder.hangUpCount == 1)
        }
    }

    @Test("a half-close ends one direction, and the other direction stays open")
    func halfClose() async throws {
        try await withLoop { loop in
            let (left, right) = try await SocketLink.pair(.stream, loop: loop)
            #expect(left.halfClose())
            try #expect(right.receive().outcome == .end)
            try #expect(right.send([1]) == 1)
            try #expect(left.receive().bytes == [1])
            let error = #expect(throws: LinkError.self) { try left.send([1]) }
            #expect(error?.code == .closed)
        }
    }

    @Test("bytes that a peer sent before it closed are readable even after a failed send")
    func readAfterFailedSend() async throws {
        try await withLoop { loop in
            let (left, right) = try await SocketLink.pair(.stream, loop: loop)
            _ = try right.send([1, 2, 3])
            right.close()
            for _ in 0..<2 {
                let error = #expect(throws: LinkError.self) { try left.send([1]) }
                #expect(error?.code == .reset)
            }
            try #expect(left.receive().bytes == [1, 2, 3])
            try #expect(left.receive().outcome == .end)
        }
    }

    @Test(
        "if a peer closes with unread bytes, what it sent can be read, and then a receive throws",
        arguments: [UnixAddress.Kind.stream, .seqpacket], [false, true])
    func readBeforeReset(_ kind: UnixAddress.Kind, sendsFirst: Bool) async throws {
        try await withLoop { loop in
            let (left, right) = try await SocketLink.pair(kind, loop: loop)
            _ = try left.send([9])
            _ = try right.send([1, 2, 3])
            _ = try right.send([4])
            right.close()
            if sendsFirst {
                let error = #expect(throws: LinkError.self) { try left.send([5]) }
                #expect(error?.code == .reset)
            }
            var received: [UInt8] = []
            for _ in 0..<2 where received.count < 4 { received += try left.receive().bytes }
            #expect(received == [1, 2, 3, 4])
            for _ in 0..<2 {
                let error = #expect(throws: LinkError.self) { try left.receive() }
                #expect(error?.code == .reset)
            }
        }
    }

    /// Both ends of a TCP connection.
    private static func tcpPair(on loop: EventLoop) async throws -> (SocketLink, SocketLink) {
        let listener = try Socket.open(family: AF_INET, kind: .stream)
        defer { Socket.close(listener) }
        let port: [UInt8] = [0, 0]
        try Socket.bind(
            listener,
            to: SocketAddress(
                SocketAddress.family(AF_INET) + port + [127, 0, 0, 1]
                    + [UInt8](repeating: 0, count: 8)))
        try Socket.listen(listener, backlog: 1)
        let left = try Socket.open(family: AF_INET, kind: .stream)
        // This call throws EINPROGRESS. The connection is complete once `accept` returns it.
        try? Socket.connect(left, to: Socket.localAddress(listener))
        while true {
            if let right = try? Socket.accept(listener) {
                let traits = SocketLink.Traits(maximumSDU: 65_536, peerDescription: "tcp")
                return (
                    SocketLink(EventSource(owning: left, loop: loop), traits),
                    SocketLink(EventSource(owning: right, loop: loop), traits)
                )
            }
            try await loop.sleep(for: .milliseconds(1))
        }
    }

    @Test(
        "after a send has reported a TCP reset, the bytes can be read, and then a receive throws",
        .timeLimit(.minutes(1)))
    func receiveAfterReset() async throws {
        try await withLoop { loop in
            let (left, right) = try await Self.tcpPair(on: loop)
            _ = try right.send([1, 2, 3])
            Socket.resetAtClose(right.fileDescriptor)
            right.close()
            // The first send after the reset throws.
            while (try? left.send([4])) != nil { try await loop.sleep(for: .milliseconds(1)) }
            try #expect(left.receive().bytes == [1, 2, 3])
            for _ in 0..<2 {
                let error = #expect(throws: LinkError.self) { try left.receive() }
                #expect(error?.code == .reset)
            }
        }
    }

    @Test(
        "the loop's shutdown completes while part of a packet is unread, even if nobody reads it",
        .timeLimit(.minutes(1)), arguments: [true, false])
    func shutdown(reads: Bool) async throws {
        try await withLoop { loop in
            let (left, right) = try await SeqpacketPair.make(loop: loop)
            let recorder = Recorder()
            recorder.whenReadable = { if reads { _ = try? right.receive(upTo: 1) } }
            _ = try left.send([UInt8](repeating: 1, count: 1_000))
            try #expect(right.receive(upTo: 1).bytes == [1])
            right.setHandler(recorder)
            right.wantsRead = true
            await loop.shutdown()
            #expect(recorder.readableCount > 0)
            #expect(right.wantsRead == !reads)
            withExtendedLifetime(left) {}
        }
    }

    @Test("a send to a peer that has closed throws an error, and SIGPIPE does not end the process")
    func peerGone() async throws {
        try await withLoop { loop in
            let (left, right) = try await SocketLink.pair(.stream, loop: loop)
            right.close()
            let error = #expect(throws: LinkError.self) { try left.send([1]) }
            #expect(error?.code == .reset)
        }
    }

    @Test("an SDU above the maximum is refused, and the link stays usable")
    func tooLarge() async throws {
        try await withLoop { loop in
            let (left, right) = try await SeqpacketPair.make(loop: loop, maximumSDU: 100)
            let error = #expect(throws: LinkError.self) {
                try left.send([UInt8](repeating: 0, count: 101))
            }
            #expect(error?.code == .tooLarge)
            try #expect(left.send([1]) == 1)
            try #expect(right.receive().bytes == [1])
        }
    }

    @Test("a closed link has no descriptor, calls no handler, and its receive throws `closed`")
    func closed() async throws {
        try await withLoop { loop in
            let (left, _) = try await SocketLink.pair(.stream, loop: loop)
            let recorder = Recorder()
            left.setHandler(recorder)
            left.wantsRead = true
            left.wantsWrite = true
            left.close()
            left.close()
            await loop.settle()
            #expect(recorder.writableCount + recorder.readableCount + recorder.hangUpCount == 0)
            #expect(left.fileDescriptor == -1)
            #expect(loop.load.sources == 0)
            let error = #expect(throws: LinkError.self) { try left.receive() }
            #expect(error?.code == .closed)
        }
    }

    @Test("a handler may close its link when it is told that bytes can be read")
    func closeInHandler() async throws {
        try await withLoop { loop in
            let (left, right) = try await SocketLink.pair(.stream, loop: loop)
            let recorder = Recorder()
            recorder.whenReadable = { right.close() }
            right.setHandler(recorder)
            right.wantsRead = true
            right.wantsWrite = true
            _ = try left.send([1])
            await loop.settle()
            #expect(recorder.readableCount == 1)
            #expect(loop.load.sources == 0)
        }
    }
}
