internal import BLESecLinks

/// Tasks that wait for something to happen on a loop, sorted by what they wait for.
///
/// Whoever is woken looks again at what it waited for. Belongs to one actor of the loop.
///
/// The continuations are unchecked ones, since a check costs an allocation for each message: whoever
/// stands in the list is resumed exactly once, by the one who takes it out.
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

    /// Suspends until `event`, and says whether the wait ended because the task was cancelled.
    ///
    /// `isOver` is asked at the last moment, so that no wake-up is lost between the caller's own look
    /// and the suspension. The isolation is handed on in so many words, since the runtime's functions
    /// would leave the loop's thread otherwise.
    func wait(
        for event: Event, isolation: isolated (any Actor), unless isOver: () -> Bool
    ) async -> Bool {
        loop.assertCurrent()
        lastToken += 1
        let token = lastToken
        return await withTaskCancellationHandler {
            // Naming it is what keeps this closure on the actor.
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

    /// Wakes all who wait for `event`.
    func wake(_ event: Event) {
        loop.assertCurrent()
        // By hand, since this runs several times a message and must not allocate. Whoever is resumed
        // runs later, and cannot change the list meanwhile.
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
