internal import BLESecLinks

/// Tasks that wait for an event on a loop; each task waits for one kind of event.
///
/// A task that is woken must check again whether its condition holds. A condition belongs to one
/// actor of the loop.
///
/// The continuations are unchecked, because a checked one costs an allocation for each message.
/// Each waiter is resumed exactly once, by the code that removes it from the list.
@safe final class LoopCondition<Event: Hashable & Sendable>: @unchecked Sendable {
    // Sendable because everything is touched on the loop's thread only, which each entry checks.
    @safe private struct Waiter {
        let token: UInt64
        let event: Event
        let continuation: UnsafeContinuation<Bool, Never>

        func resume(isCancelled: Bool) { unsafe continuation.resume(returning: isCancelled) }
    }

    private let loop: EventLoop
    private var waiters: [Waiter] = []
    private var lastToken: UInt64 = 0

    init(loop: EventLoop) { self.loop = loop }

    /// Suspends until `event`, and returns whether the wait ended because the task was cancelled.
    ///
    /// `isOver` is evaluated last, immediately before the suspension, so that no wake-up is lost
    /// after the caller's own check. The isolation is passed explicitly, because the runtime's
    /// functions would otherwise leave the loop's thread.
    func wait(
        for event: Event, isolation: isolated (any Actor), unless isOver: () -> Bool
    ) async -> Bool {
        loop.assertCurrent()
        lastToken += 1
        let token = lastToken
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
            loop.execute { self.cancel(token) }
        }
    }

    /// Wakes all tasks that wait for `event`.
    func wake(_ event: Event) {
        loop.assertCurrent()
        // A manual loop, because this runs several times per message and must not allocate. A
        // resumed task runs later, and cannot change the list meanwhile.
        var index = 0
        while index < waiters.count {
            if waiters[index].event == event {
                waiters.remove(at: index).resume(isCancelled: false)
            } else {
                index += 1
            }
        }
    }

    private func cancel(_ token: UInt64) {
        guard let index = waiters.firstIndex(where: { $0.token == token }) else { return }
        waiters.remove(at: index).resume(isCancelled: true)
    }
}
