import BLESecLinks
import BLESecLocking
import BLESecTesting
import Testing

/// Records the times at which timers fire. Used on the loop's thread only.
private final class Alarm: TimerHandler {
    var times: [MonotonicTime] = []
    var whenFired: (LoopTimer) -> Void = { _ in }

    func timerFired(_ timer: LoopTimer) {
        times.append(timer.loop.now)
        whenFired(timer)
    }
}

@Suite struct TimerTests {
    /// Runs `body` on a loop with a manual clock.
    private func withManualLoop(
        _ body: @escaping @Sendable (EventLoop, ManualClock) async throws -> Void
    ) async throws {
        let clock = ManualClock()
        try await withLoop(clock: clock.loopClock) { loop in try await body(loop, clock) }
    }

    @Test("no duration is too long or too short for a time", arguments: [1e19, 1e20])
    func extremeDurations(seconds: Double) {
        let time = MonotonicTime(nanoseconds: 1_000)
        #expect(time.advanced(by: .seconds(seconds)).nanoseconds >= UInt64(Int64.max))
        #expect(time.advanced(by: .seconds(-seconds)) == MonotonicTime(nanoseconds: 0))
    }

    @Test("a timer fires once, at its deadline")
    func fires() async throws {
        try await withManualLoop { loop, clock in
            let alarm = Alarm()
            let timer = LoopTimer(loop: loop, handler: alarm)
            let deadline = loop.now.advanced(by: .seconds(5))
            timer.arm(at: deadline)
            await clock.advance(by: .seconds(4.999))
            #expect(alarm.times.isEmpty)
            await clock.advance(by: .seconds(100))
            #expect(alarm.times == [deadline])
            #expect(timer.deadline == nil)
            #expect(loop.load.timers == 0)
        }
    }

    @Test("a timer that is postponed fires at the new time only")
    func postponed() async throws {
        try await withManualLoop { loop, clock in
            let alarm = Alarm()
            let timer = LoopTimer(loop: loop, handler: alarm)
            let start = loop.now
            timer.arm(in: .seconds(1))
            for _ in 0..<10 {
                await clock.advance(by: .milliseconds(900))
                timer.arm(in: .seconds(1))
            }
            #expect(alarm.times.isEmpty)
            await clock.advance(by: .seconds(10))
            #expect(alarm.times == [start.advanced(by: .seconds(10))])
        }
    }

    @Test("a timer that is brought forward fires at the new time only")
    func broughtForward() async throws {
        try await withManualLoop { loop, clock in
            let alarm = Alarm()
            let timer = LoopTimer(loop: loop, handler: alarm)
            let start = loop.now
            timer.arm(in: .seconds(10))
            timer.arm(in: .seconds(1))
            await clock.advance(by: .seconds(20))
            #expect(alarm.times == [start.advanced(by: .seconds(1))])
        }
    }

    @Test("a timer that is disarmed, or armed for the distant future, does not fire")
    func disarmed() async throws {
        try await withManualLoop { loop, clock in
            let alarm = Alarm()
            let timer = LoopTimer(loop: loop, handler: alarm)
            timer.arm(in: .seconds(1))
            timer.disarm()
            timer.disarm()
            await clock.advance(by: .seconds(2))
            timer.arm(at: .distantFuture)
            await clock.advance(by: .seconds(86_400))
            #expect(alarm.times.isEmpty)
            #expect(loop.load.timers == 0)
        }
    }

    @Test("a timer may be armed again from its own handler")
    func rearmed() async throws {
        try await withManualLoop { loop, clock in
            let alarm = Alarm()
            alarm.whenFired = { $0.arm(in: .seconds(1)) }
            let timer = LoopTimer(loop: loop, handler: alarm)
            timer.arm(in: .seconds(1))
            await clock.advance(by: .seconds(10))
            #expect(alarm.times.count == 10)
        }
    }

