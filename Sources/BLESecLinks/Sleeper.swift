extension EventLoop {
    /// Suspends the task until `deadline`, by the loop's clock.
    ///
    /// - Throws: `CancellationError` as soon as the task is cancelled or the loop is shut down.
    public func sleep(until deadline: MonotonicTime) async throws(CancellationError) {
        let sleeper = Sleeper(self)
        let slept = await withTaskCancellationHandler {
            await withCheckedContinuation { waiter in
                execute { sleeper.start(until: deadline, waiter) }
            }
        } onCancel: {
            execute { sleeper.cancel() }
        }
        if !slept { throw CancellationError() }
    }

    /// Suspends the task for `duration`, by the loop's clock.
    public func sleep(for duration: Duration) async throws(CancellationError) {
        try await sleep(until: now.advanced(by: duration))
    }
}

/// One sleeping task. Used on the loop's thread.
private final class Sleeper: TimerHandler, @unchecked Sendable {
    // Sendable because it is used on its loop's thread only, after it was made.

    private let loop: EventLoop
    private var timer: LoopTimer?
    private var waiter: CheckedContinuation<Bool, Never>?
    private var isCancelled = false

    init(_ loop: EventLoop) { self.loop = loop }

    func start(until deadline: MonotonicTime, _ waiter: CheckedContinuation<Bool, Never>) {
        guard !isCancelled, !loop.isShutDown else { return waiter.resume(returning: false) }
        self.waiter = waiter
        let timer = LoopTimer(loop: loop, handler: self)
        self.timer = timer
        // Even a sleep without an end must end at the loop's shutdown.
        timer.arm(at: min(deadline, LoopTimer.latestTime))
    }

    func cancel() {
        isCancelled = true
        timer?.disarm()
        finish(false)
    }

    func timerFired(_ timer: LoopTimer) { finish(!loop.isShutDown) }

    private func finish(_ slept: Bool) { waiter.take()?.resume(returning: slept) }
}
