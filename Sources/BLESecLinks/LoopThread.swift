internal import CBLESecLinux
import Glibc

/// The thread of an event loop, as far as it is C's.
enum LoopThread {
    /// What tells the calling thread from all others that run.
    static var identity: UInt { UInt(pthread_self()) }

    /// Starts a thread that keeps the loop alive until its `run` returns.
    ///
    /// It takes no signals: they go to the application's own threads.
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
