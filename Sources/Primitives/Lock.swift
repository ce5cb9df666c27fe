import Glibc

/// A mutual exclusion lock over `pthread_mutex`.
///
/// The standard library's `Mutex` is a futex that the thread sanitizer cannot see, and every
/// access under it is reported as a race; this one it knows.
@safe final class Lock: @unchecked Sendable {
    // Unchecked: the mutex has to have a fixed address, hence a pointer, and is made to be shared.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>

    init() {
        unsafe mutex = .allocate(capacity: 1)
        unsafe mutex.initialize(to: pthread_mutex_t())
        let status = unsafe pthread_mutex_init(mutex, nil)
        precondition(status == 0, "pthread_mutex_init failed with \(status)")
    }

    deinit {
        unsafe pthread_mutex_destroy(mutex)
        unsafe mutex.deallocate()
    }

    /// Runs `body` while this thread alone holds the lock.
    func withLock<R: ~Copyable>(_ body: () -> R) -> R {
        unsafe pthread_mutex_lock(mutex)
        defer { unsafe pthread_mutex_unlock(mutex) }
        return body()
    }
}
