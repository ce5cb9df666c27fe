import BLESecChannelCore
import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESec

/// Tasks that are cancelled and channels that are released, at every stage.
@Suite("Cancellation")
struct CancellationTests {
    /// The point at which a handshake stops: an SDU is lost, or a trust decision is pending.
    struct Moment: Sendable, CustomTestStringConvertible {
        let role: ChannelRole
        let faults: [ChannelRole: [Fault]]
        var asks = false
        let phase: ChannelPhase
        var testDescription: String { "\(role) \(phase)" }
    }

    static let moments = [
        Moment(role: .dialer, faults: [.dialer: [.drop(sdu: 0)]], phase: .negotiating),
        Moment(role: .acceptor, faults: [.dialer: [.drop(sdu: 0)]], phase: .negotiating),
        Moment(role: .acceptor, faults: [.dialer: [.drop(sdu: 1)]], phase: .handshaking),
        Moment(role: .dialer, faults: [:], asks: true, phase: .awaitingTrustDecision),
        Moment(role: .acceptor, faults: [:], asks: true, phase: .awaitingTrustDecision),
        Moment(role: .dialer, faults: [.acceptor: [.drop(sdu: 1)]], phase: .proving),
    ]

    @Test("a handshake that is cancelled ends at once and leaves nothing", arguments: moments)
    func handshake(moment: Moment) async throws {
        let fixture = try ChannelFixture()
        weak var weakChannel: SecureChannel?
        do {
            let (first, second) = await fixture.links(moment.faults)
            let dialer = try fixture.channel(over: first, .dialer) { change(&$0, .dialer, moment) }
            let acceptor = try fixture.channel(over: second, .acceptor) {
                change(&$0, .acceptor, moment)
            }
            let tasks = [fixture.opening(dialer), fixture.opening(acceptor)]
            await fixture.clock.settle()
            let (channel, task, other) =
                moment.role == .dialer
                ? (dialer, tasks[0], tasks[1]) : (acceptor, tasks[1], tasks[0])
            weakChannel = channel
            #expect(await channel.phase == moment.phase)
            task.cancel()
            #expect(await failure(of: task) == .cancelled)
            // The clock has not moved, and the other side has already seen the link's end. If that
            // side was ready before, its opening has succeeded, and its channel is over.
            let code = await failure(of: other)
            #expect(code == .truncated || code == nil)
            #expect(await dialer.isOver)
            #expect(await acceptor.isOver)
        }
        await fixture.finish()
        #expect(weakChannel == nil)
    }

    private func change(
        _ configuration: inout ChannelConfiguration, _ role: ChannelRole, _ moment: Moment
    ) {
        guard moment.asks, role == moment.role else { return }
        configuration.trust = .asking { _ in
            // Only a cancellation ends the wait for an answer.
            let (stream, continuation) = AsyncStream.makeStream(of: Void.self)
            for await _ in stream {}
            withExtendedLifetime(continuation) {}
            return .admit
        }
    }

    @Test("a handshake whose task is cancelled before it begins fails, and its channel is released")
    func beforehand() async throws {
        let fixture = try ChannelFixture()
        weak var weakChannel: SecureChannel?
        do {
            let (first, second) = await fixture.links()
            let channel = try fixture.channel(over: first, .dialer)
            weakChannel = channel
            let task = Task(executorPreference: fixture.loop) {
                unsafe withUnsafeCurrentTask { task in unsafe task?.cancel() }
                try await channel.open()
            }
            #expect(await failure(of: task) == .cancelled)
            await fixture.loop.run { second.close() }
        }
        await fixture.finish()
        #expect(weakChannel == nil)
    }

    @Test("a channel that is released closes its link, and its peer's channel fails as truncated")
    func dropped() async throws {
        let fixture = try ChannelFixture()
        weak var weakChannel: SecureChannel?
        var peer: SecureChannel?
        do {
            let (dialer, acceptor) = try await fixture.channels()
            weakChannel = dialer
            peer = acceptor
            try await dialer.send([1])
            #expect(try await acceptor.receive() == [1])
        }
        await fixture.clock.settle()
        #expect(weakChannel == nil)
        let receiving = Task { [peer] in try await peer?.receive() }
        #expect(await failure(of: receiving) == .truncated)
        peer = nil
        await fixture.finish()
    }

