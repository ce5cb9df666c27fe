import Glibc

/// One outgoing connection: a nonblocking connect, its deadline and its cancellation.
///
/// Used on the loop's thread, except for the initializer and ``dial(_:deadline:loop:_:)``.
package final class SocketDialer: @unchecked Sendable {
    // Sendable because it is used on its loop's thread only, after it was made.

    /// The peer to connect to.
    package struct Target: Sendable {
        /// What is dialed, for the sentence "cannot connect to …".
        package let name: String
        package let address: SocketAddress
        /// Opens and prepares the socket, and binds it if necessary. The dialer then owns it.
        package let open: @Sendable () throws(LinkError) -> Int32
        /// Translates an error of the kernel.
        package let explain: @Sendable (SystemError) -> LinkError

        package init(
            name: String, address: SocketAddress,
            open: @escaping @Sendable () throws(LinkError) -> Int32,
            explain: @escaping @Sendable (SystemError) -> LinkError
        ) {
            self.name = name
            self.address = address
            self.open = open
            self.explain = explain
        }
    }

    private typealias Outcome = Result<SocketLink, LinkError>
    /// The delay between attempts while a Unix listener's queue is full: no event reports when
    /// there is room again.
    private static let retryDelay = Duration.milliseconds(5)

    private let loop: EventLoop
    private let target: Target
    private let deadline: MonotonicTime
    /// Makes the link of the connected socket.
    private let makeLink: @Sendable (EventSource) throws(LinkError) -> SocketLink
    private var source: EventSource?
    private var waiter: CheckedContinuation<Outcome, Never>?
    private var timer: LoopTimer?
    private var retryTimer: LoopTimer?
    private var isCancelled = false

    private init(
        _ target: Target, deadline: MonotonicTime, loop: EventLoop,
        makeLink: @escaping @Sendable (EventSource) throws(LinkError) -> SocketLink
    ) {
        self.target = target
        self.deadline = deadline
        self.loop = loop
        self.makeLink = makeLink
    }

    /// Connects, and calls `makeLink` with the connected socket on the loop's thread.
    ///
    /// - Throws: ``LinkError/Code/timedOut`` at the deadline, ``LinkError/Code/cancelled`` as soon
    ///   as the task is cancelled, or the kernel's error. After an error, no descriptor stays open.
    package static func dial(
        _ target: Target, deadline: MonotonicTime, loop: EventLoop,
        _ makeLink: @escaping @Sendable (EventSource) throws(LinkError) -> SocketLink
    ) async throws(LinkError) -> SocketLink {
        let dialer = SocketDialer(target, deadline: deadline, loop: loop, makeLink: makeLink)
        let outcome: Outcome = await withTaskCancellationHandler {
            await withCheckedContinuation { waiter in
                loop.execute { dialer.start(waiter) }
            }
        } onCancel: {
            loop.execute { dialer.cancel() }
        }
        loop.showResumptionOrderToSanitizer()
        return try outcome.get()
    }

    private func start(_ waiter: CheckedContinuation<Outcome, Never>) {
        self.waiter = waiter
        if isCancelled { return fail(.cancelled, "the attempt was cancelled") }
        if loop.isShutDown { return fail(.closed, "the link's event loop was shut down") }
        do throws(LinkError) {
            let source = EventSource(owning: try target.open(), loop: loop)
            source.setHandler(self)
            self.source = source
        } catch {
            return finish(.failure(error))
        }
        let timer = LoopTimer(loop: loop, handler: self)
        timer.arm(at: deadline)
        self.timer = timer
        connect()
    }

    private func cancel() {
        isCancelled = true
        fail(.cancelled, "the attempt was cancelled")
    }

    private func connect() {
        guard let source else { return }
        do throws(SystemError) {
            try Socket.connect(source.fileDescriptor, to: target.address)
            succeed()
        } catch {
            switch error.number {
            case EINPROGRESS: source.want(read: false, write: true)
            case EAGAIN:
                let retryTimer = retryTimer ?? LoopTimer(loop: loop, handler: self)
                retryTimer.arm(in: Self.retryDelay)
                self.retryTimer = retryTimer
            default: finish(.failure(target.explain(error)))
            }
        }
    }

    private func succeed() {
        guard let source else { return }
        let outcome = Outcome { () throws(LinkError) in
            let link = try makeLink(source)
            // No events are wanted until the link has a handler.
            source.want(read: false, write: false)
            self.source = nil
            return link
        }
        finish(outcome)
    }

    private func fail(_ code: LinkError.Code, _ reason: String) {
        finish(.failure(LinkError(code, "cannot connect to \(target.name): \(reason)")))
    }

    private func finish(_ outcome: Outcome) {
        timer?.disarm()
        retryTimer?.disarm()
        source?.close()
        source = nil
        loop.showResumptionOrderToSanitizer()
        waiter.take()?.resume(returning: outcome)
    }
}

extension SocketDialer: EventSourceHandler, TimerHandler {
    package func sourceIsReady(readable: Bool, writable: Bool, hungUp: Bool) {
        guard let source else { return }
        if loop.isShutDown { return fail(.closed, "the link's event loop was shut down") }
        let failure =
            source.failure != 0 ? source.failure : Socket.pendingError(source.fileDescriptor)
        if failure == 0 { return succeed() }
        finish(.failure(target.explain(SystemError(failure))))
    }

    package func timerFired(_ timer: LoopTimer) {
        if loop.isShutDown { return fail(.closed, "the link's event loop was shut down") }
        if timer === retryTimer { return connect() }
        fail(.timedOut, "no answer came in time")
    }
}
