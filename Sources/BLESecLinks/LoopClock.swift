/// The clock for the timers of an ``EventLoop``.
public struct LoopClock: Sendable {
    /// The source of a manual clock's time. After the time has moved, the source must wake each
    /// attached loop, for example with ``EventLoop/execute(_:)``: a loop waits without a time limit.
    public protocol Source: AnyObject, Sendable {
        /// The time now. Read on any thread.
        var now: MonotonicTime { get }
        /// Called once by each loop that is made with this clock.
        func attach(_ loop: EventLoop)
    }

    let source: (any Source)?

    /// The kernel's `CLOCK_MONOTONIC`.
    ///
    /// `CLOCK_BOOTTIME` is not used, since it also counts the time while the machine is suspended.
    /// In that time this side cannot hear the peer, so silence does not show that the peer is gone.
    /// `epoll_wait` uses `CLOCK_MONOTONIC` too.
    public static let system = LoopClock(source: nil)

    /// A clock that moves only when its source says so, for tests.
    public static func manual(_ source: any Source) -> LoopClock { LoopClock(source: source) }
}
