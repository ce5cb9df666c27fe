internal import BLESecLocking
internal import Synchronization

/// A thread that waits in `epoll` and runs what is ready: links, timers, and tasks.
///
/// The loop is a serial executor: actors that return it as their `unownedExecutor` run on its
/// thread. It is also a task executor: an application can run its tasks on the same thread as the
/// channels that they use, with `Task(executorPreference: EventLoop.shared) { … }`.
///
/// Priorities are ignored. Jobs that one thread has queued run in the order in which it queued
/// them, with one exception: a task that enters or leaves an actor of the loop continues before
/// other jobs. A task gives way to other jobs after at most 64 calls in a row, such as a channel's
/// `send`. After a bounded number of jobs and calls, the loop checks its descriptors, so neither
/// jobs nor descriptors wait for long. A job that blocks the thread blocks everything on the loop.
public final class EventLoop: TaskExecutor, SerialExecutor, @unchecked Sendable {
    // Sendable because mutable state outside `inbox` is used on the loop's thread only.

    /// The default loop for links. It is never shut down.
    public static let shared = EventLoop(name: "blesec")

    /// The name of the thread; Linux shows the first 15 bytes.
    public let name: String
    /// The clock of ``now`` and of the timers.
    public let clock: LoopClock

    let poller: Poller
    let inbox = Locked(Inbox())
    /// The ``LoopThread/identity`` of the loop's thread; 0 while there is none.
    let threadIdentity = Atomic<UInt>(0)

    // Used on the loop's thread only:
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    var ready = JobQueue()
    /// The work that runs soon; see ``runSoon(_:)``.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    var deferred: [any DeferredWork] = []
    /// The work that waits for the end of the turn; see ``runAtEndOfTurn(_:)``.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    var endOfTurn: [any DeferredWork] = []
    /// An empty array that keeps the memory of an earlier `deferred` or `endOfTurn` for the next one.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    var spareWork: [any DeferredWork] = []
    /// The number of the current turn: a turn ends when the loop checks its descriptors.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    package internal(set) var turn: UInt64 = 0
    /// Whether the shutdown has begun. Until ``isShutDown`` is true as well, links can still send.
    package internal(set) var hasBegunShutdown = false
    /// The job of the task that runs now.
    var runningJob: UnownedJob?
    /// The job with which the task of ``runningJob`` continues next.
    var nextJob: UnownedJob?
    /// The number of calls that the running task has made since it was taken from the queue; see
    /// ``mayContinue()``.
    var callsOfTask = 0
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    var timers = TimerHeap()
    var sources = SourceTable()
    lazy var packetSpace = PacketSpace()
    /// The callers of ``settle()`` that wait until the loop has nothing to do.
    var idleWaiters: [CheckedContinuation<Void, Never>] = []
    /// The stored value of ``isShutDown``.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    var isStopping = false

    /// Work from other threads.
    struct Inbox: Sendable {
        var work = JobQueue()
        /// Whether the loop waits in the kernel and must be woken.
        var isAsleep = false
        /// Whether the loop has a thread.
        var isRunning = true
        var isStopRequested = false
        /// The callers of ``shutdown()`` that wait for the thread's end.
        var endWaiters: [CheckedContinuation<Void, Never>] = []
    }

    /// Starts a loop with a thread of its own.
    ///
    /// Needs two descriptors and a thread; traps if the process cannot get these. The loop runs
    /// until ``shutdown()``, even when nothing refers to it.
    public init(name: String, clock: LoopClock = .system) {
        guard let poller = Poller() else {
            // Not `preconditionFailure`, which prints no text in a release build.
            fatalError("no descriptors left for an event loop: raise `ulimit -n`")
        }
        self.poller = poller
        self.name = name
        self.clock = clock
        clock.source?.attach(self)
        LoopThread.start(self)
    }

