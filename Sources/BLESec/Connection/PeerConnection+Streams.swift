public import BLESecChannelCore
internal import BLESecDelivery
internal import BLESecLinks

extension PeerConnection {
    /// Which frames of a connection are sent first. More urgent frames overtake others, but each
    /// less urgent priority with waiting frames still gets about a tenth of the frames.
    public enum Priority: UInt8, Sendable, Hashable, CaseIterable {
        case urgent, normal, bulk

        var frames: FramePriority { FramePriority(rawValue: rawValue) ?? .normal }
    }

    /// The bounds of a connection's streams.
    public struct StreamOptions: Sendable {
        /// How many of the streams that each side opens may be open at once; 64 by default, at most
        /// 256.
        public var maximumOpen = 64
        /// How many streams of the peer may wait to be accepted
        /// (``PeerConnection/incomingStreams``); 16 by default.
        public var maximumWaiting = 16
        /// How many bytes this side keeps for each direction of a stream; 64 KiB by default. The
        /// peer sends no more than this before this side's program reads.
        public var window = 64 << 10

        /// The default bounds.
        public init() {}

        var limits: StreamLimits {
            var limits = StreamLimits()
            limits.streams = max(1, min(maximumOpen, StreamLimits.mostStreams))
            limits.waiting = max(1, min(maximumWaiting, limits.streams))
            limits.window = max(1, min(window, 1 << 30))
            return limits
        }
    }

    /// Ordered bytes in both directions, beside the messages of a connection. A stream outlives
    /// links, but not the processes: if either side starts a new connection, the stream ends with
    /// `sessionLost`. (A stream of which the peer has not been told yet continues.) There is no order
    /// between different streams, nor between a stream and the messages. After a stream has ended,
    /// its calls report how it ended, even if the connection was closed later.
    ///
    /// If a program drops its last reference to a stream, the directions that have not ended are
    /// given up, as by ``reset(code:)`` and ``stop(code:)``.
    public final class Stream: Sendable {
        /// The text given by the side that opened the stream; at most 255 bytes of UTF-8.
        public let label: String
        /// The priority of the frames of both directions.
        public let priority: Priority
        /// Whether the peer has opened the stream.
        public let isIncoming: Bool
        let handle: Streams.Handle
        let waiting: LoopCondition
        private let connection: PeerConnection
        private let lane: MessageLane

        init(
            _ handle: Streams.Handle, _ label: String, _ priority: Priority, isIncoming: Bool,
            of connection: PeerConnection, _ lane: MessageLane
        ) {
            self.handle = handle
            self.label = label
            self.priority = priority
            self.isIncoming = isIncoming
            self.connection = connection
            self.lane = lane
            waiting = LoopCondition(loop: connection.loop)
        }

        deinit {
            let (connection, handle) = (connection, handle)
            connection.loop.execute { connection.assumeIsolated { $0.release(handle) } }
        }

        /// Queues bytes; waits while there is no room for them. When this call returns, the bytes
        /// may not have arrived yet. Only one task at a time should write, because the parts of
        /// concurrent calls may be interleaved.
        ///
        /// - Throws: `streamReset` if the peer wants no more, or this side has called
        ///   ``reset(code:)``; `sessionLost`; `closed` after ``finish()``, or the error that closed
        ///   the connection; `cancelled`. After an error, a part of the bytes may be queued.
        public func write(_ bytes: [UInt8]) async throws(ChannelError) {
            try await connection.write(bytes, to: self)
        }

        /// Ends this side's direction. The peer's program can read everything that was written
        /// before.
        public func finish() async { await connection.change(self) { $0.finish($1) } }

        /// Returns the next bytes, at most `count`, as soon as there are any; nil at the end. `count`
        /// must be positive.
        ///
        /// - Throws: `streamReset` if this side has called ``stop(code:)``, unless everything up to
        ///   the peer's end was read before; `cancelled`. Only after the bytes that have arrived are
        ///   read: `streamReset` if the peer has given up its direction; `sessionLost`; the error
        ///   that closed the connection.
        public func read(atMost count: Int = 65_536) async throws(ChannelError) -> [UInt8]? {
            precondition(count > 0, "a read takes at least one byte")
            return try await connection.read(from: self, atMost: count)
        }

        /// Waits until the peer's program has taken everything up to this side's ``finish()``.
        ///
        /// - Throws: `streamReset` if the peer's program, or this side, has given up this
        ///   direction; `sessionLost`; the error that closed the connection; `cancelled`.
        public func waitUntilTaken() async throws(ChannelError) {
            try await connection.waitUntilTaken(self)
        }

        /// Waits until the peer has given up its direction, the stream is lost, or the connection is
        /// closed; returns at once when the task is cancelled.
        package func waitUntilReset() async { await connection.waitUntilReset(self) }

