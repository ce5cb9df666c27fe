import BLESecLinks
import BLESecTesting
import Testing

/// An actor on a loop. Its `wait` suspends the caller until `.change`, at most until the
/// deadline.
private actor Waiter {
    nonisolated let loop: EventLoop
    private let condition: LoopCondition
    /// Whether the wait has ended by cancellation; nil until it ends.
    private(set) var isCancelled: Bool?

    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

    init(_ loop: EventLoop) {
        self.loop = loop
        condition = LoopCondition(loop: loop)
    }

    func wait(until deadline: MonotonicTime) async {
        isCancelled = await condition.wait(
            for: .change, until: deadline, isolation: self, unless: { false })
    }

    func wake(_ event: LoopEvent) { condition.wake(event) }
}

@Suite("Conditions with a deadline")
struct LoopConditionTests {
    /// Runs `body` with a waiter, a manual clock, and a task that calls the waiter's `wait` with a
    /// deadline in 10 seconds.
    private func withWaiter(
        _ body: @escaping @Sendable (Waiter, ManualClock, Task<Void, Never>) async throws -> Void
    ) async throws {
        let clock = ManualClock()
        try await withLoop(clock: clock.loopClock) { loop in
            let waiter = Waiter(loop)
            let task = Task(executorPreference: loop) {
                await waiter.wait(until: loop.now.advanced(by: .seconds(10)))
            }
            await loop.settle()
            try await body(waiter, clock, task)
            await task.value
            #expect(loop.load.timers == 0, "the wait has left its timer armed")
        }
    }

    @Test("a wait ends at its deadline, not before, and not as cancelled")
    func deadline() async throws {
        try await withWaiter { waiter, clock, task in
            await clock.advance(by: .seconds(9.999))
            #expect(await waiter.isCancelled == nil)
            await clock.advance(by: .milliseconds(1))
            await task.value
            #expect(await waiter.isCancelled == false)
        }
    }

    @Test("the awaited event ends a wait before its deadline, and a different event does not")
    func event() async throws {
        try await withWaiter { waiter, _, task in
            await waiter.wake(.room)
            await waiter.loop.settle()
            #expect(await waiter.isCancelled == nil)
            await waiter.wake(.change)
            await task.value
            #expect(await waiter.isCancelled == false)
        }
    }

    @Test("a wait ends as cancelled when its task is cancelled, before the deadline")
    func cancelled() async throws {
        try await withWaiter { waiter, _, task in
            task.cancel()
            await task.value
            #expect(await waiter.isCancelled == true)
        }
    }

    @Test(
        "a wait ends as cancelled when the loop is shut down, and so does every later wait",
        .timeLimit(.minutes(1)))
    func shutdown() async throws {
        try await withWaiter { waiter, _, task in
            await waiter.loop.shutdown()
            await task.value
            #expect(await waiter.isCancelled == true)
            await waiter.wait(until: waiter.loop.now.advanced(by: .seconds(10)))
            #expect(await waiter.isCancelled == true)
        }
    }
}
