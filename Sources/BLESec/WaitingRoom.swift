internal import Links

/// Tasks that wait for something to happen on a loop, sorted by what they wait for.
///
/// Whoever is woken looks again at what it waited for. Belongs to one actor of the loop.
final class WaitingRoom<Event: Hashable & Sendable>: @unchecked Sendable {
    // Sendable because everything is touched on the loop's thread only, which each entry checks.
    private struct Waiter {
        let token: UInt64
        let event: Event
        let continuation: CheckedContinuation<Bool, Never>
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
            return await withCheckedContinuation(isolation: isolation) { continuation in
                loop.assertCurrent()
                if Task.isCancelled {
                    continuation.resume(returning: true)
                } else if isOver() {
                    continuation.resume(returning: false)
                } else {
                    waiters.append(Waiter(token: token, event: event, continuation: continuation))
                }
            }
        } onCancel: {
            loop.execute { self.cancel(token) }
        }
    }

    /// Wakes all who wait for `event`.
    func wake(_ event: Event) {
        loop.assertCurrent()
        guard waiters.contains(where: { $0.event == event }) else { return }
        let woken = waiters.filter { $0.event == event }
        waiters.removeAll { $0.event == event }
        for waiter in woken { waiter.continuation.resume(returning: false) }
    }

    private func cancel(_ token: UInt64) {
        guard let index = waiters.firstIndex(where: { $0.token == token }) else { return }
        waiters.remove(at: index).continuation.resume(returning: true)
    }
}
