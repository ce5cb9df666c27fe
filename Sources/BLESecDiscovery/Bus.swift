internal import BLESecLinks
internal import CBLESecSDBus
internal import Glibc

/// A connection to the system's message bus, driven by an event loop.
///
/// sd-bus transfers and parses the messages. Replies, signals and calls all pass through one
/// filter, so there are no method tables in C, and C code retains no Swift objects.
@safe final class Bus: @unchecked Sendable {
    // Sendable because its state is used on the loop's thread only.

    /// The most messages that are processed before other work on the loop continues.
    private static let messagesAtOnce = 32

    /// Why libsystemd cannot be loaded; nil if it is loaded. The first use of this property loads
    /// libsystemd for the whole process.
    static let loadFailure: DiscoveryError? = unsafe blesec_sd_bus_load().map {
        unsafe DiscoveryError(
            .noService, "libsystemd.so.0 cannot be loaded: install libsystemd0",
            loaderError: String(cString: $0))
    }

    typealias Completion = (Result<[BusValue], BusError>) -> Void

    private let loop: EventLoop
    private let source: EventSource
    private var pointer: OpaquePointer?
    private weak var session: BusSession?
    private var calls: [UInt64: PendingCall] = [:]
    /// Fires at the time that sd-bus has set: then sd-bus has to be called, even without an event.
    private var timer: LoopTimer?
    /// Whether ``runDeferred()`` will be called.
    private var isScheduled = false

    /// Connects to the system bus. The connection is made in the background; messages wait until it
    /// is complete.
    init(loop: EventLoop, session: BusSession) throws(BusError) {
        loop.assertCurrent()
        if let failure = Self.loadFailure { throw BusError(name: "", text: failure.reason) }
        var pointer: OpaquePointer?
        try BusError.check(
            unsafe blesec_sd_bus_open_system(&pointer), cannot: "connect to the system's D-Bus")
        // The loop closes the descriptor that it watches, and sd-bus closes its own: so the loop
        // gets a duplicate.
        let descriptor = fcntl(unsafe blesec_sd_bus_get_fd(pointer), F_DUPFD_CLOEXEC, 0)
        guard descriptor >= 0 else {
            let number = errno
            unsafe blesec_sd_bus_unref(pointer)
            throw BusError(number, cannot: "connect to the system's D-Bus")
        }
        unsafe self.pointer = unsafe pointer
        self.loop = loop
        self.session = session
        source = EventSource(owning: descriptor, loop: loop)
        source.setHandler(self)
        timer = LoopTimer(loop: loop, handler: self)
        let result = unsafe blesec_sd_bus_add_filter(
            pointer, nil,
            { message, userdata, _ in
                guard let message = unsafe message, let userdata = unsafe userdata else { return 0 }
                unsafe Unmanaged<Bus>.fromOpaque(userdata).takeUnretainedValue().take(
                    BusMessage(sharing: message))
                return 1
            }, Unmanaged.passUnretained(self).toOpaque())
        guard result >= 0 else {
            close()
            throw BusError(result, cannot: "listen to the system's D-Bus")
        }
        schedule()
    }

    deinit { precondition(unsafe pointer == nil, "a bus is closed before it is dropped") }

    /// Ends the connection without informing the session. Waiting calls fail. Does nothing if the
    /// connection has ended already.
    func close() {
        loop.assertCurrent()
        session = nil
        end()
    }

    // MARK: - Sending

    struct Call: Sendable {
        var destination: String
        var path: String
        var interface: String
        var member: String
        var arguments: [BusValue] = []

        /// A call to the bus itself.
        static func toBus(_ member: String, _ arguments: [BusValue]) -> Call {
            Call(
                destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus",
                interface: "org.freedesktop.DBus", member: member, arguments: arguments)
        }
    }

    /// Calls a method. `completion` is called once, with the reply or an error, such as a timeout.
    ///
    /// - Returns: the call's cookie; nil if the call could not be sent.
    @discardableResult
    func call(_ call: Call, timeout: Duration, completion: @escaping Completion) -> UInt64? {
        loop.assertCurrent()
        do throws(BusError) {
            let message = try unsafe make {
                unsafe blesec_sd_bus_message_new_method_call(
                    $0, $1, call.destination, call.path, call.interface, call.member)
            }
            try message.append(call.arguments)
            let cookie = try send(message)
            calls[cookie] = PendingCall(self, cookie, loop: loop, timeout: timeout, completion)
            return cookie
        } catch {
            completion(.failure(error))
            return nil
        }
    }

    /// Calls a method and waits for its result, or until the task is cancelled.
    func call(
        _ call: Call, timeout: Duration, isolation: isolated (any Actor)
    ) async -> Result<[BusValue], BusError> {
        let handle = CallHandle()
        return await withTaskCancellationHandler {
            _ = isolation
            return await withCheckedContinuation(isolation: isolation) { waiter in
                if Task.isCancelled { return waiter.resume(returning: .failure(.cancelled)) }
                handle.cookie = self.call(call, timeout: timeout) { waiter.resume(returning: $0) }
            }
        } onCancel: {
            loop.execute {
                if let cookie = handle.cookie { self.finish(cookie, .failure(.cancelled)) }
            }
        }
    }

    func reply(to call: BusMessage, with result: Result<[BusValue], BusError>) {
        loop.assertCurrent()
        // If the answer cannot be sent, the connection has ended, and nobody waits for the answer.
        _ = try? send(answer(call, result))
    }

