import Glibc

/// A link over a kernel socket: Unix or L2CAP. ``Link`` describes the members without a comment here.
package final class SocketLink: Link, @unchecked Sendable {
    // Sendable because its state is used on the loop's thread only, which its methods check.

    /// The differences between the socket families.
    package struct Traits: Sendable {
        /// Whether the socket keeps packets apart. A plain `recv` then returns at most one packet,
        /// and discards what does not fit into the buffer, so the link keeps the rest itself.
        package var receivesPackets = false
        /// Whether a reset is a normal end: for L2CAP the kernel reports every end as a reset.
        package var resetIsEnd = false
        /// Whether one direction can be ended alone.
        package var canHalfClose = true
        /// Whether this is a Bluetooth socket. For such a socket, ``Socket/outputQueue(_:)``
        /// returns the send buffer's free space. An SDU that never fits into the buffer is refused
        /// as if the buffer were full; see ``SocketLink/sendPart(_:)``.
        package var isBluetooth = false
        /// Whether each send is one packet, which must not be larger than ``maximumSDU``.
        package var sendsPackets = false
        package var maximumSDU: Int
        package var peerDescription: String
        package var peerAddress: LinkAddress?

        package init(maximumSDU: Int, peerDescription: String, peerAddress: LinkAddress? = nil) {
            self.maximumSDU = maximumSDU
            self.peerDescription = peerDescription
            self.peerAddress = peerAddress
        }
    }

    /// The number of bytes at which ``sendPart(_:)`` stops halving a refused part: a packet of the
    /// smallest MTU, which fits into any send buffer.
    private static let smallestPart = 23
    /// After a received packet of fewer bytes than this, the socket counts as empty.
    private static let shortPacket = 4_096

    private let source: EventSource
    private let traits: Traits
    private weak var handler: (any LinkHandler)?
    /// The part of the last packet that did not fit into the reader's buffer.
    private var spill = PacketSpill()
    /// Whether a call of the handler is scheduled for the bytes in ``spill``.
    private var isScheduled = false
    /// Whether the last receive seems to have emptied the socket; false after the next event.
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    private var seemsEmpty = false
    /// Whether the loop reports when there is something to read.
    private var isWatching = false
    private var hasEnded = false
    private var hasHalfClosed = false
    /// The error that broke the link, once the socket has reported it. The socket reports the error
    /// only once, to a send or a receive. Later receives return the bytes that arrived before the
    /// error, and then the end.
    private var breakage: SystemError?
    /// The most bytes to pass to one system call.
    private var sendLimit = Int.max
    private var sendBufferSize = SendBufferSize()
    private var sendFailure: LinkError?
    private var receiveFailure: LinkError?

    /// Takes ownership of a connected socket. Called on the loop's thread.
    package init(_ source: EventSource, _ traits: Traits) {
        self.source = source
        self.traits = traits
        source.setHandler(self)
    }

    deinit {
        let source = source
        if source.loop.isCurrent { return source.close() }
        source.loop.execute { source.close() }
    }

    package var loop: EventLoop { source.loop }
    package var maximumSDU: Int { traits.maximumSDU }
    package var peerDescription: String { traits.peerDescription }
    package var peerAddress: LinkAddress? { traits.peerAddress }
    /// The socket, for options and counters; -1 once it is closed. The link owns it.
    package var fileDescriptor: Int32 { source.fileDescriptor }
    /// Whether the peer or the lower layer is gone, also if no handler has been told so.
    package var hasHungUp: Bool { source.hungUp }

    package func send(_ bytes: Span<UInt8>) throws(LinkError) -> Int {
        try checkOpen()
        precondition(!bytes.isEmpty, "a send needs at least one byte")
        if hasHalfClosed { throw LinkError(.closed, "this direction of the link was ended") }
        if let sendFailure { throw sendFailure }
        if traits.sendsPackets, bytes.count > traits.maximumSDU {
            throw LinkError(
                .tooLarge,
                "\(bytes.count) bytes in one send; \(peerDescription) takes \(maximumSDU)")
        }
        var count = sendOnce(bytes)
        if count == -Int(EAGAIN) && traits.isBluetooth { count = sendPart(bytes) }
        if count >= 0 { return count }
        let number = Int32(-count)
        if number == EAGAIN { return 0 }
        let error = SystemError(number == ENOTCONN ? ECONNRESET : number)
        let failure = LinkError(error, cannot: "send to \(peerDescription)")
        // A send that is too large, or a temporary lack of memory, does not end the link. After any
        // error, received bytes can still be read.
        if failure.code != .tooLarge && !failure.isTemporary {
            // EPIPE says only that the peer receives no more. A peer that has ended the link in good
            // order causes it too.
            if number != EPIPE, !traits.resetIsEnd { breakage = error }
            sendFailure = failure
            wantsWrite = false
        }
        throw failure
    }

    package func receive(into buffer: inout OutputSpan<UInt8>) throws(LinkError) -> LinkReceive {
        do throws(LinkError) {
            try checkOpen()
        } catch {
            wantsRead = false
            throw error
        }
        precondition(!buffer.isFull, "there must be room for one byte")
        if hasEnded { return .end }
        if let receiveFailure { throw receiveFailure }
        if !spill.isEmpty {
            spill.move(into: &buffer)
            reportSpill()
            return .bytes
        }
        if seemsEmpty && isWatching { return .wouldBlock }
        let room = buffer.freeCapacity
        var count = receiveOnce(into: &buffer)
        if count == -Int(ECONNRESET), reportsResetFirst {
            breakage = SystemError(ECONNRESET)
            count = receiveOnce(into: &buffer)
        }
        if count > 0 {
            // A byte stream returns all bytes that it has, so fewer bytes than requested mean that
            // it is empty now. A short packet is usually the only one queued, so a second receive
            // would find nothing. If another packet is queued, the loop reports it.
            seemsEmpty = count < (traits.receivesPackets ? Self.shortPacket : room)
            reportSpill()
            return .bytes
        }
        if count == 0 {
            if let breakage { throw failReceiving(breakage) }
            return end()
        }
        switch Int32(-count) {
        case EAGAIN:
            // After an L2CAP link was lost, a receive reports EAGAIN instead of the end of file.
            if traits.resetIsEnd && source.hungUp { return end() }
            seemsEmpty = true
            return .wouldBlock
        case ECONNRESET, ENOTCONN:
            if traits.resetIsEnd { return end() }
            throw failReceiving(SystemError(ECONNRESET))
        case let number: throw failReceiving(SystemError(number))
        }
    }

    package func setHandler(_ handler: (any LinkHandler)?) {
        loop.assertCurrent()
        self.handler = handler
        updateInterest()
    }

    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    package var wantsRead = false { didSet { if wantsRead != oldValue { updateInterest() } } }
    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    package var wantsWrite = false { didSet { if wantsWrite != oldValue { updateInterest() } } }

    package var isDrained: Bool { queuedBytes == 0 }

    package var queuedBytes: Int {
        loop.assertCurrent()
        let descriptor = source.fileDescriptor
        guard descriptor >= 0 else { return 0 }
        do throws(SystemError) {
            let queuedOrFree = try Socket.outputQueue(descriptor)
            if !traits.isBluetooth { return queuedOrFree }
            return max(0, Int(try Socket.option(descriptor, SOL_SOCKET, SO_SNDBUF)) - queuedOrFree)
        } catch {
            return 0
        }
    }

    #if !DEBUG
        @safe @exclusivity(unchecked)
    #endif
    package var keepsQueueShort = false {
        didSet { if keepsQueueShort != oldValue { resizeBuffer() } }
    }

    package func halfClose() -> Bool {
        guard canHalfClose else { return false }
        guard !hasHalfClosed else { return true }
        do throws(SystemError) {
            try Socket.shutdownWrite(source.fileDescriptor)
        } catch {
            return false
        }
        hasHalfClosed = true
        return true
    }

    package func close() {
        handler = nil
        source.close()
    }

    /// Sends a smaller part if a Bluetooth socket would never take all of the bytes at once.
    ///
    /// The kernel divides an SDU into packets, and charges the send buffer for each packet and its
    /// overhead. When the sum of the charges exceeds the buffer, the socket always returns EAGAIN,
    /// even if nothing is queued and the socket polls writable. The packets that the peer accepts
    /// may be as small as 23 bytes, and their size cannot be queried. The receiver joins SDUs, so
    /// several smaller SDUs have the same effect.
    private func sendPart(_ bytes: Span<UInt8>) -> Int {
        var refusals = 0
        while isDrained && Socket.isWritable(source.fileDescriptor) {
            let part = bytes.extracting(first: sendLimit)
            let count = sendOnce(part)
            guard count == -Int(EAGAIN), part.count > Self.smallestPart else { return count }
            // The queue may have become empty only after the refusal, so only a second refusal
            // shows that the part is too large.
            if refusals > 0, !enlargeBuffer() { sendLimit = part.count / 2 }
            refusals += 1
        }
        return -Int(EAGAIN)
    }

    /// Passes bytes to the kernel, at most as many as one system call should take.
    private func sendOnce(_ bytes: Span<UInt8>) -> Int {
        let part = bytes.extracting(first: sendLimit)
        guard keepsQueueShort else { return Socket.send(source.fileDescriptor, part) }
        if traits.isBluetooth { return sendMeasured(part) }
        // The kernel refuses a packet that is larger than the buffer, but divides a stream's bytes.
        let limit =
            traits.sendsPackets
            ? SendBufferSize.largestUnixPacket(maximumSDU: traits.maximumSDU) : Int.max
        return Socket.send(source.fileDescriptor, part.extracting(first: limit))
    }

    /// Sends an SDU, and measures by how much the buffer's free space shrinks.
    private func sendMeasured(_ bytes: Span<UInt8>) -> Int {
        let descriptor = source.fileDescriptor
        // The overhead of a short SDU says little about that of a long one.
        guard bytes.count >= traits.maximumSDU / 2, let before = try? Socket.outputQueue(descriptor)
        else { return Socket.send(descriptor, bytes) }
        let count = Socket.send(descriptor, bytes)
        guard count > 0, let after = try? Socket.outputQueue(descriptor) else { return count }
        if sendBufferSize.learn(charge: before - after, for: count, maximumSDU: maximumSDU) {
            resizeBuffer()
        }
        return count
    }

    /// Enlarges a short buffer into which an SDU does not fit; returns whether it is larger now.
    private func enlargeBuffer() -> Bool {
        guard keepsQueueShort,
            let current = try? Socket.option(source.fileDescriptor, SOL_SOCKET, SO_SNDBUF),
            sendBufferSize.doubleCharge(current: current)
        else { return false }
        return resizeBuffer()
    }

    /// Sets the buffer's size according to ``keepsQueueShort``; returns whether the size has
    /// changed. After a failure the buffer stays as it is. If the new size makes room for a send,
    /// the kernel reports the socket as writable.
    @discardableResult
    private func resizeBuffer() -> Bool {
        loop.assertCurrent()
        let descriptor = source.fileDescriptor
        guard descriptor >= 0 else { return false }
        do throws(SystemError) {
            let current = try Socket.option(descriptor, SOL_SOCKET, SO_SNDBUF)
            let size = sendBufferSize.size(
                isShort: keepsQueueShort, isL2CAP: traits.isBluetooth, maximumSDU: maximumSDU,
                current: current)
            if size == current { return false }
            // The kernel doubles the value that is set.
            try Socket.setOption(descriptor, SOL_SOCKET, SO_SNDBUF, to: (size + 1) / 2)
            return try Socket.option(descriptor, SOL_SOCKET, SO_SNDBUF) != current
        } catch {
            return false
        }
    }

    private func checkOpen() throws(LinkError) {
        loop.assertCurrent()
        guard source.fileDescriptor >= 0 else {
            throw LinkError(.closed, "the link is closed on this side")
        }
        if loop.isShutDown { throw LinkError(.closed, "the link's event loop was shut down") }
        if source.failure != 0 {
            throw LinkError(SystemError(source.failure), cannot: "wait for \(peerDescription)")
        }
    }

    /// Whether the kernel reports a reset once, to a send or a receive, and only then returns the
    /// packets that arrived before. A byte stream returns its bytes first. A reset of a Unix socket
    /// means that the peer closed its end before it had received everything.
    private var reportsResetFirst: Bool { traits.receivesPackets && !traits.resetIsEnd }

    /// Receives bytes, or one packet.
    private func receiveOnce(into buffer: inout OutputSpan<UInt8>) -> Int {
        guard traits.receivesPackets else {
            return Socket.receive(source.fileDescriptor, into: &buffer)
        }
        return Socket.receivePacket(
            source.fileDescriptor, into: &buffer, spill: &spill, loop.packetSpace,
            isBluetooth: traits.isBluetooth)
    }

    private func end() -> LinkReceive {
        hasEnded = true
        wantsRead = false
        return .end
    }

    private func failReceiving(_ error: SystemError) -> LinkError {
        let failure = LinkError(error, cannot: "receive from \(peerDescription)")
        if failure.code != .unavailable {
            receiveFailure = failure
            wantsRead = false
        }
        return failure
    }

    private func updateInterest() {
        let hasHandler = handler != nil
        isWatching = hasHandler && wantsRead
        source.want(read: isWatching, write: hasHandler && wantsWrite)
        reportSpill()
    }
}

extension SocketLink: HalfClosingLink {
    package var canHalfClose: Bool {
        loop.assertCurrent()
        return traits.canHalfClose && source.fileDescriptor >= 0
    }
}

extension SocketLink: DeferredWork {
    /// Schedules a call of the handler for bytes in ``spill``, which the kernel does not report.
    private func reportSpill() {
        guard !spill.isEmpty, wantsRead, !isScheduled else { return }
        isScheduled = true
        loop.runSoon(self)
    }

    package func runDeferred() {
        isScheduled = false
        guard !spill.isEmpty, wantsRead else { return }
        handler?.linkIsReadable()
        if handler != nil, !loop.isShutDown { reportSpill() }
    }
}

extension SocketLink: EventSourceHandler {
    package func sourceIsReady(readable: Bool, writable: Bool, hungUp: Bool) {
        seemsEmpty = false
        guard handler != nil else { return updateInterest() }
        if hungUp { handler?.linkDidHangUp() }
        if readable && wantsRead { handler?.linkIsReadable() }
        if writable && wantsWrite { handler?.linkIsWritable() }
    }
}
