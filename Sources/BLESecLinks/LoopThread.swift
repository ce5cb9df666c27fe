internal import CBLESecLinux
import Glibc

/// The pthread functions that an event loop needs: one identifies the calling thread, and one starts
/// the loop's thread.
enum LoopThread {
    /// A number that identifies the calling thread among all running threads.
    static var identity: UInt { UInt(pthread_self()) }

    /// Starts the thread of `loop`, which keeps the loop alive until `loop.run()` returns.
    ///
    /// All signals are blocked on the thread, so they go to the application's own threads.
    static func start(_ loop: EventLoop) {
        var allSignals = sigset_t()
        var previousMask = sigset_t()
        unsafe sigfillset(&allSignals)
        unsafe pthread_sigmask(SIG_SETMASK, &allSignals, &previousMask)
        defer { unsafe pthread_sigmask(SIG_SETMASK, &previousMask, nil) }
        var thread = pthread_t()
        let failure = unsafe pthread_create(
            &thread, nil,
            { argument in
                guard let argument = unsafe argument else { return nil }
                let loop = unsafe Unmanaged<EventLoop>.fromOpaque(argument).takeRetainedValue()
                unsafe blesec_name_thread(loop.name)
                loop.run()
                return nil
            }, unsafe Unmanaged.passRetained(loop).toOpaque())
        // Not `precondition`, which prints no text in a release build.
        guard failure == 0 else {
            fatalError("no thread left for an event loop: raise `ulimit -u`")
        }
        pthread_detach(thread)
    }
}
