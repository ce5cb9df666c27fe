internal import BLESecLocking
internal import Glibc

/// A thread that runs blocking calls one after another, so that the event loop never blocks.
///
/// The tool shares standard input and output with other processes, so it must not make them
/// nonblocking; and `epoll` cannot wait for a file.
package final class BlockingThread: Sendable {
    private let calls = Locked<[@Sendable () -> Void]>([])
    private let semaphore = Semaphore()

    /// Starts the thread, which runs until the process ends.
    package init() {
        var thread = pthread_t()
        let failure = unsafe pthread_create(
            &thread, nil,
            { argument in
                guard let argument = unsafe argument else { return nil }
                let own = unsafe Unmanaged<BlockingThread>.fromOpaque(argument).takeRetainedValue()
                while true { own.runNext() }
            }, Unmanaged.passRetained(self).toOpaque())
        precondition(failure == 0, "no thread can be started")
        pthread_detach(thread)
    }

    /// Runs `call` on the thread, after the calls that are already queued.
    package func perform(_ call: @escaping @Sendable () -> Void) {
        calls.withLock { $0.append(call) }
        semaphore.signal()
    }

    private func runNext() {
        semaphore.wait()
        let call = calls.withLock { $0.removeFirst() }
        call()
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
