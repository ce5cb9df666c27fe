internal import CBLESecLinux
import Glibc

/// The C part of an event loop's thread.
enum LoopThread {
    /// A number that identifies the calling thread among all running threads.
    static var identity: UInt { UInt(pthread_self()) }

    /// Starts the thread of `loop`, which keeps the loop alive until `loop.run()` returns.
    ///
    /// All signals are blocked on the thread, so they go to the application's own threads.
    static func start(_ loop: EventLoop) {
        var all = sigset_t()
        var before = sigset_t()
        unsafe sigfillset(&all)
        unsafe pthread_sigmask(SIG_SETMASK, &all, &before)
        defer { unsafe pthread_sigmask(SIG_SETMASK, &before, nil) }
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
        precondition(failure == 0, "no thread left for an event loop: raise `ulimit -u`")
        pthread_detach(thread)
    }
}
