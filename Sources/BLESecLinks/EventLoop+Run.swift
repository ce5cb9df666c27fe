internal import BLESecLocking
internal import Synchronization

extension EventLoop {
    /// The number of jobs that run between two checks of the descriptors. A job takes 0.1 to 1 µs
    /// and a check 0.3 µs, so the checks cost little, and a ready descriptor waits only briefly.
    private static let jobsBetweenPolls = 64
    /// The number of calls, such as a channel's `send`, that a task may make before other jobs run.
    /// A call takes about 1 µs.
    private static let callsInARow = 64
    /// The number of calls that count as one job.
    private static let callsPerJob = 8

    /// Calls `work.runDeferred()` in this turn of the loop or the next. Called on the loop's
    /// thread.
    package func runSoon(_ work: any DeferredWork) {
        assertCurrent()
        deferred.append(work)
    }

    /// Calls `work.runDeferred()` at the end of this turn, before the loop fires its timers and
    /// checks its descriptors. If the handler of a timer or descriptor calls this function, the
    /// work runs at the end of the next turn. Called on the loop's thread.
    package func runAtEndOfTurn(_ work: any DeferredWork) {
        assertCurrent()
        endOfTurn.append(work)
    }

    /// Counts a call that the running task wants to make, and returns whether the task may make it
    /// at once. If not, the task has to call ``giveWay()`` first. Called on the loop's thread.
    package func mayContinue() -> Bool {
        callsOfTask += 1
        return callsOfTask <= Self.callsInARow
    }

    /// Counts calls that the running task has made.
    package func count(calls: Int) { callsOfTask += calls }

    /// Lets the jobs that are queued run before the calling task continues. Called on the loop's
    /// thread.
    package nonisolated(nonsending) func giveWay() async {
        await unsafe withUnsafeContinuation { continuation in
            ready.append(.call { unsafe continuation.resume() })
        }
    }

    /// Returns when the loop has nothing to do: no job, no due timer, no ready descriptor.
    package func settle() async {
        await withCheckedContinuation { waiter in
            execute { [self] in idleWaiters.append(waiter) }
        }
    }

    /// When the next timer may fire. Read on the loop's thread.
    package var nextDeadline: MonotonicTime? {
        assertCurrent()
        return timers.earliest
    }

    /// The number of armed timers and of watched descriptors. Read on the loop's thread.
    package var load: (timers: Int, sources: Int) {
        assertCurrent()
        return (timers.count, sources.count)
    }

    /// Queues work from any thread. Wakes a waiting loop, and restarts the loop's thread if the
    /// thread has ended.
    func submit(_ work: LoopWork) {
        if isCurrent { return ready.append(work) }
        let mustStart = inbox.withLock { inbox in
            inbox.work.append(work)
            // Under the mutex, so that an ending thread cannot close the poller during the call.
            if inbox.isAsleep { poller.wake() }
            inbox.isAsleep = false
            defer { inbox.isRunning = true }
            return !inbox.isRunning
        }
        if mustStart { LoopThread.start(self) }
    }

    /// The body of the loop's thread.
    func run() {
        threadIdentity.store(LoopThread.identity, ordering: .relaxed)
        while true {
            turn &+= 1
            takeInbox()
            runQueued()
            runEndOfTurn()
            fireDueTimers()
            if !ready.isEmpty || !deferred.isEmpty || !endOfTurn.isEmpty {
                // Work is left, so the loop does not wait.
                _ = poll(nanoseconds: 0)
            } else if isStopping {
                resumeIdleWaiters()
                if ready.isEmpty && end() { return }
            } else if !idleWaiters.isEmpty {
                // The loop is idle if no descriptor is ready and no timer is due.
                if poll(nanoseconds: 0) == 0, !hasDueTimer { resumeIdleWaiters() }
            } else if prepareToSleep() {
                _ = poll(nanoseconds: nanosecondsToNextTimer())
            }
        }
    }

    private func takeInbox() {
        inbox.withLock { inbox in
            inbox.isAsleep = false
            if ready.isEmpty { return swap(&ready, &inbox.work) }
            while let work = inbox.work.popFirst() { ready.append(work) }
        }
    }

    /// Runs jobs, and the work that they defer, until nothing is left to run or the limit
    /// ``jobsBetweenPolls`` is reached.
    private func runQueued() {
        var budget = Self.jobsBetweenPolls
        while budget > 0 {
            budget -= deferred.count
            runDeferredWork()
            guard let work = ready.popFirst() else {
                if deferred.isEmpty { return }
                continue
            }
            callsOfTask = 0
            switch work {
            case .call(let body): body()
            case .job(let job): runTask(job)
            }
            budget -= 1 + callsOfTask / Self.callsPerJob
        }
    }

