/// Who is told when a timer's time has come, on the loop's thread.
package protocol TimerHandler: AnyObject {
    /// The timer's deadline has passed. It is disarmed now and may be armed again.
    func timerFired(_ timer: LoopTimer)
}

/// One deadline on an event loop, made once and armed as often as one likes.
///
/// Arming an armed timer moves its deadline. Putting it off costs a comparison, everything else
/// O(log n) of the loop's armed timers; nothing allocates once the loop has seen as many timers.
/// Everything but making one belongs to the loop's thread.
package final class LoopTimer: @unchecked Sendable {
    // Sendable because its state is touched on the loop's thread only, which each entry checks.

    /// The loop that fires it.
    package let loop: EventLoop

    private weak let handler: (any TimerHandler)?

    /// When it fires; nil while it is disarmed.
    package private(set) var deadline: MonotonicTime?

    /// Where it stands in the loop's heap.
    var position: Int?

    /// Makes a disarmed timer. The handler is held weakly.
    package init(loop: EventLoop, handler: any TimerHandler) {
        self.loop = loop
        self.handler = handler
    }

    /// Fires at `time`, or in the loop's next round if that has passed.
    ///
    /// ``MonotonicTime/distantFuture`` disarms. On a loop that was shut down nothing happens.
    package func arm(at time: MonotonicTime) {
        loop.assertCurrent()
        guard time != .distantFuture, !loop.isShutDown else { return disarm() }
        deadline = time
        loop.timers.place(self, at: time)
    }

    /// Fires after `duration` from now.
    package func arm(in duration: Duration) {
        arm(at: loop.now.advanced(by: duration))
    }

    /// Does not fire.
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