    @Test("a timer whose handler no longer exists expires without harm")
    func handlerGone() async throws {
        try await withManualLoop { loop, clock in
            var alarm: Alarm? = Alarm()
            weak let observed = alarm
            let timer = LoopTimer(loop: loop, handler: try #require(alarm))
            timer.arm(in: .seconds(1))
            alarm = nil
            #expect(observed == nil)
            await clock.advance(by: .seconds(2))
            #expect(timer.deadline == nil)
        }
    }

    @Test("of 200 timers, armed and disarmed at random, those left armed fire once, at their times")
    func manyTimers() async throws {
        try await withManualLoop { loop, clock in
            var random = SeededGenerator(seed: 3)
            let alarm = Alarm()
            let timers = (0..<200).map { _ in LoopTimer(loop: loop, handler: alarm) }
            for _ in 0..<5_000 {
                let timer = timers[Int.random(in: 0..<200, using: &random)]
                let delay = Duration.milliseconds(Int.random(in: 1...10_000, using: &random))
                if Int.random(in: 0..<3, using: &random) == 0 {
                    timer.disarm()
                } else {
                    timer.arm(in: delay)
                }
            }
            let expected = timers.compactMap(\.deadline).sorted()
            await clock.advance(by: .seconds(11))
            #expect(alarm.times == expected)
            #expect(loop.load.timers == 0)
        }
    }

    @Test("a sleep ends at its deadline, and not before")
    func sleeps() async throws {
        try await withManualLoop { loop, clock in
            let isOver = Locked(false)
            let task = Task(executorPreference: loop) {
                try await loop.sleep(for: .seconds(5))
                isOver.withLock { $0 = true }
            }
            await clock.advance(by: .seconds(4))
            #expect(!isOver.withLock { $0 })
            await clock.advance(by: .seconds(1))
            #expect(isOver.withLock { $0 })
            try await task.value
        }
    }

    @Test("a sleep that is cancelled ends before its deadline, and leaves no timer")
    func sleepCancelled() async throws {
        try await withManualLoop { loop, clock in
            let task = Task(executorPreference: loop) { try await loop.sleep(for: .seconds(5)) }
            await clock.settle()
            task.cancel()
            await #expect(throws: CancellationError.self) { try await task.value }
            #expect(loop.load.timers == 0)
        }
    }

    @Test("with the system's clock a sleep does not end before its deadline")
    func systemClock() async throws {
        try await withLoop { loop in
            let start = loop.now
            try await loop.sleep(for: .milliseconds(10))
            #expect(loop.now >= start.advanced(by: .milliseconds(10)))
        }
    }
}

@Suite struct MonotonicTimeTests {
    @Test("a duration added to a time gives at least 0, and at most the distant future")
    func saturates() {
        let time = MonotonicTime(nanoseconds: 100)
        #expect(time.advanced(by: .nanoseconds(5)).nanoseconds == 105)
        #expect(time.advanced(by: .nanoseconds(-101)).nanoseconds == 0)
        #expect(MonotonicTime(nanoseconds: .max - 1).advanced(by: .seconds(1)) == .distantFuture)
        #expect(MonotonicTime.distantFuture.advanced(by: .seconds(-1)) == .distantFuture)
        // A duration is limited to 64 bits of nanoseconds.
        #expect(time.advanced(by: .seconds(Int64.max)).nanoseconds == 100 + UInt64(Int64.max))
        #expect(time.advanced(by: .seconds(Int64.min)).nanoseconds == 0)
    }

    @Test("the duration since a later time is negative, and a duration is limited to 64 bits")
    func durations() {
        let early = MonotonicTime(nanoseconds: 1)
        let late = MonotonicTime(nanoseconds: 1_000_000_001)
        #expect(late.duration(since: early) == .seconds(1))
        #expect(early.duration(since: late) == .seconds(-1))
        #expect(MonotonicTime.distantFuture.duration(since: early) == .nanoseconds(Int64.max))
    }
}
