import BLESecChannelCore
import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESec

/// Many tasks that send over one channel or connection at once. For each message, only a few tasks
/// may be resumed, however many wait.
@Suite("Many tasks that send", .timeLimit(.minutes(2)))
struct CrowdTests {
    /// How many tasks send. If each message resumed all of them, ``mostResumptions`` would be
    /// exceeded.
    private static let count = 400
    /// A message may resume its task three times: when the message is next, when there is room for
    /// it, and when it is acknowledged. A fourth resumption for each message allows for wake-ups in
    /// vain, and for the tasks that serve the channel.
    private static let mostResumptions = UInt64(4 * count)

    private static func message(_ number: Int) -> [UInt8] {
        [UInt8(number >> 8), UInt8(number & 0xFF)] + [UInt8](repeating: 0, count: 500)
    }

    private static func number(_ message: [UInt8]?) -> Int? {
        message.map { Int($0[0]) << 8 | Int($0[1]) }
    }

    /// Sets small buffers, so that most of the tasks wait for room.
    private static func limitBuffers(_ configuration: inout ChannelConfiguration) {
        configuration.limits.readAhead = 4_000
        configuration.limits.sendAhead = 4_000
    }

    /// Starts tasks that call `send`; each begins to wait before the next one starts.
    private static func crowd<Value: Sendable>(
        _ fixture: ChannelFixture, _ send: @escaping @Sendable ([UInt8]) async throws -> Value
    ) async -> [Task<Value, any Error>] {
        var tasks: [Task<Value, any Error>] = []
        for number in 0..<count {
            tasks.append(
                Task(executorPreference: fixture.loop) { try await send(message(number)) })
            await fixture.clock.settle()
        }
        return tasks
    }

    /// Two connections over one link, and the channel of the first.
    private static func connections(
        _ fixture: ChannelFixture, exactlyOnce options: PeerConnection.DeliveryOptions?
    ) async throws -> (sender: PeerConnection, receiver: PeerConnection, SecureChannel) {
        let channels = try await fixture.channels(capacity: 8_192) { _, configuration in
            limitBuffers(&configuration)
            configuration.carriesDelivery = options != nil
        }
        let guarantee = options.map { PeerConnection.Guarantee.exactlyOnce($0) } ?? .atMostOnce
        let sender = await PeerConnection.start(.offered, delivery: guarantee, loop: fixture.loop)
        let receiver = await PeerConnection.start(.offered, delivery: guarantee, loop: fixture.loop)
        #expect(await sender.offer(channels.dialer))
        #expect(await receiver.offer(channels.acceptor))
        return (sender, receiver, channels.dialer)
    }

    @Test(
        "if many tasks deliver over a connection, each message resumes few of them, and all messages arrive in order",
        arguments: [nil, 20, 10_000])
    func connection(maximumMessages: Int?) async throws {
        let fixture = try ChannelFixture()
        let options = maximumMessages.map { maximum in
            var options = PeerConnection.DeliveryOptions()
            options.maximumMessages = maximum
            return options
        }
        let (sender, receiver, channel) = try await Self.connections(fixture, exactlyOnce: options)
        let tasks = await Self.crowd(fixture) { try await sender.deliver($0) }
        for number in 0..<Self.count {
            #expect(Self.number(try await receiver.receive()) == number)
            // An acknowledgement waits until the clock advances, so each acknowledges one message.
            await fixture.clock.advance(by: .seconds(1))
        }
        for task in tasks { #expect(try await task.value == .delivered) }
        #expect(await sender.waiting.resumedCount < Self.mostResumptions)
        let resumedCount = await fixture.loop.run {
            channel.assumeIsolated { $0.driver.waiting.resumedCount }
        }
        #expect(resumedCount < Self.mostResumptions)
        for side in [sender, receiver] { await side.abort() }
        await fixture.finish()
    }

    @Test("if many tasks send over a channel, each message resumes few of them, in their order")
    func channel() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels(capacity: 8_192) {
            Self.limitBuffers(&$1)
        }
        let tasks = await Self.crowd(fixture) { try await dialer.send($0) }
        for number in 0..<Self.count {
            #expect(Self.number(try await acceptor.receive()) == number)
        }
        for task in tasks { try await task.value }
        let resumedCount = await fixture.loop.run {
            dialer.assumeIsolated { $0.driver.waiting.resumedCount }
        }
        #expect(resumedCount < Self.mostResumptions)
        for side in [dialer, acceptor] { await side.abort() }
        await fixture.finish()
    }

    @Test(
        "if every second of many waiting tasks is cancelled, beginning with the first, the others send",
        arguments: [false, true])
    func cancelled(onConnection: Bool) async throws {
        let fixture = try ChannelFixture()
        let (sender, receiver, channel) = try await Self.connections(fixture, exactlyOnce: nil)
        let tasks = await Self.crowd(fixture) { message in
            if onConnection {
                _ = try await sender.send(message)
            } else {
                try await channel.send(message)
            }
        }
        // The first tasks have sent their messages, and the last tasks wait.
        let sentCount = Int(await channel.traffic.queuedMessages)
        try #require(sentCount < Self.count - 2)
        for number in stride(from: sentCount, to: Self.count, by: 2) {
            tasks[number].cancel()
            #expect(await failure(of: tasks[number]) == .cancelled)
        }
        let remaining = (0..<Self.count).filter { $0 < sentCount || ($0 - sentCount) % 2 == 1 }
        for number in remaining {
            #expect(Self.number(try await receiver.receive()) == number)
            try await tasks[number].value
        }
        for side in [sender, receiver] { await side.abort() }
        await fixture.finish()
    }

    @Test("all waiting tasks end when the connection is aborted", arguments: [false, true])
    func aborted(exactlyOnce: Bool) async throws {
        let fixture = try ChannelFixture()
        var options = PeerConnection.DeliveryOptions()
        options.maximumMessages = 20
        let (sender, receiver, _) = try await Self.connections(
            fixture, exactlyOnce: exactlyOnce ? options : nil)
        let tasks = await Self.crowd(fixture) { try await sender.deliver($0) }
        await sender.abort()
        for task in tasks {
            switch await task.result {
            case .success(let fate): #expect(fate == .unknown)
            case .failure(let error): #expect((error as? ChannelError)?.code == .closed)
            }
        }
        await receiver.abort()
        await fixture.finish()
    }
}

@Suite("Turns")
struct TurnsTests {
    @Test("the next ticket is the earliest that is not given back, whatever the order of returns")
    func order() {
        var turns = Turns()
        #expect(turns.isEmpty)
        let tickets = (0..<5).map { _ in turns.take() }
        for (returned, next) in [(2, 0), (0, 1), (1, 3), (4, 3)] {
            turns.give(back: tickets[returned])
            #expect(turns.isNext(tickets[next]) && turns.next == tickets[next])
            #expect(!turns.isEmpty)
        }
        turns.give(back: tickets[3])
        #expect(turns.isEmpty)
        let ticket = turns.take()
        #expect(turns.isNext(ticket) && !turns.isEmpty)
        turns.give(back: ticket)
        #expect(turns.isEmpty)
    }
}
