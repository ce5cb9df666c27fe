import Glibc

/// State that several threads share, protected by a `pthread_mutex_t`.
///
/// `Synchronization.Mutex` is not used, since the thread sanitizer does not detect its futex.
@safe package final class Locked<State>: @unchecked Sendable {
    // Sendable because the state is used only while the mutex is held.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private var state: State

    package init(_ state: sending State) {
        self.state = state
        unsafe mutex = .allocate(capacity: 1)
        let failure = unsafe pthread_mutex_init(mutex, nil)
        precondition(failure == 0, "a default mutex needs no memory")
    }

    deinit {
        unsafe pthread_mutex_destroy(mutex)
        unsafe mutex.deallocate()
    }

    /// Runs `body` with exclusive access to the state. `body` must not call this method again.
    package func withLock<Result, Failure: Error>(
        _ body: (inout State) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        unsafe pthread_mutex_lock(mutex)
        defer { unsafe pthread_mutex_unlock(mutex) }
        return try body(&state)
    }
}
