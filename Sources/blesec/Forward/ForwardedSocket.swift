internal import BLESec
internal import BLESecLinks

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

    /// Begins to watch the connection, so that a hang-up is noticed while nothing is read.
    func begin() {
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
        let bytes = try [UInt8](capacity: 65_536) { span throws(LinkError) in
            result = try link.receive(into: &span)
        }
        return (result, bytes)
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
        // Wakes ``discardInput()``: from now on, ``linger`` and ``longestDelivery`` limit its time.
        waiting.wake(.message)
    }

    // MARK: - A program whose bytes nobody takes

    /// How long the local program may go on sending once its kernel has everything that this side
    /// has sent, including this side's end. If the connection was reset at once, the program might
    /// get an error before it has read everything.
    private static let linger: Duration = .seconds(2)
    /// How long the local program has, after the end was sent, to receive everything.
    private static let longestDelivery: Duration = .seconds(30)
    /// The pause between two checks whether the local program's kernel has everything.
    private static let drainCheckInterval: Duration = .milliseconds(100)

    /// Reads what the local program sends, and drops it, while the program still receives. Returns
    ///
    /// - when the program ends its direction, or reading fails;
    /// - ``linger`` after the program's kernel has this side's end;
    /// - ``longestDelivery`` after this side's end was sent;
    /// - after ``stopDiscarding()``;
    /// - when the task is cancelled.
    ///
    /// A program at a Unix socket gets an error when it sends. A TCP connection is reset when it is
    /// closed (``close(inOrder:)``), but not before: the program could lose what it is receiving.
    func discardInput() async {
        if !isTCP, let socket = link as? SocketLink, socket.fileDescriptor >= 0 {
            Socket.shutdownRead(socket.fileDescriptor)
        }
        var (finishTime, drainTime): (MonotonicTime?, MonotonicTime?)
        while !mustStopDiscarding, let (result, _) = try? receive(), result != .end {
            let now = link.loop.now
            if hasFinished {
                finishTime = finishTime ?? now
                drainTime = link.isDrained ? drainTime ?? now : nil
                if let drainTime, now >= drainTime.advanced(by: Self.linger) { return }
                if let finishTime, now >= finishTime.advanced(by: Self.longestDelivery) { return }
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

    /// Ends ``discardInput()``.
    func stopDiscarding() {
        mustStopDiscarding = true
        waiting.wake(.message)
    }

    // MARK: - The end

    /// Waits until the local program's end of the connection is gone, so that the program receives
    /// nothing more. What the program has sent can still be read. Returns false if the task is
    /// cancelled before that.
    func waitUntilHungUp() async -> Bool {
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

    /// Waits until the local program's kernel has everything that was written, but not longer than
    /// ``linger``.
    func drain() async {
        let deadline = link.loop.now.advanced(by: Self.linger)
        while !link.isDrained, link.loop.now < deadline, !Task.isCancelled {
            try? await link.loop.sleep(for: Self.drainCheckInterval)
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
