import Glibc

/// A listening socket and the tasks that wait for peers.
package final class SocketListener: @unchecked Sendable {
    // Sendable because its state is used on the loop's thread only.

    package typealias Outcome = Result<SocketLink, LinkError>

    private let loop: EventLoop
    private let source: EventSource
    private let name: String
    private let traits: @Sendable (Int32) throws(LinkError) -> SocketLink.Traits
    private let beforeClosing: @Sendable () -> Void
    private var waiters: [Waiter] = []
    private var isClosed = false

    private final class Waiter: @unchecked Sendable {
        // Sendable because it is used on its loop's thread only, after it was made.

        /// Chooses the loop of the link; nil means the listener's loop.
        let choose: (@Sendable () -> EventLoop)?
        var continuation: CheckedContinuation<Outcome, Never>?
        var isCancelled = false

        init(_ choose: (@Sendable () -> EventLoop)?) { self.choose = choose }
    }

    /// An accepted socket that no loop watches yet.
    private struct Peer: Sendable {
        let descriptor: Int32
        let traits: SocketLink.Traits

        /// Makes the link; called once, on the thread of `loop`.
        func link(on loop: EventLoop) -> SocketLink {
            SocketLink(EventSource(owning: descriptor, loop: loop), traits)
        }
    }

    /// Takes ownership of a listening, nonblocking socket.
    ///
    /// - Parameters:
    ///   - traits: sets up an accepted socket and returns the traits of its link, on the loop's
    ///     thread. If it throws, the socket is closed and the listener waits for the next peer.
    ///   - beforeClosing: called once, on the loop's thread, before the socket is closed.
    package init(
        owning descriptor: Int32, name: String, loop: EventLoop,
        traits: @escaping @Sendable (Int32) throws(LinkError) -> SocketLink.Traits,
        beforeClosing: @escaping @Sendable () -> Void = {}
    ) {
        self.loop = loop
        self.name = name
        self.traits = traits
        self.beforeClosing = beforeClosing
        source = EventSource(owning: descriptor, loop: loop)
        source.setHandler(self)
    }

    deinit {
        guard !isClosed else { return }
        let (source, beforeClosing) = (source, beforeClosing)
        let close: @Sendable () -> Void = {
            beforeClosing()
            source.close()
        }
        if loop.isCurrent { close() } else { loop.execute(close) }
    }

    /// Waits for the next peer, then calls `choose`, and makes the link on the loop that `choose`
    /// returns. The link is on the listener's loop if `choose` is nil, or if the chosen loop was
    /// shut down.
    package func accept(
        on choose: (@Sendable () -> EventLoop)? = nil
    ) async throws(LinkError) -> SocketLink {
        let waiter = Waiter(choose)
        let outcome: Outcome = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                // For a cancelled task, `cancel` is queued already. `add` is queued behind it, so
                // that the task takes no peer.
                if loop.isCurrent, !Task.isCancelled { return add(waiter, continuation) }
                loop.execute { [self] in add(waiter, continuation) }
            }
        } onCancel: {
            loop.execute { [self] in cancel(waiter) }
        }
        loop.showResumptionOrderToSanitizer()
        return try outcome.get()
    }

    package func close() async { await loop.run { [self] in closeNow() } }

    private func add(_ waiter: Waiter, _ continuation: CheckedContinuation<Outcome, Never>) {
        waiter.continuation = continuation
        if isClosed || loop.isShutDown { return finish(waiter, .failure(closedError)) }
        if waiter.isCancelled { return finish(waiter, .failure(cancelledError)) }
        waiters.append(waiter)
        // An earlier failure was reported to the tasks that waited then.
        source.forgetFailure()
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
        beforeClosing()
        source.close()
        finishAll(.failure(closedError))
    }

    /// Passes peers to waiting tasks, until no peer or no task is left.
    private func serve() {
        while let waiter = waiters.first {
            guard let peer = acceptNextPeer() else { break }
            waiters.removeFirst()
            switch peer {
            case .success(let peer): pass(peer, to: waiter)
            case .failure(let error): finish(waiter, .failure(error))
            }
        }
        updateInterest()
    }

    /// The next peer, or the error of `accept`; nil if no peer waits.
    private func acceptNextPeer() -> Result<Peer, LinkError>? {
        while true {
            do throws(SystemError) {
                let descriptor = try Socket.accept(source.fileDescriptor)
                if let traits = try? traits(descriptor) {
                    return .success(Peer(descriptor: descriptor, traits: traits))
                }
                Socket.close(descriptor)
            } catch {
                switch error.number {
                case EAGAIN: return nil
                case EINTR, ECONNABORTED, EPROTO: continue
                default: return .failure(LinkError(error, cannot: "accept a peer on \(name)"))
                }
            }
        }
    }

    /// Makes the link on the loop that the waiting task chooses. Only that loop ever watches the
    /// socket, so no other loop gets an event of the socket.
    private func pass(_ peer: Peer, to waiter: Waiter) {
        let target = waiter.choose?() ?? loop
        guard target !== loop, !target.isShutdownRequested else {
            return finish(waiter, .success(peer.link(on: loop)))
        }
        let continuation = waiter.continuation.take()
        target.execute { [loop] in
            let link = peer.link(on: target)
            loop.showResumptionOrderToSanitizer()
            continuation?.resume(returning: .success(link))
        }
    }

    private func finishAll(_ outcome: Outcome) {
        let all = waiters
        waiters = []
        for waiter in all { finish(waiter, outcome) }
    }

    private func finish(_ waiter: Waiter, _ outcome: Outcome) {
        loop.showResumptionOrderToSanitizer()
        waiter.continuation.take()?.resume(returning: outcome)
    }

    private func updateInterest() {
        guard !isClosed else { return }
        source.want(read: !waiters.isEmpty, write: false)
    }

    private var closedError: LinkError { LinkError(.closed, "\(name) was closed") }
    private var cancelledError: LinkError {
        LinkError(.cancelled, "waiting on \(name) was cancelled")
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
