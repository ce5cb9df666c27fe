/// Called when a timer fires, on the loop's thread.
package protocol TimerHandler: AnyObject {
    /// The timer's deadline has passed, or the loop is being shut down. The timer is disarmed now
    /// and may be armed again.
    func timerFired(_ timer: LoopTimer)
}

/// A timer with one deadline on an event loop; it can be armed any number of times.
///
/// Arming an armed timer moves its deadline. Moving the deadline to a later time costs one
/// comparison; everything else costs O(log n) for n armed timers of the loop. Arming allocates
/// memory only if the loop never had as many armed timers before. All members but the initializer
/// are used on the loop's thread.
package final class LoopTimer: @unchecked Sendable {
    // Sendable because its state is used on the loop's thread only.

    /// The loop that fires the timer.
    package let loop: EventLoop
    private weak let handler: (any TimerHandler)?
    /// When the timer fires; nil while it is disarmed.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    package private(set) var deadline: MonotonicTime?
    /// The timer's index in the loop's heap; nil while the timer is not in the heap.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    var position: Int?

    /// Makes a disarmed timer. The handler is held weakly.
    package init(loop: EventLoop, handler: any TimerHandler) {
        self.loop = loop
        self.handler = handler
    }

    /// The latest time for which a timer can be armed. This time never comes, so a timer that is
    /// armed for it fires only when the loop is shut down.
    package static let latestTime = MonotonicTime(
        nanoseconds: MonotonicTime.distantFuture.nanoseconds - 1)

    /// Arms the timer: it fires at `time`, or in this or the next turn of the loop if `time` has
    /// passed.
    ///
    /// If `time` is ``MonotonicTime/distantFuture``, or after the loop's shutdown, only disarms the
    /// timer. With ``latestTime`` the timer fires at the shutdown.
    package func arm(at time: MonotonicTime) {
        loop.assertCurrent()
        guard time != .distantFuture, !loop.isShutDown else { return disarm() }
        deadline = time
        loop.timers.place(self, at: time)
    }

    /// Arms the timer: it fires after `duration`.
    package func arm(in duration: Duration) { arm(at: loop.now.advanced(by: duration)) }

    /// Disarms the timer.
    package func disarm() {
        loop.assertCurrent()
        deadline = nil
        loop.timers.remove(self)
    }

    /// Called by the loop, once the timer has left the heap.
    func fire() {
        deadline = nil
        handler?.timerFired(self)
    }
}
