internal import BLESecChannelCore
internal import BLESecLocking
internal import Glibc

/// SIGINT, SIGTERM and SIGHUP, which one thread waits for, so that no code runs inside a handler.
package enum Signals {
    /// What a signal does; returns whether the process shall go on for now.
    package typealias Handler = @Sendable (_ number: Int32) -> Bool

    private static let handlers = Locked<[(token: Int, body: Handler)]>([])
    private static let nextToken = Locked(0)

    /// Blocks the signals in this thread and all that it starts, and begins to wait for them.
    /// Writing to what nobody reads becomes an error of the write, here and for good.
    package static func start() {
        signal(SIGPIPE, SIG_IGN)
        var set = self.set
        unsafe pthread_sigmask(SIG_BLOCK, &set, nil)
        var thread = pthread_t()
        let failure = unsafe pthread_create(
            &thread, nil,
            { _ in
                while true { Signals.waitForOne() }
            }, nil)
        precondition(failure == 0, "no thread can be started")
        pthread_detach(thread)
    }

    /// Lets `body` answer signals until ``remove(_:)``, the newest handler first.
    package static func add(_ body: @escaping Handler) -> Int {
        let token = nextToken.withLock { next in
            next += 1
            return next
        }
        handlers.withLock { $0.append((token, body)) }
        return token
    }

    /// Takes a handler away.
    package static func remove(_ token: Int) {
        handlers.withLock { $0.removeAll { $0.token == token } }
    }

    private static var set: sigset_t {
        var set = sigset_t()
        unsafe sigemptyset(&set)
        for number in [SIGINT, SIGTERM, SIGHUP] { unsafe sigaddset(&set, number) }
        return set
    }

    private static func waitForOne() {
        var set = self.set
        var number: Int32 = 0
        guard unsafe sigwait(&set, &number) == 0 else { return }
        let bodies = handlers.withLock { $0.reversed().map(\.body) }
        for body in bodies where body(number) { return }
        die(of: number)
    }

    /// Ends the process as the signal would have.
    private static func die(of number: Int32) {
        signal(number, SIG_DFL)
        var set = sigset_t()
        unsafe sigemptyset(&set)
        unsafe sigaddset(&set, number)
        unsafe pthread_sigmask(SIG_UNBLOCK, &set, nil)
        raise(number)
        _exit(128 + number)
    }
}
