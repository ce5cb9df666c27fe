import BLESecChannelCore
import BLESecLinks
import BLESecTesting
import Testing

@testable import BLESec

/// Two peers that pin each other's keys, a loop with a manual clock, and links on that loop.
struct ChannelFixture {
    let clock: ManualClock
    let loop: EventLoop
    let pinned: PinnedPeers

    init() throws {
        clock = ManualClock()
        loop = EventLoop(name: "fixture", clock: clock.loopClock)
        pinned = try PinnedPeers()
    }

    /// The two ends of a link that behaves like L2CAP: closing it discards the bytes that have not
    /// arrived. At most `capacity` bytes wait in each direction. `faults` has the faults of each
    /// side's end of the link.
    func links(
        capacity: Int = 65_536, _ faults: [ChannelRole: [Fault]] = [:]
    ) async -> (dialer: FaultyLink, acceptor: FaultyLink) {
        await loop.run { [loop] in
            let (first, second) = MemoryLink.pair(
                loop: loop, capacity: capacity, dropsQueueOnClose: true)
            return (
                FaultyLink(first, faults[.dialer, default: []]),
                FaultyLink(second, faults[.acceptor, default: []])
            )
        }
    }

    /// A channel whose handshake has not begun.
    func channel(
        over link: any Link, _ role: ChannelRole,
        change: (inout ChannelConfiguration) -> Void = { _ in }
    ) throws -> SecureChannel {
        var configuration = try pinned.configuration(role)
        change(&configuration)
        return SecureChannel(over: link, role: role, configuration: configuration)
    }

    /// A task on the loop that opens a channel, and ends when the channel is ready.
    func opening(_ channel: SecureChannel) -> Task<Void, any Error> {
        Task(executorPreference: loop) { try await channel.open() }
    }

    /// The two sides of a channel, both ready.
    func channels(
        capacity: Int = 65_536,
        change: (ChannelRole, inout ChannelConfiguration) -> Void = { _, _ in }
    ) async throws -> (dialer: SecureChannel, acceptor: SecureChannel) {
        let (first, second) = await links(capacity: capacity)
        let dialer = try channel(over: first, .dialer) { change(.dialer, &$0) }
        let acceptor = try channel(over: second, .acceptor) { change(.acceptor, &$0) }
        let openings = [opening(dialer), opening(acceptor)]
        for opening in openings { try await opening.value }
        return (dialer, acceptor)
    }

    /// Expects that no timer and no event source is left on the loop, and ends the loop.
    func finish() async {
        await clock.settle()
        let load = await loop.run { [loop] in loop.load }
        #expect(load.timers == 0 && load.sources == 0)
        await loop.shutdown()
    }
}

extension SecureChannel {
    /// Does what ``open(over:role:configuration:)`` does, for a channel that exists already.
    func open() async throws(ChannelError) {
        try start()
        try await becomeReady()
    }

    /// The code with which the channel has failed; `nil` if it has not.
    var failure: ChannelError.Code? { driver.machine.outcome?.code }

    /// How many deadlines the waiting calls of the channel have; a call may have two.
    var callDeadlineCount: Int { driver.callDeadlines.count }

    /// How many messages the program has queued in all, how many bytes of these messages are not
    /// sealed yet, and how many bytes have arrived in messages that the program has not received.
    var traffic: (queuedMessages: UInt64, unsealedBytes: Int, unreceivedBytes: Int) {
        (driver.machine.queued, driver.machine.unsealedBytes, driver.machine.unreceivedBytes)
    }

    /// How many of the queued messages the peer has acknowledged.
    var acknowledged: UInt64 { driver.machine.acknowledged }
}

/// Waits for a task's end, and returns the code of its error; `nil` if the task succeeds, and
/// `internal` if the error is no ``ChannelError``.
func failure<Value>(of task: Task<Value, any Error>) async -> ChannelError.Code? {
    do {
        _ = try await task.value
        return nil
    } catch {
        return (error as? ChannelError)?.code ?? .internal
    }
}
