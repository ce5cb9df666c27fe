internal import Glibc

/// A thread that runs blocking calls one after another, so that the event loop never blocks.
///
/// Files need such a thread, because `epoll` cannot wait for a regular file. So do standard input
/// and output: a tool shares them with other processes, and must not make them nonblocking. When
/// the last reference to the object is released, the thread finishes the queued calls and ends.
public final class BlockingThread: Sendable {
    /// The state that the thread and the object share, so that the thread does not keep the object
    /// alive.
    private final class Calls: Sendable {
        let waiting = Locked<[@Sendable () -> Void]>([])
        let semaphore = Semaphore()

        func runAll() {
            while true {
                semaphore.wait()
                // A signal without a call comes from the `deinit` of `BlockingThread`.
                guard let call = next() else { return }
                call()
            }
        }

        private func next() -> (@Sendable () -> Void)? {
            waiting.withLock { $0.isEmpty ? nil : $0.removeFirst() }
        }
    }

    private let calls = Calls()

    private init() {}

    /// Starts a thread with all signals blocked; nil if there are too many threads.
    public static func start() -> BlockingThread? {
        let blockingThread = BlockingThread()
        var allSignals = sigset_t()
        var savedMask = sigset_t()
        unsafe sigfillset(&allSignals)
        unsafe pthread_sigmask(SIG_SETMASK, &allSignals, &savedMask)
        defer { unsafe pthread_sigmask(SIG_SETMASK, &savedMask, nil) }
        let calls = unsafe Unmanaged.passRetained(blockingThread.calls)
        var thread = pthread_t()
        let failure = unsafe pthread_create(
            &thread, nil,
            { argument in
                guard let argument = unsafe argument else { return nil }
                unsafe Unmanaged<Calls>.fromOpaque(argument).takeRetainedValue().runAll()
                return nil
            }, unsafe calls.toOpaque())
        guard failure == 0 else {
            unsafe calls.release()
            return nil
        }
        pthread_detach(thread)
        return blockingThread
    }

    /// Starts a thread as ``start()`` does, but traps if it cannot be started. For a tool that
    /// cannot work without the thread.
    public static func required() -> BlockingThread {
        // Not `preconditionFailure`, which prints no text in a release build.
        guard let thread = start() else {
            fatalError("no thread can be started: raise `ulimit -u`")
        }
        return thread
    }

    deinit { calls.semaphore.signal() }

    /// Runs `call` on the thread, after the calls that are already queued.
    public func perform(_ call: @escaping @Sendable () -> Void) {
        calls.waiting.withLock { $0.append(call) }
        calls.semaphore.signal()
    }

    /// Runs `call` on the thread, after the calls that are already queued, and returns its result.
    public func run<Result: Sendable>(_ call: @escaping @Sendable () -> Result) async -> Result {
        await withCheckedContinuation { waiter in
            perform { waiter.resume(returning: call()) }
        }
    }
}

@safe private final class Semaphore: @unchecked Sendable {
    // Sendable because several threads may use a semaphore.
    private let semaphore: UnsafeMutablePointer<sem_t>

    init() {
        unsafe semaphore = .allocate(capacity: 1)
        unsafe sem_init(semaphore, 0, 0)
    }

    deinit {
        unsafe sem_destroy(semaphore)
        unsafe semaphore.deallocate()
    }

    func signal() { unsafe sem_post(semaphore) }
    func wait() { while unsafe sem_wait(semaphore) != 0 {} }
}
