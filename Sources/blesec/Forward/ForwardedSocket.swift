internal import BLESec
internal import BLESecLinks

/// A local connection that tasks read and write.
actor ForwardedSocket {
    private let link: any Link
    private let waiting: LoopCondition
    private let events: Events

    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe link.loop.asUnownedSerialExecutor()
    }

    init(_ link: any Link) {
        self.link = link
        waiting = LoopCondition(loop: link.loop)
        events = Events(waiting)
    }

    /// The next bytes; nil at the end.
    func read() async throws(LinkError) -> [UInt8]? {
        link.setHandler(events)
        while true {
            var result = LinkReceive.wouldBlock
            let bytes = try [UInt8](capacity: 65_536) { span throws(LinkError) in
                result = try link.receive(into: &span)
            }
            switch result {
            case .bytes: return bytes
            case .end: return nil
            case .wouldBlock:
                link.wantsRead = true
                try await wait(for: .message)
                link.wantsRead = false
            }
        }
    }

    func write(_ bytes: [UInt8]) async throws(LinkError) {
        link.setHandler(events)
        var sent = 0
        while sent < bytes.count {
            let end = min(bytes.count, sent + link.maximumSDU)
            let count = try link.send(bytes.span.extracting(sent..<end))
            sent += count
            guard count == 0 else { continue }
            link.wantsWrite = true
            try await wait(for: .room)
            link.wantsWrite = false
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
    func finish() { _ = link.halfClose() }

    /// Closes the connection. If `inOrder` is false, a TCP connection is reset, so that a program
    /// that still reads gets an error, and not an end that looks complete. If `inOrder` is true,
    /// the kernel still sends what was written.
    func close(inOrder: Bool) {
        if inOrder, let socket = link as? SocketLink, socket.fileDescriptor >= 0 {
            Socket.resetAtClose(socket.fileDescriptor, false)
        }
        link.close()
        waiting.wakeAll()
    }

    private final class Events: LinkHandler {
        private let waiting: LoopCondition

        init(_ waiting: LoopCondition) { self.waiting = waiting }

        func linkIsReadable() { waiting.wake(.message) }
        func linkIsWritable() { waiting.wake(.room) }
        func linkDidHangUp() { waiting.wakeAll() }
    }
}
