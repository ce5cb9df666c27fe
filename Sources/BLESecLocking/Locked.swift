public import Glibc

/// State that several threads share, protected by a `pthread_mutex_t`.
///
/// `Synchronization.Mutex` is not used, since the thread sanitizer does not see that its futex is a
/// lock. The class is public and not `package`, since the optimizer specializes only public
/// functions for other modules.
@safe public final class Locked<State>: @unchecked Sendable {
    // Sendable because the state is used only while the mutex is held.
    @usableFromInline let mutex: UnsafeMutablePointer<pthread_mutex_t>
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    @usableFromInline var state: State

    /// Protects `state` with a new mutex.
    public init(_ state: sending State) {
        self.state = state
        unsafe mutex = .allocate(capacity: 1)
        let failure = unsafe pthread_mutex_init(mutex, nil)
        precondition(failure == 0, "a default mutex can always be initialized")
    }

    deinit {
        unsafe pthread_mutex_destroy(mutex)
        unsafe mutex.deallocate()
    }

    /// Runs `body` with exclusive access to the state. `body` must not call this method again.
    @inlinable public func withLock<Result, Failure: Error>(
        _ body: (inout State) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        unsafe pthread_mutex_lock(mutex)
        defer { unsafe pthread_mutex_unlock(mutex) }
        return try body(&state)
    }
}
