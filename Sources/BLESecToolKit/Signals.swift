internal import BLESecChannelCore
internal import BLESecLocking
internal import Glibc

/// Receives SIGINT, SIGTERM and SIGHUP on one thread, so that no code runs in a signal handler. A
/// signal that was ignored when this process started, as under `nohup`, stays ignored. Further
/// signals within a second after the first one are ignored, too.
package enum Signals {
    /// Handles a signal. If it returns true, the process continues and no other handler runs; if
    /// all handlers return false, the signal ends the process.
    package typealias Handler = @Sendable (_ number: Int32) -> Bool

    private static let handlers = Locked((list: [(token: Int, body: Handler)](), nextToken: 1))
    /// When the first signal was received; nil before that.
    private static let firstTime = Locked<ContinuousClock.Instant?>(nil)
    /// A signal that comes within this time after the first one is ignored, since one action often
    /// causes two signals. `timeout` signals a command and then the command's process group. When a
    /// terminal is closed, the kernel and the shell both signal.
    private static let repetitionTime = Duration.seconds(1)

    /// Blocks the signals in this thread and in all threads that it starts later, and begins to
    /// wait for signals.
    package static func start() {
        var set = self.set
        unsafe pthread_sigmask(SIG_BLOCK, &set, nil)
        var thread = pthread_t()
        let failure = unsafe pthread_create(
            &thread, nil, { _ in while true { Signals.waitForOne() } }, nil)
        // Not `precondition`, which prints no text in a release build.
        guard failure == 0 else { fatalError("no thread can be started: raise `ulimit -u`") }
        pthread_detach(thread)
    }

    /// Installs `body` as a handler until ``remove(_:)``; the newest handler runs first.
    package static func add(_ body: @escaping Handler) -> Int {
        handlers.withLock { handlers in
            defer { handlers.nextToken += 1 }
            handlers.list.append((handlers.nextToken, body))
            return handlers.nextToken
        }
    }

    package static func remove(_ token: Int) {
        handlers.withLock { $0.list.removeAll { $0.token == token } }
    }

    /// The signals to wait for.
    private static let set: sigset_t = {
        var set = sigset_t()
        unsafe sigemptyset(&set)
        for number in [SIGINT, SIGTERM, SIGHUP] where !isIgnored(number) {
            unsafe sigaddset(&set, number)
        }
        return set
    }()

    private static func isIgnored(_ number: Int32) -> Bool {
        var action = sigaction()
        guard unsafe sigaction(number, nil, &action) == 0 else { return false }
        let handler = unsafe action.__sigaction_handler.sa_handler
        return unsafe unsafeBitCast(handler, to: UInt.self)
            == unsafeBitCast(SIG_IGN, to: UInt.self)
    }

    private static func waitForOne() {
        var set = self.set
        var number: Int32 = 0
        guard unsafe sigwait(&set, &number) == 0, !isRepetition(at: .now) else { return }
        let bodies = handlers.withLock { $0.list.reversed().map(\.body) }
        for body in bodies where body(number) { return }
        endProcess(by: number)
    }

    /// Whether a signal at `time` repeats the first one.
    private static func isRepetition(at time: ContinuousClock.Instant) -> Bool {
        firstTime.withLock { firstTime in
            guard let first = firstTime else {
                firstTime = time
                return false
            }
            return time - first < repetitionTime
        }
    }

    /// Ends the process as the signal's default action does.
    package static func endProcess(by number: Int32) -> Never {
        signal(number, SIG_DFL)
        var set = sigset_t()
        unsafe sigemptyset(&set)
        unsafe sigaddset(&set, number)
        unsafe pthread_sigmask(SIG_UNBLOCK, &set, nil)
        raise(number)
        _exit(128 + number)
    }
}