    /// Runs a task's job, and the jobs with which the task continues next.
    private func runTask(_ first: UnownedJob) {
        var job: UnownedJob? = first
        while let next = job {
            runningJob = next
            unsafe next.runSynchronously(
                isolatedTo: asUnownedSerialExecutor(), taskExecutor: asUnownedTaskExecutor())
            job = nextJob.take()
        }
        runningJob = nil
    }

    /// Whether `job` continues the running task, and may run before other jobs. Such a job counts
    /// as a call of the task (``mayContinue()``).
    func mayRunNext(_ job: UnownedJob) -> Bool {
        guard let runningJob, Self.areSame(job, runningJob) else { return false }
        return mayContinue()
    }

    /// Whether `one` and `other` belong to the same task: a task has one job object, which it
    /// queues again whenever it changes executors.
    private static func areSame(_ one: UnownedJob, _ other: UnownedJob) -> Bool {
        unsafe unsafeBitCast(one, to: UInt.self) == unsafeBitCast(other, to: UInt.self)
    }

    private func runDeferredWork() {
        guard !deferred.isEmpty else { return }
        runAll(exchange(&deferred, with: exchange(&spareWork, with: [])))
    }

    private func runEndOfTurn() {
        guard !endOfTurn.isEmpty else { return }
        runAll(exchange(&endOfTurn, with: exchange(&spareWork, with: [])))
    }

    /// Runs `work`, which its caller has taken out of the loop's list: the work may append to that
    /// list when it runs or is released. Keeps the array's memory for later work.
    private func runAll(_ work: consuming [any DeferredWork]) {
        for index in 0..<work.count { work[index].runDeferred() }
        work.removeAll(keepingCapacity: true)
        spareWork = work
    }

    private func fireDueTimers() {
        guard timers.count > 0 else { return }
        let now = now
        for _ in 0..<timers.count {
            guard let timer = timers.popDue(now) else { return }
            timer.fire()
        }
    }

    private var hasDueTimer: Bool { timers.earliest.map { $0 <= now } ?? false }

    private func poll(nanoseconds: Int64) -> Int {
        poller.wait(nanoseconds: nanoseconds) { token, events in
            sources.source(token)?.deliver(events)
        }
    }

    /// How long the loop may wait in the kernel; -1 if it needs no timeout.
    private func nanosecondsToNextTimer() -> Int64 {
        guard let next = timers.earliest else { return -1 }
        // A manual clock does not move by itself: its source moves it, and then wakes the loop. So
        // the wait for a later time needs no timeout.
        if clock.source != nil { return next <= now ? 0 : -1 }
        return max(0, next.duration(since: now).clampedNanoseconds)
    }

    /// Announces to other threads that they have to wake the loop, and returns true. If they have
    /// queued work, announces nothing, and returns false.
    private func prepareToSleep() -> Bool {
        inbox.withLock { inbox in
            guard inbox.work.isEmpty else { return false }
            inbox.isAsleep = true
            return true
        }
    }

    private func resumeIdleWaiters() {
        guard ready.isEmpty, deferred.isEmpty, endOfTurn.isEmpty,
            inbox.withLock({ $0.work.isEmpty })
        else { return }
        let waiters = idleWaiters
        idleWaiters = []
        for waiter in waiters { waiter.resume() }
    }

    /// Begins the shutdown: wakes every waiting task, since its event will not come any more.
    func stop() {
        guard !isStopping else { return }
        // The work at the end of this turn is the last in which links can send.
        hasBegunShutdown = true
        runEndOfTurn()
        isStopping = true
        for source in sources.all { source.deliverShutdown() }
        while let timer = timers.popAny() { timer.fire() }
        resumeIdleWaiters()
    }

    /// Prepares the end of the thread. Returns false if there is more to run first.
    private func end() -> Bool {
        let waiters: [CheckedContinuation<Void, Never>]? = inbox.withLock { inbox in
            guard inbox.work.isEmpty else { return nil }
            inbox.isRunning = false
            // Under the mutex, because the next thread may begin as soon as the mutex is released.
            threadIdentity.store(0, ordering: .relaxed)
            poller.close()
            defer { inbox.endWaiters = [] }
            return inbox.endWaiters
        }
        guard let waiters else { return false }
        for waiter in waiters { waiter.resume() }
        return true
    }
}
