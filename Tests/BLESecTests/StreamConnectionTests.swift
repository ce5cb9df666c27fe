import BLESecChannelCore
import BLESecDelivery
import BLESecLinks
import BLESecLocking
import BLESecPrimitives
import Testing

@testable import BLESec

/// Streams beside the messages of a connection: see `docs/delivery.md`, "Streams".
@Suite("streams outlive links", .timeLimit(.minutes(2)))
struct StreamConnectionTests {
    /// The identities and the socket, which must outlive the connections.
    private let fixture: ReconnectFixture

    init() throws {
        var fixture = try ReconnectFixture()
        fixture.carriesDelivery = true
        self.fixture = fixture
    }

    /// Starts a dialer's and an acceptor's connection to each other; returns them in this order.
    private func sides(
        _ change: (inout PeerConnection.DeliveryOptions) -> Void = { _ in }
    ) async throws -> [PeerConnection] {
        var options = PeerConnection.DeliveryOptions()
        change(&options)
        let listener = try await fixture.listen()
        return [
            try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce(options)),
            await fixture.accepting(
                from: listener, ReconnectFixture.rules, .exactlyOnce(options)),
        ]
    }

    private static func bytes(_ count: Int, seed: UInt64) -> [UInt8] {
        var generator = SeededGenerator(seed: seed)
        return (0..<count).map { _ in UInt8.random(in: 0...255, using: &generator) }
    }

    private static func everything(from stream: PeerConnection.Stream) async throws -> [UInt8] {
        var bytes: [UInt8] = []
        while let more = try await stream.read() { bytes += more }
        return bytes
    }

    /// The next stream that the peer has opened.
    private static func next(_ connection: PeerConnection) async throws -> PeerConnection.Stream {
        for await stream in connection.incomingStreams { return stream }
        throw ChannelError(.closed, "no stream came")
    }

    private static func close(_ sides: [PeerConnection]) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for side in sides {
                group.addTask { try await side.close(within: .seconds(20)) }
                group.addTask { while try await side.receive() != nil {} }
            }
            try await group.waitForAll()
        }
    }

    @Test("a loop over messages or chunks throws if its task is cancelled, and does not just end")
    func cancelledLoops() async throws {
        let sides = try await sides()
        let outgoing = try await sides[0].open()
        try await outgoing.write([1])
        let incoming = try await Self.next(sides[1])
        #expect(try await incoming.read() == [1])
        /// Runs a loop over messages or chunks, and returns the error that ends it.
        @Sendable func endOfLoop(overMessages: Bool) async -> ChannelError.Code? {
            do throws(ChannelError) {
                if overMessages {
                    for try await _ in sides[1].messages {}
                } else {
                    for try await _ in incoming.chunks {}
                }
                return nil
            } catch { return error.code }
        }
        // One task is cancelled while it waits, and the other before it begins.
        for isWaiting in [true, false] {
            for overMessages in [true, false] {
                let task = Task {
                    while !isWaiting, !Task.isCancelled { await Task.yield() }
                    return await endOfLoop(overMessages: overMessages)
                }
                if isWaiting { try await Task.sleep(for: .milliseconds(20)) }
                task.cancel()
                #expect(await task.value == .cancelled)
            }
        }
        await outgoing.finish()
        #expect(try await incoming.read() == nil)
        for side in sides { await side.abort() }
    }

    @Test("offering a connection the channel that it uses changes nothing")
    func sameChannel() async throws {
        let sides = try await sides()
        let outgoing = try await sides[0].open()
        try await outgoing.write([1])
        let incoming = try await Self.next(sides[1])
        let channel = try #require(await sides[0].current)
        #expect(await sides[0].offer(channel))
        try await outgoing.write([2])
        var received: [UInt8] = []
        while received.count < 2, let bytes = try await incoming.read() { received += bytes }
        #expect(received == [1, 2])
        #expect(await sides[0].current === channel)
        for side in sides { await side.abort() }
    }

    @Test("despite up to 40 cuts, bytes of streams and messages arrive once and in order")
    func cuts() async throws {
        let sides = try await sides { $0.streams.window = 20_000 }
        let (streamCount, length) = (12, 150_000)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for (side, connection) in sides.enumerated() {
                // Each side echoes the bytes of every stream that the other side opens.
                group.addTask {
                    try await withThrowingTaskGroup(of: Void.self) { echoes in
                        var count = 0
                        for await stream in connection.incomingStreams {
                            count += 1
                            echoes.addTask {
                                while let bytes = try await stream.read() {
                                    try await stream.write(bytes)
                                }
                                await stream.finish()
                            }
                            if count == streamCount { break }
                        }
                        try await echoes.waitForAll()
                    }
                }
                for number in 0..<streamCount {
                    group.addTask {
                        let priority = PeerConnection.Priority.allCases[number % 3]
                        let stream = try await connection.open("\(number)", priority: priority)
                        let bytes = Self.bytes(length, seed: UInt64(2 * number + side))
                        async let echoed = Self.everything(from: stream)
                        for start in Swift.stride(from: 0, to: length, by: 7_001) {
                            try await stream.write(Array(bytes[start..<min(length, start + 7_001)]))
                            try await connection.loop.sleep(for: .milliseconds(20))
                        }
                        await stream.finish()
                        try await stream.waitUntilTaken()
                        #expect(try await echoed == bytes)
                    }
                }
                group.addTask {
                    for number in 0..<200 {
                        _ = try await connection.send(Array("\(number)".utf8))
                        try await connection.loop.sleep(for: .milliseconds(3))
                    }
                }
                group.addTask {
                    for number in 0..<200 {
                        let message = try await connection.receive()
                        #expect(message == Array("\(number)".utf8))
                    }
                }
            }
            group.addTask {
                for cut in 0..<40 {
                    try await sides[0].loop.sleep(for: .milliseconds(15))
                    await sides[cut % 2].cut()
                }
            }
            try await group.waitForAll()
        }
        try await Self.close(sides)
    }

    @Test("a stream's directions end independently; the peer gets the code of a reset or a stop")
    func ends() async throws {
        let sides = try await sides()
        let opened = try await sides[0].open("größe", priority: .urgent)
        try await opened.write(Array("to the end".utf8))
        await opened.finish()
        let accepted = try await Self.next(sides[1])
        #expect(accepted.label == "größe" && accepted.priority == .urgent && accepted.isIncoming)
        #expect(try await Self.everything(from: accepted) == Array("to the end".utf8))
        #expect(try await accepted.read() == nil)
        await #expect(throws: ChannelError(.closed, "")) { try await opened.write([1]) }
        // The other direction is still open.
        try await accepted.write([1, 2, 3])
        #expect(try await opened.read() == [1, 2, 3])
        await accepted.reset(code: 7)
        await #expect(throws: ChannelError(.streamReset, "")) {
            while try await opened.read() != nil {}
        }
        #expect(opened.resetCode == 7)
        #expect(accepted.resetCode == nil, "this side's own code is not reported")
        await #expect(throws: ChannelError(.streamReset, "")) { try await accepted.write([4]) }

        // A reader's stop ends the peer's write, even while that write waits for room.
        let second = try await sides[1].open("second")
        let writer = Task { try await second.write([UInt8](repeating: 0, count: 1 << 20)) }
        let acceptedSecond = try await Self.next(sides[0])
        _ = try await acceptedSecond.read()
        await acceptedSecond.stop(code: 9)
        await #expect(throws: ChannelError(.streamReset, "")) { try await writer.value }
        #expect(second.resetCode == 9)
        await acceptedSecond.finish()
        await #expect(throws: ChannelError(.streamReset, "")) {
            try await second.waitUntilTaken()
        }
        #expect(try await second.read() == nil)
        try await Self.close(sides)
    }

    @Test("a stream without data arrives, and the side that accepts it may write first")
    func accepterFirst() async throws {
        let sides = try await sides()
        // Only this stream wakes the accepting side: there are no messages and no other streams.
        let accepting = Task { try await Self.next(sides[1]) }
        try await sides[0].loop.sleep(for: .milliseconds(100))
        let stream = try await sides[0].open("first")
        let accepted = try await accepting.value
        try await accepted.write([1])
        await accepted.finish()
        #expect(try await Self.everything(from: stream) == [1])
        await stream.finish()
        #expect(try await accepted.read() == nil)
        try await Self.close(sides)
    }

    @Test("a stream is not taken before the peer's program has accepted it and read its bytes")
    func notTaken() async throws {
        let sides = try await sides()
        let stream = try await sides[0].open("dropped")
        try await stream.write([1, 2, 3])
        await stream.finish()
        let emptyStream = try await sides[0].open("empty")
        await emptyStream.finish()
        let isTaken = Locked(false)
        let waiting = Task {
            try await emptyStream.waitUntilTaken()
            isTaken.withLock { $0 = true }
        }
        let accepted = try await Self.next(sides[1])
        try await sides[0].loop.sleep(for: .milliseconds(200))
        #expect(!isTaken.withLock { $0 })
        await accepted.stop(code: 3)
        await #expect(throws: ChannelError(.streamReset, "")) { try await stream.waitUntilTaken() }
        let acceptedEmpty = try await Self.next(sides[1])
        try await waiting.value
        await accepted.finish()
        await acceptedEmpty.finish()
        #expect(try await stream.read() == nil)
        #expect(try await emptyStream.read() == nil)
        #expect(try await acceptedEmpty.read() == nil)
        try await Self.close(sides)
    }

    @Test("incomingStreams ends once the peer has ended and every stream and message is received")
    func noMoreStreams() async throws {
        let sides = try await sides()
        let streams = Task {
            var labels: [String] = []
            for await stream in sides[1].incomingStreams {
                labels.append(stream.label)
                await stream.finish()
                let bytes = try await stream.read()
                #expect(bytes == nil)
            }
            return labels
        }
        for label in ["a", "b"] {
            let stream = try await sides[0].open(label)
            await stream.finish()
            #expect(try await stream.read() == nil)
        }
        async let closing: Void = Self.close(sides)
        let labels = try await streams.value
        #expect(labels == ["a", "b"])
        try await closing
    }

    @Test("if a program drops its last reference to a stream, both directions are reset")
    func dropped() async throws {
        let sides = try await sides()
        var stream: PeerConnection.Stream? = try await sides[0].open("dropped")
        try await stream?.write([1])
        let accepted = try await Self.next(sides[1])
        #expect(try await accepted.read() == [1])
        stream = nil
        await #expect(throws: ChannelError(.streamReset, "")) { try await accepted.read() }
        await #expect(throws: ChannelError(.streamReset, "")) {
            while true { try await accepted.write([UInt8](repeating: 0, count: 10_000)) }
        }
        try await Self.close(sides)
    }

    @Test(
        "while no program reads, messages and streams take bounded memory; everything arrives later"
    )
    func full() async throws {
        let window = 10_000
        let sides = try await sides { options in
            options.streams.maximumOpen = 8
            options.streams.window = window
            options.maximumBytes = 1 << 20
        }
        let (count, length) = (300, 20_000)
        try await withThrowingTaskGroup(of: Void.self) { group in
            let mayRead = Locked(false)
            let streamBytes = Self.bytes(500_000, seed: 3)
            for connection in sides {
                group.addTask {
                    for number in 0..<count {
                        _ = try await connection.send(
                            [UInt8(number % 256)] + [UInt8](repeating: 0, count: length))
                    }
                }
                for number in 0..<8 {
                    group.addTask {
                        let stream = try await connection.open("\(number)")
                        try await stream.write(streamBytes)
                        await stream.finish()
                        try await stream.waitUntilTaken()
                        #expect(try await stream.read() == nil)
                    }
                }
                // The ninth stream opens when one of the eight is over.
                group.addTask {
                    try await connection.loop.sleep(for: .milliseconds(300))
                    let stream = try await connection.open("ninth")
                    #expect(mayRead.withLock { $0 })
                    try await stream.write([9])
                    await stream.finish()
                    #expect(try await stream.read() == nil)
                }
                group.addTask {
                    while !mayRead.withLock({ $0 }) {
                        try await connection.loop.sleep(for: .milliseconds(20))
                    }
                    try await withThrowingTaskGroup(of: Void.self) { readers in
                        readers.addTask {
                            for number in 0..<count {
                                let message = try await connection.receive()
                                #expect(message?.first == UInt8(number % 256))
                            }
                        }
                        var accepted = 0
                        for await stream in connection.incomingStreams {
                            accepted += 1
                            readers.addTask {
                                let bytes = try await Self.everything(from: stream)
                                #expect(bytes == streamBytes || bytes == [9])
                                await stream.finish()
                            }
                            if accepted == 9 { break }
                        }
                        try await readers.waitForAll()
                    }
                }
            }
            group.addTask {
                try await sides[0].loop.sleep(for: .seconds(1))
                for connection in sides {
                    let lane = try #require(await connection.lane)
                    #expect(lane.pendingCount < count)
                    let keptBytes = lane.changeStreams { $0.keptBytes }
                    // This side's eight streams and the peer's eight are full: each keeps at
                    // least one window of bytes.
                    #expect((16 * window...2 * 16 * window).contains(keptBytes), "\(keptBytes)")
                }
                mayRead.withLock { $0 = true }
            }
            try await group.waitForAll()
        }
        try await Self.close(sides)
    }

    @Test(
        "streams work in both directions if one side's window is small", arguments: [1_000, 60_000])
    func differentWindows(smallWindow: Int) async throws {
        var options = PeerConnection.DeliveryOptions()
        options.streams.window = smallWindow
        let listener = try await fixture.listen()
        let dialer = try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce(options))
        options.streams.window = 200_000
        let acceptor = await fixture.accepting(
            from: listener, ReconnectFixture.rules, .exactlyOnce(options))
        let bytes = Self.bytes(200_000, seed: 4)
        for (opener, peer) in [(dialer, acceptor), (acceptor, dialer)] {
            let stream = try await opener.open()
            async let written: Void = stream.write(bytes)
            let accepted = try await Self.next(peer)
            await accepted.finish()
            async let read = Self.everything(from: accepted)
            try await written
            await stream.finish()
            #expect(try await read == bytes)
            #expect(try await stream.read() == nil)
        }
        try await Self.close([dialer, acceptor])
    }

    @Test("a full stream, and messages that the program does not receive, block no other stream")
    func independent() async throws {
        let sides = try await sides()
        let fullStream = try await sides[0].open("full", priority: .urgent)
        let writer = Task { try await fullStream.write([UInt8](repeating: 1, count: 1 << 20)) }
        let messages = Task {
            for _ in 0..<100 { _ = try await sides[0].send([UInt8](repeating: 2, count: 100_000)) }
        }
        let acceptedFull = try await Self.next(sides[1])
        let freeStream = try await sides[0].open("free", priority: .bulk)
        let bytes = Self.bytes(300_000, seed: 1)
        async let sent: Void = freeStream.write(bytes)
        let acceptedFree = try await Self.next(sides[1])
        var arrived: [UInt8] = []
        while arrived.count < bytes.count {
            arrived += try #require(try await acceptedFree.read())
        }
        #expect(arrived == bytes)
        try await sent
        await freeStream.finish()
        await acceptedFree.finish()
        // Now the bytes of the full stream and the messages are taken.
        #expect(acceptedFull.label == "full")
        var count = 0
        while count < 1 << 20 { count += try #require(try await acceptedFull.read()).count }
        try await writer.value
        await fullStream.finish()
        await acceptedFull.finish()
        #expect(try await acceptedFull.read() == nil)
        #expect(try await fullStream.read() == nil)
        for _ in 0..<100 { #expect(try await sides[1].receive()?.count == 100_000) }
        try await messages.value
        #expect(try await acceptedFree.read() == nil)
        #expect(try await freeStream.read() == nil)
        try await Self.close(sides)
    }

    @Test("when a new connection replaces the peer's connection, streams end with sessionLost")
    func replaced() async throws {
        let listener = try await fixture.listen()
        let dialer = try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce())
        let first = await fixture.accepting(from: listener, ReconnectFixture.rules, .exactlyOnce())
        let stream = try await dialer.open("first")
        try await stream.write([1, 2])
        let accepted = try await Self.next(first)
        #expect(try await accepted.read() == [1, 2])
        try await accepted.write([3])
        #expect(try await stream.read() == [3])
        try await accepted.write([4])
        let lane = try #require(await dialer.lane)
        while !lane.changeStreams({ $0.canRead(stream.handle) }) {
            try await dialer.loop.sleep(for: .milliseconds(5))
        }
        try? await first.leave(within: .milliseconds(1))
        await #expect(throws: ChannelError(.closed, "")) { try await accepted.write([5]) }
        let secondListener = try await fixture.listen()
        let second = await fixture.accepting(
            from: secondListener, ReconnectFixture.rules, .exactlyOnce())
        // Bytes that had arrived can still be read.
        #expect(try await stream.read() == [4])
        await #expect(throws: ChannelError(.sessionLost, "")) { try await stream.read() }
        await #expect(throws: ChannelError(.sessionLost, "")) { try await stream.write([1]) }
        #expect(await dialer.lostStreamCount == 1)
        let secondStream = try await dialer.open("second")
        try await secondStream.write([6])
        await secondStream.finish()
        let secondAccepted = try await Self.next(second)
        #expect(secondAccepted.label == "second")
        await secondAccepted.finish()
        #expect(try await Self.everything(from: secondAccepted) == [6])
        #expect(try await secondStream.read() == nil)
        try await Self.close([dialer, second])
        await #expect(throws: ChannelError(.sessionLost, "")) { try await stream.write([1]) }
    }

    @Test("a connection closes when its streams are over, and not before")
    func closing() async throws {
        let sides = try await sides()
        let stream = try await sides[0].open()
        try await stream.write([1])
        await stream.finish()
        let accepted = try await Self.next(sides[1])
        let closings = sides.map { side in Task { try await side.close(within: .seconds(20)) } }
        try await sides[0].loop.sleep(for: .milliseconds(300))
        #expect(await sides[0].status.state != .closed)
        #expect(try await Self.everything(from: accepted) == [1])
        // A stream that was opened before the close can still be used.
        try await accepted.write([2])
        await accepted.finish()
        #expect(try await Self.everything(from: stream) == [2])
        for closing in closings { try await closing.value }
        await #expect(throws: ChannelError(.closed, "")) { try await sides[0].open() }
    }

    @Test("after its connection has closed, a stream still reports how it ended")
    func endedBeforeClosing() async throws {
        let sides = try await sides()
        // Before the connection closes, the writer makes no call that would report the peer's stop.
        let stopped = try await sides[0].open("stopped")
        try await stopped.write([1, 2])
        let acceptedStopped = try await Self.next(sides[1])
        #expect(try await acceptedStopped.read() == [1, 2])
        await acceptedStopped.stop(code: 9)
        await acceptedStopped.finish()
        let taken = try await sides[0].open("taken")
        try await taken.write([3])
        await taken.finish()
        let acceptedTaken = try await Self.next(sides[1])
        #expect(try await Self.everything(from: acceptedTaken) == [3])
        await acceptedTaken.reset(code: 7)
        #expect(try await stopped.read() == nil)
        await #expect(throws: ChannelError(.streamReset, "")) { try await taken.read() }
        try await Self.close(sides)
        #expect(await sides[0].status.state == .closed)

        await #expect(throws: ChannelError(.streamReset, "")) { try await stopped.write([4]) }
        await #expect(throws: ChannelError(.streamReset, "")) {
            try await stopped.waitUntilTaken()
        }
        #expect(stopped.resetCode == 9)
        #expect(try await stopped.read() == nil)
        try await taken.waitUntilTaken()
        await #expect(throws: ChannelError(.streamReset, "")) { try await taken.read() }
        await #expect(throws: ChannelError(.streamReset, "")) { try await acceptedTaken.write([5]) }
        #expect(try await acceptedTaken.read() == nil)
    }

    @Test("a close that waits for a stream until its deadline fails with unacknowledged")
    func unacknowledged() async throws {
        let sides = try await sides()
        let stream = try await sides[0].open()
        try await stream.write([1])
        let accepted = try await Self.next(sides[1])
        async let peerClosing: Void? = try? sides[1].close(within: .milliseconds(500))
        await #expect(throws: ChannelError(.unacknowledged, "")) {
            try await sides[0].close(within: .milliseconds(500))
        }
        _ = await peerClosing
        await #expect(throws: ChannelError.self) { while true { try await accepted.write([1]) } }
    }

    @Test("open fails if the label is too long, or if the connection has no delivery")
    func refused() async throws {
        let sides = try await sides()
        await #expect(throws: ChannelError(.limitExceeded, "")) {
            try await sides[0].open(String(repeating: "x", count: 256))
        }
        for side in sides { await side.abort() }
        let fixture = try ReconnectFixture()
        let listener = try await fixture.listen()
        let plain = await fixture.accepting(from: listener, ReconnectFixture.rules)
        await #expect(throws: ChannelError(.configuration, "")) { try await plain.open() }
        await plain.abort()
    }
}
