/// What a task waits for on a ``LoopCondition``.
package enum LoopEvent: UInt8, Sendable {
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
/// A woken task must check again whether it can continue, since other tasks may run first. A task
/// may wait with a number, such as that of the message whose acknowledgement it waits for. Then
/// ``wake(_:through:atMost:)`` resumes only the tasks up to a given number, and not all tasks for
/// each message. A `LoopCondition` is used by actors of one loop.
///
/// The continuations are unchecked, because a checked one costs an allocation for each message.
/// Each waiter is resumed exactly once, by the code that removes it from the list.
@safe package final class LoopCondition: @unchecked Sendable {
    // `LoopCondition` is Sendable because its methods check that they run on the loop's thread.

    /// What a task waits for, and its place among the waiters of the same event.
    private struct Place: Comparable {
        let event: LoopEvent
        let number: UInt64
        /// Counts the waits, so a task that began to wait later has a greater token.
        let token: UInt64

        static func < (a: Place, b: Place) -> Bool {
            (a.event.rawValue, a.number, a.token) < (b.event.rawValue, b.number, b.token)
        }
    }

    @safe private struct Waiter {
        let place: Place
        let continuation: UnsafeContinuation<Bool, Never>

        func resume(isCancelled: Bool) { unsafe continuation.resume(returning: isCancelled) }
    }

    private let loop: EventLoop
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    /// In ascending order of their places.
    private var waiters: [Waiter] = []
    private var lastToken: UInt64 = 0
    /// How many waiting tasks were resumed, for tests.
    package private(set) var resumedCount: UInt64 = 0

    /// Makes a condition on which no task waits.
    package init(loop: EventLoop) { self.loop = loop }

    /// Suspends until `event`, and returns whether the wait ended because the task was cancelled.
    ///
    /// If `isOver` returns true, the wait is over already, and the call does not suspend. `isOver`
    /// is called immediately before the suspension, so that no wake-up after the caller's own check
    /// is lost. The isolation is passed explicitly, because the runtime's functions would otherwise
    /// leave the loop's thread.
    ///
    /// Tasks are resumed in the order of their numbers; those with the same number in the order in
    /// which they began to wait.
    package func wait(
        for event: LoopEvent, number: UInt64 = 0, isolation: isolated (any Actor),
        unless isOver: () -> Bool
    ) async -> Bool {
        let place = nextPlace(event, number)
        return await wait(at: place, isolation: isolation, unless: isOver)
    }

    /// Suspends as ``wait(for:number:isolation:unless:)`` does, but at most until `deadline`. Returns
    /// false at the deadline. After the loop's shutdown no deadline comes, so a wait that is not
    /// over returns true, as if the task was cancelled.
    package func wait(
        for event: LoopEvent, until deadline: MonotonicTime, isolation: isolated (any Actor),
        unless isOver: () -> Bool
    ) async -> Bool {
        loop.assertCurrent()
        if loop.isShutDown { return !isOver() }
        let place = nextPlace(event, 0)
        let alarm = Alarm { [weak self, loop] in
            self?.resume(place, isCancelled: loop.isShutDown)
        }
        let timer = LoopTimer(loop: loop, handler: alarm)
        timer.arm(at: min(deadline, LoopTimer.latestTime))
        // Keeps the alarm alive during the wait, because the timer holds its handler weakly.
        defer { withExtendedLifetime(alarm) { timer.disarm() } }
        return await wait(at: place, isolation: isolation, unless: isOver)
    }

    private func nextPlace(_ event: LoopEvent, _ number: UInt64) -> Place {
        loop.assertCurrent()
        lastToken += 1
        return Place(event: event, number: number, token: lastToken)
    }

    private func wait(
        at place: Place, isolation: isolated (any Actor), unless isOver: () -> Bool
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
                    waiters.insert(
                        unsafe Waiter(place: place, continuation: continuation),
                        at: index(of: place))
                }
            }
        } onCancel: {
            loop.execute { self.resume(place, isCancelled: true) }
        }
    }

    /// Wakes the tasks that wait for `event` with a number up to `number`, or only the first `count`
    /// of them. By default, wakes all tasks that wait for `event`.
    package func wake(
        _ event: LoopEvent, through number: UInt64 = .max, atMost count: Int = .max
    ) {
        loop.assertCurrent()
        // Removes waiters in place, because this runs several times per message and must not
        // allocate. A resumed task runs later, so it cannot change the list meanwhile.
        let start = index(of: Place(event: event, number: 0, token: 0))
        var end = start
        while end < waiters.count, end - start < count, waiters[end].place.event == event,
            waiters[end].place.number <= number
        {
            waiters[end].resume(isCancelled: false)
            end += 1
        }
        guard start < end else { return }
        waiters.removeSubrange(start..<end)
        resumedCount += UInt64(end - start)
    }

    /// Wakes all waiting tasks, in the order in which they began to wait.
    package func wakeAll() {
        loop.assertCurrent()
        let all = waiters.sorted { $0.place.token < $1.place.token }
        waiters = []
        for waiter in all { waiter.resume(isCancelled: false) }
        resumedCount += UInt64(all.count)
    }

    private func resume(_ place: Place, isCancelled: Bool) {
        let index = index(of: place)
        guard index < waiters.count, waiters[index].place == place else { return }
        waiters.remove(at: index).resume(isCancelled: isCancelled)
        resumedCount += 1
    }

    /// The index of the first waiter whose place is not before `place`.
    private func index(of place: Place) -> Int {
        var range = 0..<waiters.count
        while !range.isEmpty {
            let middle = range.lowerBound + range.count / 2
            if waiters[middle].place < place {
                range = middle + 1..<range.upperBound
            } else {
                range = range.lowerBound..<middle
            }
        }
        return range.lowerBound
    }

    private final class Alarm: TimerHandler {
        private let ring: () -> Void

        init(_ ring: @escaping () -> Void) { self.ring = ring }

        func timerFired(_ timer: LoopTimer) { ring() }
    }
}
