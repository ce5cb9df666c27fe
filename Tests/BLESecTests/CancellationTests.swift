import BLESecChannelCore
import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESec

/// The cancellation of a task, and the release of a channel, before, during and after the
/// handshake.
@Suite("Cancellation", .timeLimit(.minutes(2)))
struct CancellationTests {
    /// A point at which a handshake waits, because an SDU is lost or a trust decision is pending.
    /// One side's task is then cancelled.
    struct Moment: Sendable, CustomTestStringConvertible {
        /// The side whose task is cancelled.
        let role: ChannelRole
        let faults: [ChannelRole: [Fault]]
        /// Whether this side's trust decision stays pending.
        var staysUndecided = false
        /// The phase in which this side waits.
        let phase: ChannelPhase
        var testDescription: String { "\(role) \(phase)" }
    }

    static let moments = [
        Moment(role: .dialer, faults: [.dialer: [.drop(sdu: 0)]], phase: .negotiating),
        Moment(role: .acceptor, faults: [.dialer: [.drop(sdu: 0)]], phase: .negotiating),
        Moment(role: .acceptor, faults: [.dialer: [.drop(sdu: 1)]], phase: .handshaking),
        Moment(role: .dialer, faults: [:], staysUndecided: true, phase: .awaitingTrustDecision),
        Moment(role: .acceptor, faults: [:], staysUndecided: true, phase: .awaitingTrustDecision),
        Moment(role: .dialer, faults: [.acceptor: [.drop(sdu: 1)]], phase: .proving),
    ]

    @Test(
        "a cancelled handshake ends without a delay, and leaves no channel, timer or event source",
        arguments: moments)
    func handshake(moment: Moment) async throws {
        let fixture = try ChannelFixture()
        weak var weakChannel: SecureChannel?
        do {
            let (first, second) = await fixture.links(moment.faults)
            let dialer = try fixture.channel(over: first, .dialer) {
                leaveDecisionPending(&$0, .dialer, moment)
            }
            let acceptor = try fixture.channel(over: second, .acceptor) {
                leaveDecisionPending(&$0, .acceptor, moment)
            }
            let tasks = [fixture.opening(dialer), fixture.opening(acceptor)]
            await fixture.clock.settle()
            let (channel, task, otherTask) =
                moment.role == .dialer
                ? (dialer, tasks[0], tasks[1]) : (acceptor, tasks[1], tasks[0])
            weakChannel = channel
            #expect(await channel.phase == moment.phase)
            task.cancel()
            #expect(await failure(of: task) == .cancelled)
            // The other side has seen the link's end although the clock has not moved. Its task
            // fails, or has succeeded if the side was ready before; its channel is over in any
            // case.
            let code = await failure(of: otherTask)
            #expect(code == .truncated || code == nil)
            #expect(await dialer.isOver)
            #expect(await acceptor.isOver)
        }
        await fixture.finish()
        // Another thread may hold the channel for a moment longer.
        for _ in 0..<1_000 where weakChannel != nil {
            try await Task.sleep(for: .milliseconds(10))
        }
        #expect(weakChannel == nil)
    }

    /// Sets a trust policy that never decides, if the trust decision of `role` stays pending in
    /// `moment`.
    private func leaveDecisionPending(
        _ configuration: inout ChannelConfiguration, _ role: ChannelRole, _ moment: Moment
    ) {
        guard moment.staysUndecided, role == moment.role else { return }
        configuration.trust = .asking { _ in
            // Only a cancellation ends the wait for an answer.
            let (stream, continuation) = AsyncStream.makeStream(of: Void.self)
            for await _ in stream {}
            withExtendedLifetime(continuation) {}
            return .admit
        }
    }

    @Test("a task cancelled before its handshake gets `cancelled`, and its channel is released")
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

    @Test("a channel that is released closes its link, and its peer gets `truncated`")
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

    @Test("a cancelled send and a cancelled deliver end without a delay; the channel stays usable")
    func sending() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels(capacity: 8_192) {
            role, configuration in
            configuration.limits.readAhead = 4_000
            configuration.limits.sendAhead = 4_000
        }
        let sent = SendCounter()
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

    @Test("after a cancelled close, no message is lost, and close can be called again")
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

    @Test(
        "a receive in direct mode fails at the loop's shutdown, even if the session has no maximum age",
        .timeLimit(.minutes(1)))
    func shutdownWithoutDeadline() async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) = try await fixture.channels { _, configuration in
            configuration.mode = .direct
            configuration.timeouts.session = .seconds(Int64.max)
        }
        let receiving = Task(executorPreference: fixture.loop) { try await acceptor.receive() }
        await fixture.clock.settle()
        await fixture.loop.shutdown()
        #expect(await failure(of: receiving) == .closed)
        withExtendedLifetime(dialer) {}
    }

    @Test(
        "every waiting receive fails with `closed` when the loop is shut down",
        arguments: [false, true])
    func shutdown(overSockets: Bool) async throws {
        let fixture = try ChannelFixture()
        let (dialer, acceptor) =
            overSockets ? try await socketChannels(fixture) : try await fixture.channels()
        let tasks = [
            Task(executorPreference: fixture.loop) { _ = try await dialer.receive() },
            Task(executorPreference: fixture.loop) { _ = try await acceptor.receive() },
        ]
        await fixture.clock.settle()
        await fixture.loop.shutdown()
        for task in tasks { #expect(await failure(of: task) == .closed) }
    }

    /// The two sides of a channel over a stream socket, both ready.
    private func socketChannels(
        _ fixture: ChannelFixture
    ) async throws -> (dialer: SecureChannel, acceptor: SecureChannel) {
        let (first, second) = try await SocketLink.pair(.stream, loop: fixture.loop)
        let dialer = try fixture.channel(over: first, .dialer)
        let acceptor = try fixture.channel(over: second, .acceptor)
        let openings = [fixture.opening(dialer), fixture.opening(acceptor)]
        for opening in openings { try await opening.value }
        return (dialer, acceptor)
    }

    actor SendCounter {
        private(set) var count = 0
        func add() { count += 1 }
    }

    private func close(
        _ dialer: SecureChannel, _ acceptor: SecureChannel, _ fixture: ChannelFixture
    ) async {
        let first = Task { try await dialer.close() }
        let second = Task { try await acceptor.close() }
        // The clock must move: a side that closes checks every 2 ms whether its link has sent
        // everything.
        for task in [first, second] { await fixture.advance(until: task) }
        await fixture.finish()
    }
}

extension ChannelFixture {
    /// Advances the clock until a task has ended, and expects that the task succeeds before the
    /// clock has advanced by a minute. A task that has not ended by then is cancelled. Returns
    /// whether the task has ended.
    @discardableResult
    func advance(until task: Task<Void, any Error>) async -> Bool {
        let done = Flag()
        Task {
            _ = try? await task.value
            await done.raise()
        }
        for _ in 0..<6_000 {
            if await done.isRaised { break }
            await clock.advance(by: .milliseconds(10))
        }
        guard await done.isRaised else {
            Issue.record("the task has not ended within a minute of the clock")
            task.cancel()
            return false
        }
        #expect(await failure(of: task) == nil)
        return true
    }

    actor Flag {
        private(set) var isRaised = false
        func raise() { isRaised = true }
    }
}
