/// What a task waits for on a ``LoopCondition``.
package enum LoopEvent: Sendable {
    /// A channel is ready.
    case ready
    /// It is the next caller's turn to send.
    case nextSender
    /// A channel or its peer has ended.
    case end
    /// A message, an acknowledgement or a link has come, or something else has changed.
    case message, acknowledgement, link, change
    /// A stream has come, or an open stream can be used further.
    case stream
    /// There is room for a message, a handshake or another channel.
    case room
    /// The trust store has remembered the peer, or has failed to do so.
    case remembered
}

/// Tasks that wait for an event on a loop; each task waits for one kind of event.
///
/// A woken task must check again whether it can continue, since other tasks may run first. A
/// `LoopCondition` is used by actors of one loop.
///
/// The continuations are unchecked, because a checked one costs an allocation for each message.
/// Each waiter is resumed exactly once, by the code that removes it from the list.
@safe package final class LoopCondition: @unchecked Sendable {
    // `LoopCondition` is Sendable because its methods check that they run on the loop's thread.

    @safe private struct Waiter {
        let token: UInt64
        let event: LoopEvent
        let continuation: UnsafeContinuation<Bool, Never>

        func resume(isCancelled: Bool) { unsafe continuation.resume(returning: isCancelled) }
    }

    private let loop: EventLoop
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    private var waiters: [Waiter] = []
    private var lastToken: UInt64 = 0

    /// Makes a condition on which no task waits.
    package init(loop: EventLoop) { self.loop = loop }

    /// Suspends until `event`, and returns whether the wait ended because the task was cancelled.
    ///
    /// If `isOver` returns true, the wait is over already, and the call does not suspend. `isOver`
    /// is called immediately before the suspension, so that no wake-up after the caller's own check
    /// is lost. The isolation is passed explicitly, because the runtime's functions would otherwise
    /// leave the loop's thread.
    package func wait(
        for event: LoopEvent, isolation: isolated (any Actor), unless isOver: () -> Bool
    ) async -> Bool {
        loop.assertCurrent()
        lastToken += 1
        return await wait(for: event, lastToken, isolation: isolation, unless: isOver)
    }

    /// Suspends as ``wait(for:isolation:unless:)`` does, but at most until `deadline`. Returns
    /// false at the deadline. After the loop's shutdown no deadline comes, so a wait that is not
    /// over returns true, as if the task was cancelled.
    package func wait(
        for event: LoopEvent, until deadline: MonotonicTime, isolation: isolated (any Actor),
        unless isOver: () -> Bool
    ) async -> Bool {
        loop.assertCurrent()
        if loop.isShutDown { return !isOver() }
        lastToken += 1
        let token = lastToken
        let alarm = Alarm { [weak self, loop] in
            self?.resume(token, isCancelled: loop.isShutDown)
        }
        let timer = LoopTimer(loop: loop, handler: alarm)
        timer.arm(at: min(deadline, LoopTimer.latestTime))
        // Keeps the alarm alive during the wait, because the timer holds its handler weakly.
        defer { withExtendedLifetime(alarm) { timer.disarm() } }
        return await wait(for: event, token, isolation: isolation, unless: isOver)
    }

    private func wait(
        for event: LoopEvent, _ token: UInt64, isolation: isolated (any Actor),
        unless isOver: () -> Bool
    ) async -> Bool {
        return await withTaskCancellationHandler {
            // Using `isolation` here keeps this closure on the actor.
            _ = isolation
            return await unsafe withUnsafeContinuation(isolation: isolation) { continuation in
                loop.assertCurrent()
                if Task.isCancelled {
                    unsafe continuation.resume(returning: true)
                } else if isOver() {
                    unsafe continuation.resume(returning: false)
                } else {
                    waiters.append(
                        unsafe Waiter(token: token, event: event, continuation: continuation))
                }
            }
        } onCancel: {
            loop.execute { self.resume(token, isCancelled: true) }
        }
    }

    /// Wakes all tasks that wait for `event`.
    package func wake(_ event: LoopEvent) {
        loop.assertCurrent()
        // Removes waiters in place, because this runs several times per message and must not
        // allocate. A resumed task runs later, so it cannot change the list meanwhile.
        var keptCount = 0
        for index in 0..<waiters.count {
            if waiters[index].event == event {
                waiters[index].resume(isCancelled: false)
            } else {
                if keptCount < index { waiters[keptCount] = waiters[index] }
                keptCount += 1
            }
        }
        if keptCount < waiters.count { waiters.removeLast(waiters.count - keptCount) }
    }

    /// Wakes all waiting tasks, in the order in which they began to wait.
    package func wakeAll() {
        loop.assertCurrent()
        let all = waiters
        waiters = []
        for waiter in all { waiter.resume(isCancelled: false) }
    }

    private func resume(_ token: UInt64, isCancelled: Bool) {
        guard let index = waiters.firstIndex(where: { $0.token == token }) else { return }
        waiters.remove(at: index).resume(isCancelled: isCancelled)
    }

    private final class Alarm: TimerHandler {
        private let ring: () -> Void

        init(_ ring: @escaping () -> Void) { self.ring = ring }

        func timerFired(_ timer: LoopTimer) { ring() }
    }
}