    @Test("a receive that is cancelled loses no message, and the channel stays usable")
    func receiving() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        let receiving = Task(executorPreference: fixture.loop) { try await acceptor.receive() }
        await fixture.clock.settle()
        receiving.cancel()
        #expect(await failure(of: receiving) == .cancelled)
        try await dialer.send([1])
        #expect(try await acceptor.receive() == [1])
        await close(dialer, acceptor, fixture)
    }

    @Test("a send and a deliver that are cancelled end at once, and the channel stays usable")
    func sending() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels(capacity: 8_192) {
            role, configuration in
            configuration.limits.readAhead = 4_000
            configuration.limits.sendAhead = 4_000
        }
        let sent = Sent()
        let sending = Task(executorPreference: fixture.loop) {
            while true {
                try await dialer.send(Array(repeating: 1, count: 1_000))
                await sent.add()
            }
        }
        await fixture.clock.settle()
        let delivering = Task(executorPreference: fixture.loop) {
            _ = try await dialer.deliver([2])
        }
        await fixture.clock.settle()
        sending.cancel()
        delivering.cancel()
        #expect(await failure(of: sending) == .cancelled)
        #expect(await failure(of: delivering) == .cancelled)
        for _ in 0..<(await sent.count) {
            #expect(try await acceptor.receive() == Array(repeating: 1, count: 1_000))
        }
        try await acceptor.send([3])
        #expect(try await dialer.receive() == [3])
        await close(dialer, acceptor, fixture)
    }

    @Test("a deliver that waits for its acknowledgement can be cancelled")
    func delivering() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        let delivering = Task(executorPreference: fixture.loop) {
            _ = try await dialer.deliver([1])
        }
        await fixture.clock.settle()
        delivering.cancel()
        #expect(await failure(of: delivering) == .cancelled)
        #expect(try await acceptor.receive() == [1])
        await close(dialer, acceptor, fixture)
    }

    @Test("a close that is cancelled can be called again, and loses no message")
    func closing() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        let closing = Task(executorPreference: fixture.loop) { try await dialer.close() }
        await fixture.clock.settle()
        closing.cancel()
        #expect(await failure(of: closing) == .cancelled)
        try await acceptor.send([5])
        #expect(try await dialer.receive() == [5])
        await close(dialer, acceptor, fixture)
    }

    @Test("every waiting receive fails as closed when the loop is shut down")
    func shutdown() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels()
        let tasks = [
            Task(executorPreference: fixture.loop) { _ = try await dialer.receive() },
            Task(executorPreference: fixture.loop) { _ = try await acceptor.receive() },
        ]
        await fixture.clock.settle()
        await fixture.loop.shutdown()
        for task in tasks { #expect(await failure(of: task) == .closed) }
    }

    actor Sent {
        private(set) var count = 0
        func add() { count += 1 }
    }

    private func close(
        _ dialer: SecureChannel, _ acceptor: SecureChannel, _ fixture: ChannelFixture
    ) async {
        let first = Task { try await dialer.close() }
        let second = Task { try await acceptor.close() }
        // The clock must move: a side that closes looks every 2 ms whether its link has sent
        // everything.
        for task in [first, second] { await fixture.advance(until: task) }
        await fixture.finish()
    }
}

extension ChannelFixture {
    /// Advances the clock until a task has ended, and expects that the task succeeds within a
    /// minute.
    func advance(until task: Task<Void, any Error>) async {
        let done = Flag()
        Task {
            _ = try? await task.value
            await done.raise()
        }
        for _ in 0..<6_000 {
            if await done.isRaised { break }
            await clock.advance(by: .milliseconds(10))
        }
        #expect(await done.isRaised)
        #expect(await failure(of: task) == nil)
    }

    actor Flag {
        private(set) var isRaised = false
        func raise() { isRaised = true }
    }
}
