internal import BLESec
internal import BLESecLinks
internal import Glibc

/// A local connection that tasks read and write.
actor ForwardedSocket {
    private let link: any Link
    private let isTCP: Bool
    private let waiting: LoopCondition
    private let events: Events
    /// Whether this side has sent its end.
    private var hasFinished = false
    /// Whether ``discardInput()`` has to end.
    private var mustStopDiscarding = false
    /// Whether a receive has failed. The kernel reports an error of the connection only once.
    private var receivingHasFailed = false
    /// How many bytes wait in the socket's send buffer, and since when it is the same number.
    private var queue: (bytes: Int, since: MonotonicTime)?

    nonisolated var loop: EventLoop { link.loop }

    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe link.loop.asUnownedSerialExecutor()
    }

    init(_ link: any Link, isTCP: Bool) {
        self.link = link
        self.isTCP = isTCP
        waiting = LoopCondition(loop: link.loop)
        events = Events(waiting)
    }

    /// Begins to watch the connection, so that a hang-up is noticed while nothing is read. Sets
    /// SO_OOBINLINE for a Unix socket, as ``TCPAddress/prepare(_:)`` does for a TCP socket.
    func begin() {
        if !isTCP, let socket = link as? SocketLink {
            try? Socket.setOption(socket.fileDescriptor, SOL_SOCKET, SO_OOBINLINE, to: 1)
        }
        link.setHandler(events)
        // Registers the descriptor with epoll. From then on the kernel reports a hang-up, even while
        // no event is asked for.
        link.wantsRead = true
        link.wantsRead = false
        // Before a link has a handler, a hang-up is not reported.
        if (link as? SocketLink)?.hasHungUp == true { events.linkDidHangUp() }
    }

    /// The next bytes; nil at the end. If a program closes a Unix socket before it has read
    /// everything, the socket is reset. The bytes that the program has sent are not lost then, so
    /// such a reset counts as the end.
    func read() async throws(LinkError) -> [UInt8]? {
        while true {
            let (result, bytes): (LinkReceive, [UInt8])
            do throws(LinkError) {
                (result, bytes) = try receive()
            } catch {
                if !isTCP, error.code == .reset { return nil }
                // After an error of reading, nothing can be written any more either.
                events.linkDidHangUp()
                throw error
            }
            switch result {
            case .bytes: return bytes
            case .end: return nil
            case .wouldBlock:
                link.wantsRead = true
                defer { link.wantsRead = false }
                try await wait(for: .message)
            }
        }
    }

    private func receive() throws(LinkError) -> (LinkReceive, [UInt8]) {
        var result = LinkReceive.wouldBlock
        do throws(LinkError) {
            let bytes = try [UInt8](capacity: 65_536) { span throws(LinkError) in
                result = try link.receive(into: &span)
            }
            return (result, bytes)
        } catch {
            receivingHasFailed = true
            throw error
        }
    }

    func write(_ bytes: [UInt8]) async throws(LinkError) {
        var sent = 0
        while sent < bytes.count {
            let end = min(bytes.count, sent + link.maximumSDU)
            let count = try link.send(bytes.span.extracting(sent..<end))
            sent += count
            guard count == 0 else { continue }
            link.wantsWrite = true
            defer { link.wantsWrite = false }
            try await wait(for: .room)
        }
    }

    private func wait(for event: LoopEvent) async throws(LinkError) {
        // Events come on the loop's thread, on which this code runs. So no event has come since the
        // caller's last attempt to read or write, and nothing has to be checked before the wait.
        let isCancelled = await waiting.wait(for: event, isolation: self) {
            false
        }
        if isCancelled { throw LinkError(.cancelled, "forwarding was ended") }
    }

    /// Half-closes the connection, so that the local program reads the end.
    func finish() {
        hasFinished = true
        _ = link.halfClose()
        // Wakes ``discardInput()``: from now on, ``linger`` and ``longestPause`` limit its time.
        waiting.wake(.message)
    }

    // MARK: - A program whose bytes nobody takes

    /// How long the local program may go on sending once its kernel has everything that this side
    /// has sent, including this side's end. If the connection was reset at once, the program might
    /// get an error before it has read everything.
    private static let linger: Duration = .seconds(2)
    /// How long the local program's kernel may take nothing of what was sent, after the end was sent.
    private static let longestPause: Duration = .seconds(30)
    /// The pause between two checks how much the local program's kernel has taken.
    private static let drainCheckInterval: Duration = .milliseconds(100)

    /// Reads what the local program sends, and drops it, while the program still receives. Returns
    ///
    /// - when the program ends its direction, or reading fails;
    /// - ``linger`` after the program's kernel has this side's end;
    /// - when this side's end was sent, and the program's kernel has taken nothing for
    ///   ``longestPause``;
    /// - after ``stopDiscarding()``;
    /// - when the task is cancelled.
    ///
    /// A program at a Unix socket gets an error when it sends. A TCP connection is reset when it is
    /// closed (``close(inOrder:)``), but not before: the program could lose what it is receiving.
    func discardInput() async {
        if !isTCP, let socket = link as? SocketLink, socket.fileDescriptor >= 0 {
            Socket.shutdownRead(socket.fileDescriptor)
        }
        while !Task.isCancelled, !mustStopDiscarding, let (result, _) = try? receive(),
            result != .end
        {
            let now = link.loop.now
            if hasFinished {
                let queue = measuredQueue()
                let limit = queue.bytes == 0 ? Self.linger : Self.longestPause
                if now >= queue.since.advanced(by: limit) { return }
            }
            // Lets other tasks run even if the program sends without a pause.
            guard result == .wouldBlock else {
                await Task.yield()
                continue
            }
            link.wantsRead = true
            defer { link.wantsRead = false }
            let nextCheck =
                hasFinished ? now.advanced(by: Self.drainCheckInterval) : .distantFuture
            let isCancelled = await waiting.wait(
                for: .message, until: nextCheck, isolation: self
            ) { mustStopDiscarding }
            if isCancelled { return }
        }
    }

    /// The present value of ``queue``.
    private func measuredQueue() -> (bytes: Int, since: MonotonicTime) {
        let bytes = link.queuedBytes
        if let queue, queue.bytes == bytes { return queue }
        let changed = (bytes: bytes, since: link.loop.now)
        queue = changed
        return changed
    }

    /// Ends ``discardInput()``.
    func stopDiscarding() {
        mustStopDiscarding = true
        waiting.wake(.message)
    }

    // MARK: - The end

    /// Waits until the local program has refused what was sent to it: until a TCP connection is over,
    /// or the program has closed a Unix socket before it had read everything. What the program has
    /// sent can still be read. Returns false if the task is cancelled before that. If a program
    /// closes a Unix socket after it has read everything, nothing is refused yet, and the next write
    /// fails.
    func waitUntilRefused() async -> Bool {
        guard await waitUntilHungUp() else { return false }
        // A program can shut down both directions of a Unix socket, which hangs up, and close the
        // socket later, with bytes that it has not read. The loop reports only the hang-up.
        var pause = Self.drainCheckInterval
        while !isTCP, !hasFailed {
            guard (try? await link.loop.sleep(for: pause)) != nil else { return false }
            pause = min(pause * 2, Self.linger)
        }
        return true
    }

    /// Waits until the local program's end of the connection is gone. Returns false if the task is
    /// cancelled before that.
    private func waitUntilHungUp() async -> Bool {
        while !events.hasHungUp {
            let isCancelled = await waiting.wait(for: .end, isolation: self) { events.hasHungUp }
            if isCancelled { return false }
        }
        return true
    }

    /// Waits until a TCP connection is reset. Returns false if the task is cancelled before that,
    /// if the connection has hung up only because both directions have ended, and at once for a Unix
    /// socket.
    func waitUntilReset() async -> Bool {
        guard isTCP, await waitUntilHungUp() else { return false }
        guard hasFinished, let socket = link as? SocketLink else { return true }
        return Socket.hasError(socket.fileDescriptor)
    }

    /// Whether the connection has an error, such as a reset. If a program closes a Unix socket before
    /// it has read everything, the socket is reset.
    private var hasFailed: Bool {
        guard let socket = link as? SocketLink else { return receivingHasFailed }
        return receivingHasFailed || Socket.hasError(socket.fileDescriptor)
    }

    /// Waits until the local program's kernel has everything that was written. The wait ends earlier
    /// if the connection has failed, or if the kernel takes nothing for a while: for
    /// ``longestPause`` if everything up to the peer's end was written to a TCP connection, because
    /// the close drops what the kernel has not sent yet; otherwise for ``linger``.
    func drain() async {
        let limit = isTCP && hasFinished ? Self.longestPause : Self.linger
        while !hasFailed {
            let queue = measuredQueue()
            if queue.bytes == 0 || link.loop.now >= queue.since.advanced(by: limit) { return }
            guard (try? await link.loop.sleep(for: Self.drainCheckInterval)) != nil else { return }
        }
    }

    /// Closes the connection. If `inOrder` is false, a TCP connection is reset, as
    /// ``TCPAddress/prepare(_:)`` has requested, so that a program that still reads gets an error, and
    /// not an end that looks complete. If `inOrder` is true, that request is withdrawn, and the kernel
    /// still sends what was written.
    func close(inOrder: Bool) {
        if inOrder, let socket = link as? SocketLink, socket.fileDescriptor >= 0 {
            Socket.resetAtClose(socket.fileDescriptor, isOn: false)
        }
        link.close()
        waiting.wakeAll()
    }

    private final class Events: LinkHandler {
        private let waiting: LoopCondition
        private(set) var hasHungUp = false

        init(_ waiting: LoopCondition) { self.waiting = waiting }

        func linkIsReadable() { waiting.wake(.message) }
        func linkIsWritable() { waiting.wake(.room) }
        func linkDidHangUp() {
            hasHungUp = true
            waiting.wakeAll()
        }
    }
}