        /// Gives up this side's direction: bytes that have not arrived may never arrive. `code` is
        /// for the peer's program.
        public func reset(code: UInt32 = 0) async {
            await connection.change(self) { $0.reset($1, code: code) }
        }

        /// Gives up this side's direction, after everything that was written is sent.
        package func resetAfterWritten(code: UInt32) async {
            await connection.change(self) { $0.resetAfterWritten($1, code: code) }
        }

        /// Gives up the peer's direction: this side wants no more bytes, and drops those that have
        /// arrived. `code` is for the peer's program.
        public func stop(code: UInt32 = 0) async {
            await connection.change(self) { $0.stop($1, code: code) }
        }

        /// The code with which the peer has given up its direction, or has stopped this side's;
        /// `nil` if it has done neither.
        public var resetCode: UInt32? { lane.changeStreams { $0.resetCode(handle) } }

        /// Why the peer's program will not take everything that was written; nil if the program has
        /// taken everything, or may still do so.
        package var sendingFailure: ChannelError? {
            switch lane.changeStreams({ $0.writeResult(handle) }) {
            case .failure(let failure): ChannelError(failure)
            case .success, nil: nil
            }
        }

        /// What ``read(atMost:)`` returns, one after another. The sequence ends or throws as
        /// ``read(atMost:)`` does.
        public var chunks: Arrivals {
            Arrivals { () async throws(ChannelError) in try await self.read() }
        }
    }

    /// Opens a stream to the peer; waits while too many streams of this side are open. The label, at
    /// most 255 bytes of UTF-8, tells the peer's program what the stream is for. The call does not
    /// wait for the peer, which may learn of the stream on a later link.
    ///
    /// - Throws: `configuration` without ``Guarantee/exactlyOnce(_:)``; `limitExceeded` for a label
    ///   that is too long; `closed` after ``finish()``, or the error that closed the connection;
    ///   `cancelled`.
    public func open(
        _ label: String = "", priority: Priority = .normal
    ) async throws(ChannelError) -> Stream {
        guard let lane else {
            throw ChannelError(
                .configuration, "streams need a connection whose messages arrive exactly once")
        }
        guard label.utf8.count <= StreamRecord.longestLabel else {
            throw ChannelError(
                .limitExceeded, "a stream's label has at most \(StreamRecord.longestLabel) bytes")
        }
        while true {
            if !machine.canSend { throw machine.closedError }
            let handle = lane.changeStreams { streams in
                streams.canOpen ? streams.open(label, priority.frames) : nil
            }
            if let handle {
                tellChannel(hasMessage: true)
                return add(handle, label, priority, isIncoming: false, lane)
            }
            try await waiting.wait(for: .room, on: self) {
                lane.changeStreams { $0.canOpen } || !machine.canSend
            }
        }
    }

    /// The streams that the peer opens, except those that another layer takes, such as files. Ends
    /// when the program has received everything up to the peer's end, or the connection is closed.
    /// Accept streams and receive messages concurrently: otherwise the peer's end may not arrive,
    /// because it follows all streams of the peer, and only a few may wait to be accepted.
    public nonisolated var incomingStreams: AsyncStream<Stream> {
        AsyncStream { await self.acceptOther() }
    }

    /// Waits for the next stream with this label; nil if none can come. From now on,
    /// ``incomingStreams`` leaves out the streams with this label.
    package func acceptStream(labelled label: String) async -> Stream? {
        reservedLabels.insert(label)
        return await acceptStream { $0 == label }
    }

    private func acceptOther() async -> Stream? {
        await acceptStream { !self.reservedLabels.contains($0) }
    }

    private func acceptStream(where isWanted: (String) -> Bool) async -> Stream? {
        guard let lane else { return nil }
        while true {
            if let (handle, label, priority) = lane.changeStreams({ $0.accept(where: isWanted) }) {
                // The peer may open more now.
                tellChannel()
                return add(
                    handle, label, Priority(rawValue: priority.rawValue) ?? .normal,
                    isIncoming: true, lane)
            }
            if machine.isClosed || lane.hasReachedPeerEnd || Task.isCancelled { return nil }
            try? await waiting.wait(for: .stream, on: self) {
                lane.changeStreams { $0.hasArrived(where: isWanted) } || machine.isClosed
                    || lane.hasReachedPeerEnd
            }
        }
    }

    private func add(
        _ handle: Streams.Handle, _ label: String, _ priority: Priority, isIncoming: Bool,
        _ lane: MessageLane
    ) -> Stream {
        let stream = Stream(handle, label, priority, isIncoming: isIncoming, of: self, lane)
        streams[handle] = StreamReference(stream: stream)
        return stream
    }