    /// Sends a signal to all listeners.
    func signal(
        path: String, interface: String, member: String, _ arguments: [BusValue]
    ) throws(BusError) {
        let message = try unsafe make {
            unsafe blesec_sd_bus_message_new_signal($0, $1, path, interface, member)
        }
        try message.append(arguments)
        try send(message)
    }

    private func answer(
        _ call: BusMessage, _ result: Result<[BusValue], BusError>
    ) throws(BusError) -> BusMessage {
        switch result {
        case .success(let values):
            let message = try unsafe make { _, message in
                unsafe blesec_sd_bus_message_new_method_return(call.pointer, message)
            }
            try message.append(values)
            return message
        case .failure(let error):
            return try unsafe make { _, message in
                unsafe error.name.withCString { name in
                    unsafe error.text.withCString { text in
                        var failure = unsafe sd_bus_error(name: name, message: text, _need_free: 0)
                        return unsafe blesec_sd_bus_message_new_method_error(
                            call.pointer, message, &failure)
                    }
                }
            }
        }
    }

    /// Makes a message. `body` calls the function of sd-bus that makes it, and returns the result.
    private func make(
        _ body: (OpaquePointer, UnsafeMutablePointer<OpaquePointer?>) -> Int32
    ) throws(BusError) -> BusMessage {
        guard let pointer = unsafe pointer else { throw .ended }
        var message: OpaquePointer?
        try BusError.check(unsafe body(pointer, &message), cannot: "make a D-Bus message")
        guard let message = unsafe message else { throw .ended }
        return unsafe BusMessage(owning: message)
    }

    /// Sends a message, and returns its cookie.
    @discardableResult
    private func send(_ message: BusMessage) throws(BusError) -> UInt64 {
        var cookie: UInt64 = 0
        try BusError.check(
            unsafe blesec_sd_bus_send(pointer, message.pointer, &cookie),
            cannot: "send a D-Bus message")
        schedule()
        return cookie
    }

    // MARK: - Receiving

    /// Schedules the processing of the connection: there may be something to do.
    private func schedule() {
        guard !isScheduled, unsafe pointer != nil else { return }
        isScheduled = true
        loop.runSoon(self)
    }

    /// Lets sd-bus send the messages that wait, and process those that have arrived.
    private func drive() {
        for _ in 0..<Self.messagesAtOnce {
            guard let pointer = unsafe pointer else { return }
            let result = unsafe blesec_sd_bus_process(pointer, nil)
            if result < 0 { return fail() }
            if result == 0 { return waitForEvents() }
        }
        schedule()
    }

    private func waitForEvents() {
        guard let pointer = unsafe pointer else { return }
        let events = unsafe blesec_sd_bus_get_events(pointer)
        var deadline: UInt64 = 0  // in microseconds
        guard events >= 0, unsafe blesec_sd_bus_get_timeout(pointer, &deadline) >= 0 else {
            return fail()
        }
        source.want(read: events & POLLIN != 0, write: events & POLLOUT != 0)
        let (nanoseconds, overflow) = deadline.multipliedReportingOverflow(by: 1_000)
        timer?.arm(at: overflow ? .distantFuture : MonotonicTime(nanoseconds: nanoseconds))
    }

    fileprivate func take(_ message: BusMessage) {
        switch message.kind {
        case .reply:
            if let cookie = message.replyCookie { finish(cookie, .success(message.body())) }
        case .error: if let cookie = message.replyCookie { finish(cookie, .failure(message.error)) }
        case .signal: session?.busDidSignal(message)
        case .call: session?.busWasCalled(message)
        case .other: break
        }
    }

    /// Completes a call; a later reply is ignored.
    fileprivate func finish(_ cookie: UInt64, _ result: Result<[BusValue], BusError>) {
        calls.removeValue(forKey: cookie)?.finish(result)
    }

    private func fail() {
        let session = session
        end()
        session?.busDidEnd()
    }

    private func end() {
        guard let pointer = unsafe pointer else { return }
        unsafe self.pointer = nil
        timer?.disarm()
        source.close()
        unsafe blesec_sd_bus_close_unref(pointer)
        for cookie in calls.keys.sorted() { finish(cookie, .failure(.ended)) }
    }
}

extension Bus: EventSourceHandler, TimerHandler, DeferredWork {
    func sourceIsReady(readable: Bool, writable: Bool, hungUp: Bool) {
        if source.failure != 0 || loop.isShutDown { fail() } else { drive() }
    }

    func timerFired(_ timer: LoopTimer) { drive() }

    func runDeferred() {
        isScheduled = false
        drive()
    }
}

/// Holds the cookie of the call that a task waits for.
private final class CallHandle: @unchecked Sendable {
    // Sendable because it is used on the loop's thread only.
    var cookie: UInt64?
}

private final class PendingCall: TimerHandler {
    private weak let bus: Bus?
    private let cookie: UInt64
    private var completion: Bus.Completion?
    private var timer: LoopTimer?

    init(
        _ bus: Bus, _ cookie: UInt64, loop: EventLoop, timeout: Duration,
        _ completion: @escaping Bus.Completion
    ) {
        self.bus = bus
        self.cookie = cookie
        self.completion = completion
        timer = LoopTimer(loop: loop, handler: self)
        timer?.arm(in: timeout)
    }

    func finish(_ result: Result<[BusValue], BusError>) {
        timer?.disarm()
        completion.take()?(result)
    }

    func timerFired(_ timer: LoopTimer) { bus?.finish(cookie, .failure(.timedOut)) }
}
