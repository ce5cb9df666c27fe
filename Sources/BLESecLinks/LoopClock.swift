/// The clock by which an ``EventLoop`` fires its timers.
public struct LoopClock: Sendable {
    /// What moves a clock that does not move by itself.
    public protocol Source: AnyObject, Sendable {
        /// The time now, read on any thread.
        var now: MonotonicTime { get }
        /// Called once by each loop that is made with this clock.
        func attach(_ loop: EventLoop)
    }

    let source: (any Source)?

    /// The kernel's `CLOCK_MONOTONIC`.
    ///
    /// Not `CLOCK_BOOTTIME`: time that a machine spent suspended is time in which neither it nor
    /// its peer could be heard, so it is no evidence that the peer is dead; and `epoll_wait` counts
    /// by this clock too.
    public static let system = LoopClock(source: nil)

    /// A clock that stands still until its source is told to move: for tests.
    public static func manual(_ source: any Source) -> LoopClock {
        LoopClock(source: source)
    }
}
