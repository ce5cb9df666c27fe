import BLESecChannelCore
import BLESecDelivery
import BLESecLinks
import BLESecLocking
import BLESecPrimitives
import BLESecTesting
import Testing

@testable import BLESec

/// Connections whose messages outlive links: see `docs/delivery.md`.
@Suite("messages arrive exactly once", .timeLimit(.minutes(2)))
struct ExactlyOnceTests {
    private static func fixture() throws -> ReconnectFixture {
        var fixture = try ReconnectFixture()
        fixture.carriesDelivery = true
        return fixture
    }

    private static func exactlyOnce(
        _ change: (inout PeerConnection.DeliveryOptions) -> Void = { _ in }
    ) -> PeerConnection.Guarantee {
        var options = PeerConnection.DeliveryOptions()
        change(&options)
        return .exactlyOnce(options)
    }

    private static func message(_ number: Int, _ length: Int = 0) -> [UInt8] {
        Array("\(number) ".utf8) + [UInt8](repeating: 46, count: length)
    }

    private static func number(_ message: [UInt8]) -> Int? {
        Int(String(decoding: message.prefix { $0 != 32 }, as: UTF8.self))
    }

    /// Receives everything up to the peer's end.
    private static func everything(from connection: PeerConnection) async throws -> [Int] {
        var numbers: [Int] = []
        while let message = try await connection.receive() {
            numbers.append(try #require(number(message)))
        }
        return numbers
    }

    @Test(
        "every message arrives once and in order despite 40 cuts, and both sides close",
        arguments: [false, true])
    func cuts(onOtherLoops: Bool) async throws {
        let fixture = try Self.fixture()
        let loops = onOtherLoops ? [EventLoop(name: "one"), EventLoop(name: "two")] : []
        let listener = try await fixture.listen(channelLoops: loops)
        let sides = [
            try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce()),
            await fixture.accepting(from: listener, ReconnectFixture.rules, .exactlyOnce()),
        ]
        let count = 2_000
        let received = Locked([[Int](), [Int]()])
        try await withThrowingTaskGroup(of: Void.self) { group in
            for (side, connection) in sides.enumerated() {
                group.addTask {
                    let numbers = try await Self.everything(from: connection)
                    received.withLock { $0[side] = numbers }
                }
                group.addTask {
                    var generator = SeededGenerator(seed: UInt64(side))
                    for number in 0..<count {
                        let length = Int.random(in: 0...1_000, using: &generator)
                        _ = try await connection.send(
                            Self.message(number, number % 100 == 0 ? 100 * length : length))
                        if number % 20 == 19 {
                            try await connection.loop.sleep(for: .milliseconds(3))
                        }
                    }
                    try await connection.close(within: .seconds(20))
                }
                group.addTask {
                    var numbers: [UInt64] = []
                    for await (number, fate) in connection.deliveries where numbers.count < count {
                        #expect(fate == .delivered)
                        numbers.append(number)
                        if numbers.count == count { break }
                    }
                    #expect(numbers == Array(1...UInt64(count)))
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
        #expect(received.withLock { $0 } == [Array(0..<count), Array(0..<count)])
        for loop in loops { await loop.shutdown() }
    }

    @Test("a message is delivered when the peer's program has taken or confirmed it")
    func confirmed() async throws {
        let fixture = try Self.fixture()
        let listener = try await fixture.listen()
        let dialer = try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce())
        let acceptor = await fixture.accepting(
            from: listener, ReconnectFixture.rules,
            Self.exactlyOnce { $0.acknowledgement = .manual })
        let isDelivered = Locked(false)
        let sent = Task {
            let fate = try await dialer.deliver(Self.message(1))
            isDelivered.withLock { $0 = true }
            return fate
        }
        #expect(try await acceptor.receive() == Self.message(1))
        // The links are lost before the message is confirmed, and the message still arrives once.
        for _ in 0..<2 {
            let lost = try #require(await acceptor.current)
            await acceptor.cut()
            // The next cut has to hit the next link.
            while true {
                if let next = await acceptor.current, next !== lost { break }
                try await acceptor.loop.sleep(for: .milliseconds(5))
            }
            await dialer.wait(for: .connected)
        }
        _ = try await dialer.send(Self.message(2))
        #expect(try await acceptor.receive() == Self.message(2))
        try await dialer.loop.sleep(for: .milliseconds(100))
        #expect(!isDelivered.withLock { $0 })
        try await acceptor.confirm(through: 1)
        #expect(try await sent.value == .delivered)
        await #expect(throws: ChannelError(.configuration, "")) {
            try await acceptor.confirm(through: 3)
        }
        try await acceptor.confirm(through: acceptor.lastReceived)
        async let closing: Void = dialer.close()
        #expect(try await acceptor.receive() == nil)
        try await acceptor.close()
        try await closing
    }

    @Test("the loop's shutdown ends a waiting receive and a waiting close, and a later close fails")
    func shutdown() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels { $1.carriesDelivery = true }
        let connection = await PeerConnection.start(
            .offered, delivery: .exactlyOnce(), loop: fixture.loop)
        let peer = await PeerConnection.start(
            .offered, delivery: .exactlyOnce(), loop: fixture.loop)
        #expect(await connection.offer(dialer))
        #expect(await peer.offer(acceptor))
        // The peer's program never takes the message, so the close has to wait.
        _ = try await connection.send(Self.message(1))
        let waiting = [
            Task(executorPreference: fixture.loop) { _ = try await connection.receive() },
            Task(executorPreference: fixture.loop) {
                try await connection.close(within: .seconds(20))
            },
        ]
        await fixture.clock.settle()
        await fixture.loop.shutdown()
        for task in waiting { #expect(await failure(of: task) == .closed) }
        let closing = Task { try await connection.close(within: .seconds(20)) }
        #expect(await failure(of: closing) == .closed)
        try await peer.leave(within: .seconds(20))
    }

    @Test(
        "the error of a close after a leave says that the connection was ended, and names no time limit"
    )
    func closeAfterLeave() async throws {
        let connection = await PeerConnection.start(.offered, delivery: .exactlyOnce())
        _ = try await connection.send(Self.message(1))
        try await connection.leave()
        let error = await #expect(throws: ChannelError(.unacknowledged, "")) {
            try await connection.close()
        }
        #expect(
            error?.reason
                == "the connection was ended before both sides had confirmed everything")
    }

    /// Two connections on the fixture's loop, with a channel between them.
    private static func sides(
        _ fixture: ChannelFixture
    ) async throws -> (dialer: PeerConnection, acceptor: PeerConnection) {
        let channels = try await fixture.channels { $1.carriesDelivery = true }
        return try await sides(fixture, channels.dialer, channels.acceptor)
    }

    private static func sides(
        _ fixture: ChannelFixture, _ dialerChannel: SecureChannel, _ acceptorChannel: SecureChannel
    ) async throws -> (dialer: PeerConnection, acceptor: PeerConnection) {
        let dialer = await PeerConnection.start(
            .offered, delivery: .exactlyOnce(), loop: fixture.loop)
        let acceptor = await PeerConnection.start(
            .offered, delivery: .exactlyOnce(), loop: fixture.loop)
        #expect(await dialer.offer(dialerChannel))
        #expect(await acceptor.offer(acceptorChannel))
        await fixture.clock.settle()
        return (dialer, acceptor)
    }

    @Test("both sides close, although one program takes a message only every nine seconds")
    func slowReader() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await Self.sides(fixture)
        for number: UInt8 in 0..<10 { _ = try await dialer.send([number]) }
        let closings = [dialer, acceptor].map { side in
            Task(executorPreference: fixture.loop) { try await side.close() }
        }
        for number: UInt8 in 0..<10 {
            await fixture.clock.advance(by: .seconds(9))
            #expect(try await acceptor.receive() == [number])
        }
        for closing in closings { await fixture.advance(until: closing) }
        await fixture.finish()
    }

    @Test("both sides close if the idle timeout is the longest duration")
    func longestIdleTimeout() async throws {
        let fixture = try ChannelFixture()
        let channels = try await fixture.channels {
            $1.carriesDelivery = true
            $1.timeouts.idle = Duration(attoseconds: .max)
        }
        let (dialer, acceptor) = try await Self.sides(fixture, channels.dialer, channels.acceptor)
        let closings = [dialer, acceptor].map { side in
            Task(executorPreference: fixture.loop) { try await side.close() }
        }
        for closing in closings { await fixture.advance(until: closing) }
        await fixture.finish()
    }

    private typealias Channels = (dialer: SecureChannel, acceptor: SecureChannel)
    private typealias Links = (dialer: FaultyLink, acceptor: FaultyLink)

    /// The two sides of a channel, and the ends of its link.
    private static func channels(
        _ fixture: ChannelFixture, change: (inout ChannelConfiguration) -> Void = { _ in }
    ) async throws -> (channels: Channels, links: Links) {
        let links = await fixture.links()
        let dialer = try fixture.channel(over: links.dialer, .dialer) {
            $0.carriesDelivery = true
            change(&$0)
        }
        let acceptor = try fixture.channel(over: links.acceptor, .acceptor) {
            $0.carriesDelivery = true
            change(&$0)
        }
        for opening in [dialer, acceptor].map({ fixture.opening($0) }) { try await opening.value }
        return ((dialer, acceptor), links)
    }

    /// Two connections, of which the acceptor is complete and the dialer is not. Nothing of the
    /// acceptor arrives, until its end of the link is released.
    private static func halfComplete(
        _ fixture: ChannelFixture
    ) async throws -> (dialer: PeerConnection, acceptor: PeerConnection, links: Links) {
        let (channels, links) = try await Self.channels(fixture)
        let (dialer, acceptor) = try await sides(fixture, channels.dialer, channels.acceptor)
        await acceptor.finish()
        await fixture.clock.settle()
        await fixture.loop.run { links.acceptor.hold() }
        await dialer.finish()
        await fixture.clock.settle()
        #expect(try await acceptor.receive() == nil)
        await fixture.clock.settle()
        #expect(await acceptor.isSettled)
        #expect(await !dialer.isSettled)
        return (dialer, acceptor, links)
    }

    private static func cut(_ links: Links, _ fixture: ChannelFixture) async {
        await fixture.loop.run {
            links.dialer.cut()
            links.acceptor.cut()
        }
        await fixture.clock.settle()
    }

    @Test("after a link that died silently, a complete side stays reachable for 30 seconds")
    func silentLoss() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor, _) = try await Self.halfComplete(fixture)
        let hasClosed = Locked(false)
        let closing = Task(executorPreference: fixture.loop) {
            try await acceptor.close()
            hasClosed.withLock { $0 = true }
        }
        var seconds = 0
        while await acceptor.current != nil, seconds < 200 {
            await fixture.clock.advance(by: .seconds(1))
            seconds += 1
        }
        #expect((31..<200).contains(seconds))
        await fixture.clock.advance(by: .seconds(25))
        #expect(!hasClosed.withLock { $0 })
        let next = try await fixture.channels { $1.carriesDelivery = true }
        #expect(await dialer.offer(next.dialer))
        #expect(await acceptor.offer(next.acceptor))
        let dialerClosing = Task(executorPreference: fixture.loop) { try await dialer.close() }
        for task in [dialerClosing, closing] {
            await fixture.advance(until: task)
            try await task.value
        }
        await fixture.finish()
    }

    @Test("a link that comes within 30 seconds without a link stays until the peer has ended it")
    func linkInTime() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor, links) = try await Self.halfComplete(fixture)
        await Self.cut(links, fixture)
        let hasClosed = Locked(false)
        let closing = Task(executorPreference: fixture.loop) {
            try await acceptor.close()
            hasClosed.withLock { $0 = true }
        }
        await fixture.clock.advance(by: .milliseconds(29_500))
        let (channels, next) = try await Self.channels(fixture)
        // The link needs longer than the rest of the 30 seconds to carry anything.
        await fixture.loop.run {
            next.dialer.hold()
            next.acceptor.hold()
        }
        #expect(await dialer.offer(channels.dialer))
        #expect(await acceptor.offer(channels.acceptor))
        let dialerClosing = Task(executorPreference: fixture.loop) { try await dialer.close() }
        await fixture.clock.advance(by: .seconds(1))
        #expect(!hasClosed.withLock { $0 })
        await fixture.loop.run {
            next.dialer.release()
            next.acceptor.release()
        }
        for task in [dialerClosing, closing] {
            await fixture.advance(until: task)
            try await task.value
        }
        await fixture.finish()
    }

    @Test("the loss of another link begins the 30 seconds of a complete side again")
    func shortLink() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor, links) = try await Self.halfComplete(fixture)
        let endTime = Locked(MonotonicTime.distantFuture)
        let closing = Task(executorPreference: fixture.loop) {
            try await acceptor.close()
            endTime.withLock { $0 = fixture.clock.now }
        }
        await fixture.clock.settle()
        await Self.cut(links, fixture)
        await fixture.clock.advance(by: .seconds(29))
        let (channels, next) = try await Self.channels(fixture)
        await fixture.loop.run { next.acceptor.hold() }
        #expect(await acceptor.offer(channels.acceptor))
        await fixture.clock.advance(by: .milliseconds(500))
        await Self.cut(next, fixture)
        let lossTime = fixture.clock.now
        await fixture.advance(until: closing)
        let waited = endTime.withLock { $0 }.duration(since: lossTime)
        #expect(waited >= .seconds(30) && waited < .seconds(31))
        await channels.dialer.abort()
        await dialer.abort()
        await fixture.loop.shutdown()
    }

    @Test("a close that is cancelled while it waits for the peer to end can be called again")
    func cancelledClose() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor, links) = try await Self.halfComplete(fixture)
        let cancelled = Task(executorPreference: fixture.loop) { try await acceptor.close() }
        await fixture.clock.advance(by: .seconds(1))
        cancelled.cancel()
        #expect(await failure(of: cancelled) == .cancelled)
        #expect(await acceptor.status.state == .connected)
        let closings = [acceptor, dialer].map { side in
            Task(executorPreference: fixture.loop) { try await side.close() }
        }
        await fixture.clock.settle()
        await fixture.loop.run { links.acceptor.release() }
        for closing in closings {
            await fixture.advance(until: closing)
            try await closing.value
        }
        await fixture.finish()
    }

    @Test("without a link, close waits for the close timeout of the last channel")
    func limitWithoutLink() async throws {
        let fixture = try ChannelFixture()
        let (channels, links) = try await Self.channels(fixture) {
            $0.timeouts.close = .seconds(50)
        }
        let (dialer, acceptor) = try await Self.sides(
            fixture, channels.dialer, channels.acceptor)
        _ = try await dialer.send([1])
        await fixture.clock.settle()
        await Self.cut(links, fixture)
        let startTime = fixture.clock.now
        let endTime = Locked(MonotonicTime.distantFuture)
        let closing = Task(executorPreference: fixture.loop) {
            defer { endTime.withLock { $0 = fixture.clock.now } }
            try await dialer.close()
        }
        await fixture.clock.advance(by: .seconds(60))
        #expect(await failure(of: closing) == .unacknowledged)
        let waited = endTime.withLock { $0 }.duration(since: startTime)
        #expect(waited >= .seconds(50) && waited < .seconds(51))
        await acceptor.abort()
        await fixture.loop.shutdown()
    }

    @Test(
        "a close fails when its limit has passed since the last part of a message left or arrived",
        arguments: [true, false])
    func lateProgress(ofSender: Bool) async throws {
        let fixture = try ChannelFixture()
        let (channels, links) = try await Self.channels(fixture)
        let (dialer, acceptor) = try await Self.sides(
            fixture, channels.dialer, channels.acceptor)
        await fixture.loop.run { links.dialer.hold() }
        _ = try await dialer.send([UInt8](repeating: 1, count: 1 << 20))
        let closingSide = ofSender ? dialer : acceptor
        let endTime = Locked(MonotonicTime.distantFuture)
        let closing = Task(executorPreference: fixture.loop) {
            defer { endTime.withLock { $0 = fixture.clock.now } }
            try await closingSide.close(within: .seconds(10))
        }
        await fixture.clock.advance(by: .seconds(5))
        // The acceptor gets only a part of the message if it is the side that closes.
        await fixture.loop.run {
            links.dialer.release()
            if !ofSender { links.dialer.hold() }
        }
        await fixture.clock.settle()
        let progressTime = fixture.clock.now
        await fixture.clock.advance(by: .seconds(30))
        #expect(await failure(of: closing) != nil)
        let waited = endTime.withLock { $0 }.duration(since: progressTime)
        #expect(waited >= .seconds(10) && waited < .seconds(11))
        for side in [dialer, acceptor] { await side.abort() }
        await fixture.loop.shutdown()
    }

    @Test("a close fails after its limit if links come and go, and nothing arrives")
    func repeatedFrames() async throws {
        let fixture = try ChannelFixture()
        var (channels, links) = try await Self.channels(fixture)
        let (dialer, acceptor) = try await Self.sides(
            fixture, channels.dialer, channels.acceptor)
        let firstEnd = links.dialer
        await fixture.loop.run { firstEnd.hold() }
        _ = try await dialer.send([1])
        let startTime = fixture.clock.now
        await acceptor.lane?.measureProgress(from: startTime)
        let endTime = Locked(MonotonicTime.distantFuture)
        let closing = Task(executorPreference: fixture.loop) {
            defer { endTime.withLock { $0 = fixture.clock.now } }
            try await dialer.close(within: .seconds(10))
        }
        for _ in 0..<6 {
            await fixture.clock.advance(by: .seconds(4))
            await Self.cut(links, fixture)
            (channels, links) = try await Self.channels(fixture)
            let dialerEnd = links.dialer
            await fixture.loop.run { dialerEnd.hold() }
            await dialer.offer(channels.dialer)
            await acceptor.offer(channels.acceptor)
            await fixture.clock.settle()
        }
        await fixture.clock.advance(by: .seconds(60))
        #expect(await failure(of: closing) == .unacknowledged)
        let waited = endTime.withLock { $0 }.duration(since: startTime)
        #expect(waited >= .seconds(10) && waited < .seconds(11))
        #expect(await acceptor.lane?.lastProgressTime == startTime)
        for side in [dialer, acceptor] { await side.abort() }
        await fixture.loop.shutdown()
    }

    @Test("a leave after the end returns as soon as the peer has confirmed the end")
    func leaveAfterEnd() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await Self.sides(fixture)
        let startTime = fixture.clock.now
        let leaving = Task(executorPreference: fixture.loop) {
            await dialer.finish()
            try await dialer.leave()
        }
        await fixture.advance(until: leaving)
        #expect(fixture.clock.now < startTime.advanced(by: .seconds(5)))
        await acceptor.shut(nil)
        await fixture.finish()
    }

    @Test("once the peer's end has arrived, incomingStreams ends when the last message is received")
    func streamsEnd() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await Self.sides(fixture)
        _ = try await dialer.send([1])
        await dialer.finish()
        await fixture.clock.advance(by: .milliseconds(100))
        let hasEnded = Locked(false)
        let streams = Task(executorPreference: fixture.loop) {
            for await _ in acceptor.incomingStreams {}
            hasEnded.withLock { $0 = true }
        }
        await fixture.clock.settle()
        #expect(!hasEnded.withLock { $0 })
        #expect(try await acceptor.receive() == [1])
        await fixture.clock.settle()
        #expect(hasEnded.withLock { $0 })
        for side in [dialer, acceptor] { await side.shut(nil) }
        await streams.value
        await fixture.finish()
    }

    @Test("both sides can deliver before they receive")
    func bothDeliver() async throws {
        let fixture = try Self.fixture()
        let listener = try await fixture.listen()
        let dialer = try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce())
        let acceptor = await fixture.accepting(
            from: listener, ReconnectFixture.rules, .exactlyOnce())
        let count = 3_000
        try await withThrowingTaskGroup(of: Void.self) { group in
            for connection in [dialer, acceptor] {
                // All messages together are longer than what the peer reads ahead, so some of them
                // stay here until the peer's program receives.
                let sent = try await Self.sendMessages(count, on: connection)
                group.addTask {
                    for pending in sent { #expect(await pending.delivery() == .delivered) }
                }
            }
            for connection in [dialer, acceptor] {
                group.addTask {
                    for number in 0..<count {
                        #expect(try await connection.receive() == Self.message(number, 1_000))
                    }
                    try await connection.close(within: .seconds(20))
                }
            }
            try await group.waitForAll()
        }
    }

    private static func sendMessages(
        _ count: Int, on connection: PeerConnection
    ) async throws -> [PendingDelivery] {
        var sent: [PendingDelivery] = []
        for number in 0..<count {
            sent.append(try await connection.send(message(number, 1_000)))
        }
        return sent
    }

    @Test("a full connection waits or throws, and a message that never fits throws at once")
    func full() async throws {
        let fixture = try Self.fixture()
        let listener = try await fixture.listen()
        let setBounds: (inout PeerConnection.DeliveryOptions) -> Void = {
            $0.maximumMessages = 3
            $0.maximumBytes = 1_000
            $0.maximumMessageLength = 900
        }
        let dialer = try await fixture.dialing(
            ReconnectFixture.rules,
            Self.exactlyOnce {
                setBounds(&$0)
                $0.whenFull = .fail
            })
        await #expect(throws: ChannelError(.limitExceeded, "")) {
            _ = try await dialer.send([UInt8](repeating: 0, count: 901))
        }
        for _ in 0..<3 { _ = try await dialer.send([1]) }
        await #expect(throws: ChannelError(.limitExceeded, "")) { _ = try await dialer.send([1]) }
        let acceptor = await fixture.accepting(
            from: listener, ReconnectFixture.rules, Self.exactlyOnce(setBounds))
        for _ in 0..<3 { #expect(try await acceptor.receive() == [1]) }
        let big = [UInt8](repeating: 2, count: 900)
        let sending = Task {
            for _ in 0..<4 { _ = try await acceptor.send(big) }
            try await acceptor.close(within: .seconds(20))
        }
        for _ in 0..<4 { #expect(try await dialer.receive() == big) }
        #expect(try await dialer.receive() == nil)
        try await dialer.close()
        try await sending.value
    }

    @Test(
        "if the peer's process ends, the fate of a message that it may have received is unknown; later messages reach its new process"
    )
    func lostPeer() async throws {
        let fixture = try Self.fixture()
        let dialer = try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce())
        let first = await fixture.accepting(
            from: try await fixture.listen(), ReconnectFixture.rules,
            Self.exactlyOnce { $0.acknowledgement = .manual })
        let confirmed = try await dialer.send([1])
        let unconfirmed = try await dialer.send([2])
        #expect(try await first.receive() == [1])
        try await first.confirm(through: 1)
        #expect(await confirmed.delivery() == .delivered)
        #expect(try await first.receive() == [2])
        await first.abort()
        await dialer.wait(for: .backingOff)
        let later = try await dialer.send([3])
        let second = await fixture.accepting(
            from: try await fixture.listen(), ReconnectFixture.rules, .exactlyOnce())
        #expect(await unconfirmed.delivery() == .unknown)
        #expect(try await second.receive() == [3])
        #expect(await later.delivery() == .delivered)
        // `deliveries` reports the same fates as `delivery()`, and asking again does not change
        // them.
        var fates: [Delivery] = []
        for await (_, fate) in dialer.deliveries {
            fates.append(fate)
            if fates.count == 3 { break }
        }
        #expect(fates == [.delivered, .unknown, .delivered])
        #expect(await unconfirmed.delivery() == .unknown)
        async let closing: Void = dialer.close()
        #expect(try await second.receive() == nil)
        try await second.close()
        try await closing
    }

    @Test("if a peer that has finished is started again and sends more, the connection closes")
    func peerStartedAgain() async throws {
        let fixture = try Self.fixture()
        let acceptor = await fixture.accepting(
            from: try await fixture.listen(), ReconnectFixture.rules, .exactlyOnce())
        let first = try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce())
        _ = try await first.send([1])
        await first.finish()
        #expect(try await acceptor.receive() == [1])
        #expect(try await acceptor.receive() == nil)
        await first.abort()
        let second = try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce())
        _ = try await second.send([2])
        await acceptor.wait(for: .closed)
        #expect(await acceptor.status.failure?.code == .sessionLost)
        await #expect(throws: ChannelError(.sessionLost, "")) { try await acceptor.close() }
        await second.abort()
    }

    @Test("both sides close, even if links are cut while the two ends are exchanged")
    func cutsBetweenEnds() async throws {
        for round in 0..<10 {
            let fixture = try Self.fixture()
            let listener = try await fixture.listen()
            let sides = [
                try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce()),
                await fixture.accepting(from: listener, ReconnectFixture.rules, .exactlyOnce()),
            ]
            try await withThrowingTaskGroup(of: Void.self) { group in
                for side in sides {
                    group.addTask {
                        _ = try await side.send([1])
                        #expect(try await side.receive() == [1])
                        // This side closes later, so cuts happen while the ends are exchanged.
                        if side === sides[0] {
                            try await side.loop.sleep(for: .milliseconds(20 + round))
                        }
                        try await side.close(within: .seconds(20))
                    }
                }
                group.addTask {
                    for cut in 0..<(round % 4) {
                        try await sides[0].loop.sleep(for: .milliseconds(8))
                        guard await sides.first?.isSettled == false else { return }
                        await sides[cut % 2].cut()
                    }
                }
                try await group.waitForAll()
            }
        }
    }

    @Test("a close fails with unacknowledged if the peer's program takes no message")
    func unacknowledged() async throws {
        let fixture = try Self.fixture()
        let listener = try await fixture.listen()
        let dialer = try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce())
        let acceptor = await fixture.accepting(
            from: listener, ReconnectFixture.rules, .exactlyOnce())
        _ = try await dialer.send([1])
        await acceptor.wait(for: .connected)
        while await acceptor.lane?.canTake != true {
            try await dialer.loop.sleep(for: .milliseconds(5))
        }
        await #expect(throws: ChannelError(.unacknowledged, "")) {
            try await dialer.close(within: .milliseconds(300))
        }
        #expect(try await acceptor.receive() == [1])
        await #expect(throws: ChannelError.self) {
            try await acceptor.close(within: .milliseconds(300))
        }
    }

    @Test("a channel that was told of a message is told of no other until it asks for a record")
    func burst() throws {
        let lane = MessageLane(PeerConnection.DeliveryOptions())
        defer { lane.end() }
        /// Sends a message, and returns whether a channel has to be told of it.
        func mustTellAfterSending() throws -> Bool {
            try #require(try lane.send([1], noting: nil)).mustTellChannel
        }
        // Without a link no channel can be told, so no message counts as told.
        #expect(try [mustTellAfterSending(), mustTellAfterSending()] == [true, true])
        for _ in 0..<2 {
            let port = lane.beginLink(to: .anonymous)
            #expect(try mustTellAfterSending())
            #expect(try [mustTellAfterSending(), mustTellAfterSending()] == [false, false])
            _ = port.nextRecord(atMost: 1_000) { _ in true }
            #expect(try [mustTellAfterSending(), mustTellAfterSending()] == [true, false])
        }
    }

    @Test(
        "a channel is told of owed confirmations at the first one, and again when they must leave")
    func owedConfirmations() throws {
        let lanes = [0, 1].map { _ in MessageLane(PeerConnection.DeliveryOptions()) }
        defer { for lane in lanes { lane.end() } }
        var ports = lanes.map { $0.beginLink(to: .anonymous) }
        /// Passes the records of `side` to the other side until there is none; confirmations leave
        /// only if they are `due`.
        func pass(from side: Int, due: Bool) throws {
            while let record = ports[side].nextRecord(atMost: 1_000, confirms: { _ in due }) {
                _ = try ports[1 - side].receive(record)
            }
        }
        for side in [0, 1] { try pass(from: side, due: true) }
        for _ in 0..<40 { _ = try lanes[0].send([1], noting: nil) }
        try pass(from: 0, due: true)
        /// Takes `count` messages, and returns the number of times that the channel has to be told.
        func take(_ count: Int) throws -> Int {
            try (0..<count).count { _ in
                guard case .message(_, let mustTellChannel, _) = lanes[1].take() else {
                    throw NotTaken()
                }
                return mustTellChannel
            }
        }
        // For the first owed confirmation, the channel sets its timer.
        #expect(try take(3) == 1)
        try pass(from: 1, due: false)
        // The 32nd confirmation may not wait.
        #expect(try take(28) == 0)
        #expect(try take(3) == 1)
        // On a new link, the channel has to be told again.
        ports = lanes.map { $0.beginLink(to: .anonymous) }
        for side in [0, 1] { try pass(from: side, due: true) }
        #expect(try take(6) == 1)
    }

    @Test(
        "messages arrive with the greatest bounds, and with bounds of 0 and -1",
        arguments: [Int.max, 0, -1])
    func extremes(bound: Int) throws {
        var options = PeerConnection.DeliveryOptions()
        (options.maximumMessages, options.readAhead) = (bound, bound)
        options.streams.maximumOpen = bound
        options.streams.maximumWaiting = bound
        options.streams.window = bound
        // With 0 or -1 as one of the next two bounds, no message could be sent. So for these values
        // both keep their defaults.
        if bound > 0 { (options.maximumBytes, options.maximumMessageLength) = (bound, bound) }
        let lanes = [0, 1].map { _ in MessageLane(options) }
        defer { for lane in lanes { lane.end() } }
        let ports = lanes.map { $0.beginLink(to: .anonymous) }
        /// Passes the records of `side` to the other side, as bytes, until there is none.
        func pass(from side: Int) throws {
            while let record = ports[side].nextRecord(atMost: 1_000, confirms: { _ in true }) {
                _ = try ports[1 - side].receive(DeliveryRecord(record.kind, record.bytes))
            }
        }
        for side in [0, 1] { try pass(from: side) }
        for number: UInt8 in 0..<3 {
            let sent = try lanes[0].send([number], noting: nil)
            #expect(sent?.number == UInt64(number) + 1)
            try pass(from: 0)
            #expect(lanes[1].takeMessage() == [number])
            try pass(from: 1)
        }
        #expect(lanes[0].pendingCount == 0)
    }

    @Test("messages are still sent if a connection is dropped in the loop's turn that queues them")
    func dropped() async throws {
        let fixture = try Self.fixture()
        let listener = try await fixture.listen()
        let receiver = await fixture.accepting(
            from: listener, ReconnectFixture.rules, .exactlyOnce())
        let receiving = Task {
            var received: [[UInt8]] = []
            while received.count < 20, let message = try await receiver.receive() {
                received.append(message)
            }
            return received
        }
        let lastReference: Locked<PeerConnection?>
        let loop: EventLoop
        do {
            let sender = try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce())
            #expect(try await sender.deliver([0]) == .delivered)
            loop = sender.loop
            lastReference = Locked(sender)
        }
        // The last reference is dropped in the turn in which the messages are queued.
        try await Task(executorPreference: loop) {
            guard let sender = lastReference.withLock({ $0.take() }) else { return }
            for number in 1..<20 { _ = try await sender.send([UInt8(number)]) }
        }.value
        #expect(try await receiving.value == (0..<20).map { [UInt8($0)] })
        await receiver.abort()
    }

    @Test("a connection that is dropped releases its lane, although the memory budget refers to it")
    func release() async throws {
        weak var lane: MessageLane?
        let fixture = try Self.fixture()
        let listener = try await fixture.listen()
        do {
            let dialer = try await fixture.dialing(ReconnectFixture.rules, .exactlyOnce())
            await dialer.wait(for: .connected)
            lane = await dialer.lane
            #expect(lane != nil)
        }
        await listener.close()
        for _ in 0..<1_000 where lane != nil { try await Task.sleep(for: .milliseconds(10)) }
        #expect(lane == nil)
    }

    @Test("an incomplete message that the process has no memory for is sent again on the next link")
    func memory() throws {
        let budget = ReassemblyBudget(bytes: 50_000, share: 50_000)
        func lane() -> MessageLane { MessageLane(PeerConnection.DeliveryOptions()) }
        let (sender, receiver) = (lane(), lane())
        let (otherSender, otherReceiver) = (lane(), lane())
        defer { for lane in [sender, receiver, otherSender, otherReceiver] { lane.end() } }
        /// Begins a link, and passes records until `count` bytes of messages have arrived. The link
        /// lasts as long as its ports.
        func pass(
            _ sender: MessageLane, _ receiver: MessageLane, _ count: Int
        ) throws -> [MessageLane.Port] {
            let ports = [sender, receiver].map { $0.beginLink(to: .anonymous, budget: budget) }
            var remaining = count
            for port in [0, 1] {
                let resume = try #require(ports[port].nextRecord(atMost: nil) { _ in false })
                _ = try ports[1 - port].receive(resume)
            }
            while remaining > 0 {
                let record = ports[0].nextRecord(atMost: 10_000) { _ in true }
                guard let record else { break }
                _ = try ports[1].receive(record)
                if case .chunk(let chunk) = record { remaining -= chunk.bytes.count }
            }
            return ports
        }
        let message = [UInt8](repeating: 1, count: 45_000)
        for lane in [sender, otherSender] { _ = try lane.send(message, noting: nil) }
        var ports = try pass(sender, receiver, 40_000)
        #expect(budget.bytesLeft == 10_000)
        // The lane with the larger incomplete message has to drop it, and loses its link.
        ports += try pass(otherSender, otherReceiver, 20_000)
        #expect(receiver.takeNews().isRevoked)
        #expect(budget.bytesLeft >= 30_000)
        ports += try pass(otherSender, otherReceiver, 50_000)
        #expect(otherReceiver.takeMessage() == message)
        ports += try pass(sender, receiver, 50_000)
        #expect(receiver.takeMessage() == message)
        #expect(budget.bytesLeft == 50_000)
        // An incomplete message that is kept takes memory from the next link's budget as soon as
        // that link begins. If that budget has too little, the message is dropped.
        _ = try sender.send(message, noting: nil)
        ports += try pass(sender, receiver, 30_000)
        ports.append(receiver.beginLink(to: .anonymous, budget: budget))
        #expect(budget.bytesLeft == 20_000)
        let small = ReassemblyBudget(bytes: 10_000, share: 10_000)
        let port = receiver.beginLink(to: .anonymous, budget: small)
        #expect(budget.bytesLeft == 50_000 && small.bytesLeft == 10_000)
        guard case .resume(let resume)? = port.nextRecord(atMost: nil, confirms: { _ in false })
        else {
            Issue.record("no resume")
            return
        }
        #expect(resume.positions.offset == 0)
    }

    @Test("a last part with a wrong offset frees no memory of the message's other parts")
    func memoryAfterWrongOffset() throws {
        let budget = ReassemblyBudget(bytes: 50_000, share: 50_000)
        let lanes = [0, 1].map { _ in MessageLane(PeerConnection.DeliveryOptions()) }
        defer { for lane in lanes { lane.end() } }
        let ports = lanes.map { $0.beginLink(to: .anonymous, budget: budget) }
        for side in [0, 1] {
            let resume = try #require(ports[side].nextRecord(atMost: nil) { _ in false })
            _ = try ports[1 - side].receive(resume)
        }
        /// A part of the first message, which has 45,000 bytes.
        func part(at offset: Int, _ count: Int) -> DeliveryRecord {
            let bytes = [UInt8](repeating: 1, count: count)
            return .chunk(Chunk(number: 1, offset: offset, length: 45_000, bytes: bytes))
        }
        _ = try ports[1].receive(part(at: 0, 40_000))
        #expect(budget.bytesLeft == 10_000)
        #expect(throws: DeliveryError.self) { _ = try ports[1].receive(part(at: 44_000, 1_000)) }
        #expect(budget.bytesLeft == 10_000)
        _ = try ports[1].receive(part(at: 40_000, 5_000))
        #expect(budget.bytesLeft == 50_000)
    }

    @Test("a connection closes if its channels are not configured for its guarantee")
    func mismatch() async throws {
        for carriesDelivery in [false, true] {
            var fixture = try Self.fixture()
            fixture.carriesDelivery = carriesDelivery
            let listener = try await fixture.listen()
            let dialer = try await fixture.dialing(
                ReconnectFixture.rules, carriesDelivery ? .atMostOnce : .exactlyOnce())
            await dialer.wait(for: .closed)
            #expect(await dialer.status.failure?.code == .configuration)
            await listener.close()
        }
    }
}

extension PeerConnection {
    fileprivate var isSettled: Bool { lane?.isSettled ?? false }
}

private struct NotTaken: Error {}

extension MessageLane {
    /// Takes the next message; nil if there is none.
    fileprivate func takeMessage() -> [UInt8]? {
        if case .message(let message, _, _) = take() { message } else { nil }
    }
}

extension MessageLane.Port {
    fileprivate func nextRecord(
        atMost limit: Int?, confirms: (_ owed: UInt64) -> Bool
    ) -> DeliveryRecord? {
        var outlook = PortOutlook()
        return nextRecord(atMost: limit, onlyWhole: false, &outlook, confirms: confirms)
    }
}
