public import BLESecLinks
internal import BLESecLocking
internal import Synchronization

/// A clock that moves only when a test moves it.
///
/// Make the clock, pass ``loopClock`` to the event loops that use it, and move the time with
/// ``advance(by:)``. When that call returns, the loops have done everything that was due by then.
public final class ManualClock: LoopClock.Source {
    private struct WeakLoop: Sendable {
        weak let loop: EventLoop?
    }

    private let nanoseconds: Atomic<UInt64>
    private let loops = Locked<[WeakLoop]>([])

    /// Makes a clock whose time is one second after its origin.
    public init() { nanoseconds = Atomic(1_000_000_000) }

    /// The clock for `EventLoop(name:clock:)`.
    public var loopClock: LoopClock { .manual(self) }

    /// The current time of the clock.
    public var now: MonotonicTime {
        MonotonicTime(nanoseconds: nanoseconds.load(ordering: .acquiring))
    }

    /// Called by a loop that uses this clock.
    public func attach(_ loop: EventLoop) {
        loops.withLock { loops in
            loops.removeAll { $0.loop == nil }
            loops.append(WeakLoop(loop: loop))
        }
    }

    /// Moves the time, stopping at each deadline on the way.
    ///
    /// At each stop the timers that are due fire, and every loop runs until it has nothing left to
    /// do. Call this function from one task at a time.
    public func advance(by duration: Duration) async {
        let target = now.advanced(by: duration)
        await settle()
        while let next = await earliestDeadline(), next <= target {
            nanoseconds.store(max(next, now).nanoseconds, ordering: .releasing)
            await settle()
        }
        nanoseconds.store(target.nanoseconds, ordering: .releasing)
        await settle()
    }

    /// Lets every loop run until it has nothing left to do, without moving the time.
    ///
    /// Tasks that run outside of these loops are not awaited. If work is handed from loop to loop
    /// more often than there are loops, its last part may remain to be done.
    public func settle() async {
        let loops = attached
        // As many rounds as there are loops, because one loop may give work to another.
        for _ in loops { for loop in loops { await loop.settle() } }
    }

    private var attached: [EventLoop] { loops.withLock { $0.compactMap(\.loop) } }

    private func earliestDeadline() async -> MonotonicTime? {
        var earliest: MonotonicTime?
        for loop in attached {
            let next = await loop.run { loop.nextDeadline }
            if let next { earliest = min(next, earliest ?? next) }
        }
        return earliest
    }
}
