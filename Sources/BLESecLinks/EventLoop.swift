internal import BLESecLocking
internal import Synchronization

/// One thread that waits in `epoll` and runs whatever is ready: links, timers, and tasks.
///
/// It is a serial executor, so actors that return it as their `unownedExecutor` run on its thread,
/// and a task executor, so that an application can run its own tasks beside the channels they use
/// and pay no change of threads: `Task(executorPreference: EventLoop.shared) { … }`.
///
/// Jobs run in the order in which they came. After a bounded number of them the loop looks at its
/// descriptors, so that neither starves the other; priorities are not looked at. A job that blocks
/// blocks everything on the loop.
public final class EventLoop: TaskExecutor, SerialExecutor, @unchecked Sendable {
    // Sendable because what is not behind `shared` is touched on the loop's thread only.

    /// The loop that links are made on unless another is named. It is never shut down.
    public static let shared = EventLoop(name: "blesec")

    /// How the thread is called; Linux shows the first 15 bytes.
    public let name: String

    /// The clock of ``now`` and of the timers.
    public let clock: LoopClock

    let poller: Poller
    let inbox = Locked(Inbox())
    let thread = Atomic<UInt>(0)

    // The loop's thread alone:
    var ready = JobQueue()
    var deferred: [any DeferredWork] = []
    var timers = TimerHeap()
    var sources = SourceTable()
    var idleWaiters: [CheckedContinuation<Void, Never>] = []
    var isStopping = false

    /// What other threads hand in.
    struct Inbox: Sendable {
        var work = JobQueue()
        /// The loop waits in the kernel and must be woken.
        var isAsleep = false
        var isRunning = true
        var isStopRequested = false
        var waitsForEnd: [CheckedContinuation<Void, Never>] = []
    }

    /// Starts a loop of its own thread.
    ///
    /// A process that has no descriptors or threads left (two and one are needed) cannot go on, and
    /// traps. The loop lives until ``shutdown()``, whoever holds it.
    public init(name: String, clock: LoopClock = .system) {
        guard let poller = Poller() else {
            preconditionFailure("no descriptors left for an event loop: raise `ulimit -n`")
        }
        self.poller = poller
        self.name = name
        self.clock = clock
        clock.source?.attach(self)
        LoopThread.start(self)
    }

    /// The time now, by the loop's clock. On any thread.
    public var now: MonotonicTime {
        clock.source?.now ?? Socket.monotonicTime()
    }

    /// Whether this is the loop's thread.
    public var isCurrent: Bool {
        thread.load(ordering: .relaxed) == LoopThread.identity
    }

    /// Whether ``shutdown()`` has begun. On the loop's thread.
    public var isShutDown: Bool { isStopping }

    /// Traps unless this is the loop's thread.
    public func assertCurrent() {
        precondition(isCurrent, "this belongs on the thread of the link's event loop")
    }

    /// Runs `body` on the loop's thread, after what is queued there already. From any thread.
    public func execute(_ body: @escaping @Sendable () -> Void) {
        submit(.call(body))
    }

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
                showOrder()
                waiter.resume(returning: result)
            }
        }
        showOrder()
        return try result.get()
    }

    /// Lets the thread sanitizer see that what a continuation was resumed with comes before what is
    /// done with it: called before the one on the loop's thread, and before the other.
    ///
    /// When a continuation is resumed before its task has suspended, the runtime orders the two in
    /// a way that the sanitizer does not see.
    func showOrder() { inbox.withLock { _ in } }

    /// Ends the loop and returns when its thread and its descriptors are gone.
    ///
    /// Whoever waits for a link, a connection or a timer is woken and fails with
    /// ``LinkError/Code/closed`` or a `CancellationError`; timers that are armed fire once. Links
    /// and listeners are their owners' to close, before or after. Tasks that come back later are
    /// still run, by a thread that lives for as long as that takes. May be called again.
    public func shutdown() async {
        precondition(self !== EventLoop.shared, "the shared event loop serves the whole process")
        await withCheckedContinuation { waiter in
            let hasEnded = inbox.withLock { inbox in
                if inbox.isStopRequested && !inbox.isRunning { return true }
                inbox.waitsForEnd.append(waiter)
                defer { inbox.isStopRequested = true }
                return false
            }
            if hasEnded { return waiter.resume() }
            execute { [self] in stop() }
        }
    }

    // MARK: - Executor

    /// Queues a piece of a task. Called by the Swift runtime.
    public func enqueue(_ job: consuming ExecutorJob) {
        submit(.job(UnownedJob(job)))
    }

    /// Itself, for an actor's `unownedExecutor`.
    public func asUnownedSerialExecutor() -> UnownedSerialExecutor {
        unsafe UnownedSerialExecutor(ordinary: self)
    }

    /// Whether what runs now is on the loop. Called by the Swift runtime.
    public func isIsolatingCurrentContext() -> Bool? {
        isCurrent
    }

    /// Traps unless what runs now is on the loop. Called by the Swift runtime.
    public func checkIsolated() {
        assertCurrent()
    }
}

/// Something that the loop calls back once, soon, without an allocation.
package protocol DeferredWork: AnyObject {
    /// Called on the loop's thread, never from inside ``EventLoop/runSoon(_:)``.
    func runDeferred()
}