    /// The time now, by the loop's clock. Can be read on any thread.
    public var now: MonotonicTime { clock.source?.now ?? Socket.monotonicTime() }
    /// Whether the calling thread is the loop's thread.
    public var isCurrent: Bool { threadIdentity.load(ordering: .relaxed) == LoopThread.identity }
    /// Whether the loop is shut down: links cannot send any more. Read on the loop's thread only.
    public var isShutDown: Bool { isStopping }
    /// Whether ``shutdown()`` has been called; the loop's thread may not have begun the shutdown
    /// yet. Can be read on any thread.
    package var isShutdownRequested: Bool { inbox.withLock { $0.isStopRequested } }

    /// Traps unless the calling thread is the loop's thread.
    public func assertCurrent() {
        precondition(isCurrent, "this call must be made on the event loop's thread")
    }

    /// Runs `body` on the loop's thread, after the work that the calling thread has queued before.
    /// Called from any thread.
    public func execute(_ body: @escaping @Sendable () -> Void) { submit(.call(body)) }

    /// Runs `body` on the loop's thread and waits for its result.
    public func run<Value: Sendable, Failure: Error>(
        _ body: @escaping @Sendable () throws(Failure) -> Value
    ) async throws(Failure) -> Value {
        let result: Result<Value, Failure> = await withCheckedContinuation { waiter in
            execute { [self] in
                let result: Result<Value, Failure>
                do throws(Failure) {
                    result = .success(try body())
                } catch {
                    result = .failure(error)
                }
                showResumptionOrderToSanitizer()
                waiter.resume(returning: result)
            }
        }
        showResumptionOrderToSanitizer()
        return try result.get()
    }

    /// Shows the thread sanitizer that a continuation is resumed before its value is used.
    ///
    /// Called on the loop's thread before the resumption, and by the resumed task before it uses
    /// the value. If the resumption comes before the task has suspended, the runtime orders the
    /// resumption and the use in a way that the sanitizer does not see.
    func showResumptionOrderToSanitizer() { inbox.withLock { _ in } }

    /// Ends the loop and returns when its thread and its descriptors are gone.
    ///
    /// Every task that waits for a link, a connection or a timer is woken and fails with
    /// ``LinkError/Code/closed`` or a `CancellationError`; armed timers fire early. The owners of
    /// links and listeners must close them, before or after the shutdown. Tasks that resume later
    /// still run, on a temporary thread. May be called again; must not be called on ``shared``.
    public func shutdown() async {
        precondition(self !== EventLoop.shared, "the shared event loop serves the whole process")
        await withCheckedContinuation { waiter in
            let hasEnded = inbox.withLock { inbox in
                if inbox.isStopRequested && !inbox.isRunning { return true }
                inbox.endWaiters.append(waiter)
                inbox.isStopRequested = true
                return false
            }
            if hasEnded { return waiter.resume() }
            execute { [self] in stop() }
        }
    }

    // MARK: - Executor

    /// Queues a job of a task. Called by the Swift runtime.
    ///
    /// A running task queues itself when it enters or leaves an actor of the loop. In this case it
    /// continues before other jobs, up to a limit.
    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        if isCurrent, mayRunNext(job) { nextJob = job } else { submit(.job(job)) }
    }

    /// The loop itself, for an actor's `unownedExecutor`.
    public func asUnownedSerialExecutor() -> UnownedSerialExecutor {
        unsafe UnownedSerialExecutor(ordinary: self)
    }

    /// Whether the current code runs on the loop. Called by the Swift runtime.
    public func isIsolatingCurrentContext() -> Bool? { isCurrent }

    /// Traps unless the current code runs on the loop. Called by the Swift runtime.
    public func checkIsolated() { assertCurrent() }
}

/// An object that the loop calls back once for each ``EventLoop/runSoon(_:)`` or
/// ``EventLoop/runAtEndOfTurn(_:)``. Unlike a closure, it needs no allocation.
package protocol DeferredWork: AnyObject {
    /// Called on the loop's thread, never during a call of ``EventLoop/runSoon(_:)`` or
    /// ``EventLoop/runAtEndOfTurn(_:)``.
    func runDeferred()
}
