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

/// An actor on a loop, on which many tasks wait with numbers.
private actor Crowd {
    nonisolated let loop: EventLoop
    let condition: LoopCondition
    /// The numbers of the tasks whose wait has ended, in this order.
    private(set) var resumed: [UInt64] = []

    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

    init(_ loop: EventLoop) {
        self.loop = loop
        condition = LoopCondition(loop: loop)
    }

    func wait(_ event: LoopEvent, _ number: UInt64) async {
        _ = await condition.wait(for: event, number: number, isolation: self, unless: { false })
        resumed.append(number)
    }

    func wake(_ event: LoopEvent, through number: UInt64 = .max, atMost count: Int = .max) {
        condition.wake(event, through: number, atMost: count)
    }

    func takeResumed() -> [UInt64] {
        defer { resumed = [] }
        return resumed
    }
}

@Suite("Conditions on which many tasks wait")
struct CrowdedConditionTests {
    /// Runs `body` with a crowd that waits for `.change` with the numbers 4, 1, 3, 0 and 2, and for
    /// `.room` with 10 and 11.
    private func withCrowd(
        _ body: @escaping @Sendable (Crowd, [UInt64: Task<Void, Never>]) async throws -> Void
    ) async throws {
        try await withLoop { loop in
            let crowd = Crowd(loop)
            var tasks: [UInt64: Task<Void, Never>] = [:]
            for number: UInt64 in [4, 10, 1, 3, 11, 0, 2] {
                tasks[number] = Task(executorPreference: loop) {
                    await crowd.wait(number < 10 ? .change : .room, number)
                }
                await loop.settle()
            }
            try await body(crowd, tasks)
            await loop.run { crowd.condition.wakeAll() }
            for task in tasks.values { await task.value }
        }
    }

    @Test("a bounded wake-up resumes only the tasks up to the bound, in the order of their numbers")
    func bound() async throws {
        try await withCrowd { crowd, _ in
            let steps: [(UInt64, [UInt64])] = [(2, [0, 1, 2]), (2, []), (.max, [3, 4])]
            for (bound, expected) in steps {
                await crowd.wake(.change, through: bound)
                await crowd.loop.settle()
                #expect(await crowd.takeResumed() == expected)
            }
            await crowd.wake(.room)
            await crowd.loop.settle()
            #expect(await crowd.takeResumed() == [10, 11])
        }
    }

    @Test("a wake-up of at most one task resumes the first task that has not been cancelled")
    func first() async throws {
        try await withCrowd { crowd, tasks in
            for number: UInt64 in [0, 3, 10] {
                tasks[number]?.cancel()
                await crowd.loop.settle()
                #expect(await crowd.takeResumed() == [number])
            }
            for expected: [UInt64] in [[1], [2], [4], []] {
                await crowd.wake(.change, atMost: 1)
                await crowd.loop.settle()
                #expect(await crowd.takeResumed() == expected)
            }
        }
    }

    @Test("when all are woken, the tasks run in the order in which they began to wait")
    func all() async throws {
        try await withCrowd { crowd, _ in
            await crowd.loop.run { crowd.condition.wakeAll() }
            await crowd.loop.settle()
            #expect(await crowd.takeResumed() == [4, 10, 1, 3, 11, 0, 2])
        }
    }
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
