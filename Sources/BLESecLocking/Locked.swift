import Glibc

/// State that several threads share, behind a `pthread_mutex_t`.
///
/// Not `Synchronization.Mutex`, whose futex the thread sanitizer does not see.
@safe package final class Locked<State>: @unchecked Sendable {
    // Sendable because the state is touched by nobody who does not hold the mutex.
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

    /// Runs `body` with the state, alone. `body` must not come back here.
    package func withLock<Result, Failure: Error>(
        _ body: (inout State) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        unsafe pthread_mutex_lock(mutex)
        defer { unsafe pthread_mutex_unlock(mutex) }
        return try body(&state)
    }
}