    fileprivate func write(
        _ bytes: [UInt8], to stream: Stream
    ) async throws(ChannelError) {
        guard let lane else { return }
        var rest = bytes[...]
        while true {
            // As for reads, the stream's own error comes before that of a closed connection: the
            // peer may have stopped this direction just before the connection closed, while the
            // writer was waiting. A write of no bytes throws the stream's error, if there is one.
            let isClosed = machine.isClosed
            let result = lane.changeStreams { streams in
                Result { () throws(Streams.Failure) in
                    guard !streams.hasFinished(stream.handle) else { return nil }
                    return try streams.write(isClosed ? [] : rest, to: stream.handle)
                } as Result<ArraySlice<UInt8>?, Streams.Failure>
            }
            switch result {
            case .failure(let failure): throw ChannelError(failure)
            case .success(nil):
                throw ChannelError(.closed, "the stream has been finished on this side")
            case .success(let remaining?): rest = remaining
            }
            if isClosed { throw machine.closedError }
            tellChannel(hasMessage: true)
            if rest.isEmpty { return }
            try await stream.waiting.wait(for: .stream, on: self) {
                lane.changeStreams { $0.hasRoom(stream.handle) } || machine.isClosed
            }
        }
    }

    fileprivate func read(
        from stream: Stream, atMost count: Int
    ) async throws(ChannelError) -> [UInt8]? {
        guard let lane else { return nil }
        while true {
            let result = lane.changeStreams { streams in
                Result { () throws(Streams.Failure) in
                    try streams.read(stream.handle, atMost: count)
                }
            }
            switch result {
            case .failure(let failure): throw ChannelError(failure)
            case .success(let bytes):
                if let bytes, bytes.isEmpty { break }
                // The peer may send more now, or must learn that everything was taken.
                tellChannel()
                // A call that is closing the connection must notice this progress.
                waiting.wake(.change)
                return bytes
            }
            if machine.isClosed { throw machine.closedError }
            try await stream.waiting.wait(for: .stream, on: self) {
                lane.changeStreams { $0.canRead(stream.handle) } || machine.isClosed
            }
        }
    }

    fileprivate func waitUntilTaken(_ stream: Stream) async throws(ChannelError) {
        guard let lane else { return }
        while true {
            switch lane.changeStreams({ $0.writeResult(stream.handle) }) {
            case .success: return
            case .failure(let failure): throw ChannelError(failure)
            case nil: break
            }
            if machine.isClosed { throw machine.closedError }
            try await stream.waiting.wait(for: .end, on: self) {
                lane.changeStreams { $0.writeResult(stream.handle) } != nil || machine.isClosed
            }
        }
    }

    fileprivate func waitUntilReset(_ stream: Stream) async {
        guard let lane else { return }
        while !machine.isClosed, !lane.changeStreams({ $0.hasFailedReading(stream.handle) }) {
            do throws(ChannelError) {
                try await stream.waiting.wait(for: .end, on: self) {
                    lane.changeStreams { $0.hasFailedReading(stream.handle) } || machine.isClosed
                }
            } catch {
                return
            }
        }
    }

    fileprivate func change(
        _ stream: Stream, _ body: (Streams, Streams.Handle) -> Void
    ) {
        lane?.changeStreams { body($0, stream.handle) }
        stream.waiting.wakeAll()
        tellChannel(hasMessage: true)
    }

    /// Called when the program has dropped the stream.
    fileprivate func release(_ handle: Streams.Handle) {
        lane?.changeStreams { $0.release(handle) }
        streams[handle] = nil
        tellChannel(hasMessage: true)
        heardFromLane()
    }

    /// Wakes the tasks that wait for these streams. Tasks that wait for the end of a direction are
    /// woken only if a direction has ended.
    func wake(_ handles: [Streams.Handle]) {
        for handle in handles {
            guard let stream = streams[handle]?.stream else { continue }
            stream.waiting.wake(.stream)
            if lane?.changeStreams({ $0.hasEnd(handle) }) ?? true { stream.waiting.wake(.end) }
        }
    }

    /// Wakes the tasks that wait for any stream, because the connection is closed.
    func wakeAllStreams() {
        waiting.wake(.stream)
        for reference in streams.values { reference.stream?.waiting.wakeAll() }
    }

    /// A stream that the program may have dropped.
    struct StreamReference { weak var stream: Stream? }
}

extension ChannelError {
    fileprivate init(_ failure: Streams.Failure) {
        switch failure {
        case .reset(let code):
            self.init(.streamReset, "the stream was given up, with code \(code)")
        case .sessionLost:
            self.init(
                .sessionLost,
                "the stream ended because the peer's connection, or this side's, is a new one")
        }
    }
}
