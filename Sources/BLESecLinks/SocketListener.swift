import Glibc

/// A listening socket and the tasks that wait for peers.
package final class SocketListener: @unchecked Sendable {
    // Sendable because its state is touched on the loop's thread only.

    package typealias Outcome = Result<SocketLink, LinkError>

    private let loop: EventLoop
    private let source: EventSource
    private let name: String
    private let accepted: @Sendable (EventSource) throws(LinkError) -> SocketLink
    private let closing: @Sendable () -> Void
    private var waiters: [Waiter] = []
    private var isClosed = false

    private final class Waiter: @unchecked Sendable {
        // Sendable because it is used on its loop's thread only, after it was made.
        var continuation: CheckedContinuation<Outcome, Never>?
        var isCancelled = false
    }

    /// Takes ownership of a listening, nonblocking socket.
    ///
    /// - Parameters:
    ///   - accepted: makes a link from an accepted socket, on the loop's thread. If it throws, the
    ///     socket is closed and the listener waits for the next peer.
    ///   - closing: called once, on the loop's thread, before the socket is closed.
    package init(
        owning descriptor: Int32, name: String, loop: EventLoop,
        accepted: @escaping @Sendable (EventSource) throws(LinkError) -> SocketLink,
        closing: @escaping @Sendable () -> Void = {}
    ) {
        self.loop = loop
        self.name = name
        self.accepted = accepted
        self.closing = closing
        source = EventSource(owning: descriptor, loop: loop)
        source.setHandler(self)
    }

    deinit {
        guard !isClosed else { return }
        let (source, closing) = (source, closing)
        let close: @Sendable () -> Void = {
            closing()
            source.close()
        }
        if loop.isCurrent { close() } else { loop.execute(close) }
    }

    package func accept() async throws(LinkError) -> SocketLink {
        let waiter = Waiter()
        let outcome: Outcome = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                loop.execute { [self] in add(waiter, continuation) }
            }
        } onCancel: {
            loop.execute { [self] in cancel(waiter) }
        }
        loop.showOrder()
        return try outcome.get()
    }

    package func close() async { await loop.run { [self] in closeNow() } }

    private func add(_ waiter: Waiter, _ continuation: CheckedContinuation<Outcome, Never>) {
        waiter.continuation = continuation
        if isClosed || loop.isShutDown { return finish(waiter, .failure(closedError)) }
        if waiter.isCancelled { return finish(waiter, .failure(cancelledError)) }
        waiters.append(waiter)
        serve()
    }

    private func cancel(_ waiter: Waiter) {
        waiter.isCancelled = true
        waiters.removeAll { $0 === waiter }
        finish(waiter, .failure(cancelledError))
        updateInterest()
    }

    private func closeNow() {
        guard !isClosed else { return }
        isClosed = true
        closing()
        source.close()
        finishAll(.failure(closedError))
    }

    /// Passes peers to waiting tasks as long as there are both.
    private func serve() {
        while let waiter = waiters.first {
            guard let outcome = acceptNextPeer() else { break }
            waiters.removeFirst()
            finish(waiter, outcome)
        }
        updateInterest()
    }

    private func acceptNextPeer() -> Outcome? {
        while true {
            do throws(SystemError) {
                let peer = EventSource(owning: try Socket.accept(source.fileDescriptor), loop: loop)
                if let link = try? accepted(peer) { return .success(link) }
                peer.close()
            } catch {
                switch error.number {
                case EAGAIN: return nil
                case EINTR, ECONNABORTED, EPROTO: continue
                default: return .failure(LinkError(error, cannot: "accept a peer on \(name)"))
                }
            }
        }
    }

    private func finishAll(_ outcome: Outcome) {
        let all = waiters
        waiters = []
        for waiter in all { finish(waiter, outcome) }
    }

    private func finish(_ waiter: Waiter, _ outcome: Outcome) {
        loop.showOrder()
        waiter.continuation.take()?.resume(returning: outcome)
    }

    private func updateInterest() {
        guard !isClosed else { return }
        source.want(read: !waiters.isEmpty, write: false)
    }

    private var closedError: LinkError { LinkError(.closed, "\(name) was closed") }
    private var cancelledError: LinkError {
        LinkError(.cancelled, "waiting on \(name) was given up")
    }
}

extension SocketListener: EventSourceHandler {
    package func sourceIsReady(readable: Bool, writable: Bool, hungUp: Bool) {
        if loop.isShutDown { return finishAll(.failure(closedError)) }
        if source.failure != 0 {
            return finishAll(
                .failure(LinkError(SystemError(source.failure), cannot: "wait on \(name)")))
        }
        serve()
    }
}
