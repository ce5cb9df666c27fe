internal import BLESecLinks

/// Wakes waiting tasks when something has changed; each task then checks its own condition. Belongs
/// to one actor on the loop.
@safe final class ChangeSignal: @unchecked Sendable {
    // Sendable because everything is touched on the loop's thread only, which each entry checks.

    private final class Waiter: TimerHandler {
        private var continuation: CheckedContinuation<Bool, Never>?
        private var timer: LoopTimer?

        init(_ continuation: CheckedContinuation<Bool, Never>) {
            self.continuation = continuation
        }

        func start(_ loop: EventLoop, until deadline: MonotonicTime) {
            let timer = LoopTimer(loop: loop, handler: self)
            timer.arm(at: deadline)
            self.timer = timer
        }

        func finish(isCancelled: Bool) {
            timer?.disarm()
            continuation.take()?.resume(returning: !isCancelled)
        }

        func timerFired(_ timer: LoopTimer) { finish(isCancelled: false) }
    }

    private let loop: EventLoop
    private var waiters: [UInt64: Waiter] = [:]
    private var lastToken: UInt64 = 0

    /// The number of changes so far. A task reads it before it checks its condition, so that
    /// ``wait(after:until:isolation:)`` notices a change made in between.
    private(set) var count: UInt64 = 0

    init(loop: EventLoop) { self.loop = loop }

    /// Reports a change, and wakes all waiting tasks.
    func tell() {
        loop.assertCurrent()
        count += 1
        let woken = waiters.values
        waiters = [:]
        for waiter in woken { waiter.finish(isCancelled: false) }
    }

    /// Suspends until the number of changes differs from `seen`, or until the deadline.
    ///
    /// - Returns: false when the task was cancelled.
    func wait(
        after seen: UInt64, until deadline: MonotonicTime, isolation: isolated (any Actor)
    ) async -> Bool {
        loop.assertCurrent()
        lastToken += 1
        let token = lastToken
        let goesOn = await withTaskCancellationHandler {
            _ = isolation
            return await withCheckedContinuation(isolation: isolation) { continuation in
                loop.assertCurrent()
                let waiter = Waiter(continuation)
                if Task.isCancelled { return waiter.finish(isCancelled: true) }
                if count != seen { return waiter.finish(isCancelled: false) }
                waiters[token] = waiter
                waiter.start(loop, until: deadline)
            }
        } onCancel: {
            loop.execute { self.waiters.removeValue(forKey: token)?.finish(isCancelled: true) }
        }
        waiters[token] = nil
        return goesOn
    }
}
