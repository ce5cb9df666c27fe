internal import Glibc

/// Runs work that may block, such as a trust store that waits for a file lock.
///
/// Such work must not run on an event loop, because the loop's other channels would wait, nor on
/// Swift's cooperative thread pool, which has few threads.
enum BlockingWork {
    private final class Body: Sendable {
        let run: @Sendable () -> Void
        init(_ run: @escaping @Sendable () -> Void) { self.run = run }
    }

    /// Runs `body` on a new thread with all signals blocked; returns false if no thread can be
    /// created.
    static func start(_ body: @escaping @Sendable () -> Void) -> Bool {
        var allSignals = sigset_t()
        var oldMask = sigset_t()
        unsafe sigfillset(&allSignals)
        unsafe pthread_sigmask(SIG_SETMASK, &allSignals, &oldMask)
        defer { unsafe pthread_sigmask(SIG_SETMASK, &oldMask, nil) }
        let reference = unsafe Unmanaged.passRetained(Body(body))
        var thread = pthread_t()
        let failure = unsafe pthread_create(
            &thread, nil,
            { argument in
                guard let argument = unsafe argument else { return nil }
                unsafe Unmanaged<Body>.fromOpaque(argument).takeRetainedValue().run()
                return nil
            }, unsafe reference.toOpaque())
        guard failure == 0 else {
            unsafe reference.release()
            return false
        }
        pthread_detach(thread)
        return true
    }
}
