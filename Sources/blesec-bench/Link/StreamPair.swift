internal import BLESec
internal import BLESecLocking

/// Both ends of a connection, whose streams are measured with the clocks of the ends' loops. The
/// dialer writes to an urgent stream and to bulk streams. The acceptor writes back what it reads
/// from the urgent stream, and counts the bytes that it reads from bulk streams.
struct StreamPair: Sendable {
    /// The times of one urgent message, in nanoseconds since the dialer began to write it.
    struct Sample: Sendable {
        /// Until the acceptor has read the message.
        var oneWay: Double
        /// Until the dialer has the message back.
        var roundTrip: Double
    }

    /// The figures of a period of time.
    struct Measurement: Sendable {
        var urgent: [Sample] = []
        /// Bytes a second, of all bulk streams together.
        var goodput = 0.0
    }

    /// What the acceptor has read.
    private struct Arrivals {
        var bulkBytes = 0
        /// The time in nanoseconds at which bytes of an urgent message were read last.
        var lastUrgentTime: UInt64 = 0
    }

    /// The length of an urgent message in bytes.
    static let urgentSize = 64
    /// How many bytes one call writes to a bulk stream.
    private static let bulkSize = 16 << 10
    /// How long a measurement waits for bulk bytes once its time is over, and the pause between two
    /// checks.
    private static let arrivalLimit = Duration.seconds(10)
    private static let arrivalPause = Duration.microseconds(100)
    private static let urgentLabel = "urgent"

    private let loop: EventLoop
    private let dialer: PeerConnection
    private let acceptor: PeerConnection
    private let arrivals: Locked<Arrivals>
    private let urgent: PeerConnection.Stream
    private let server: Task<Void, Never>

    /// Opens both ends of the connection. The urgent stream has the priority `urgentPriority`.
    init(
        over ends: LinkEnds, urgentPriority: PeerConnection.Priority = .urgent
    ) async throws {
        loop = ends.dialer.loop
        async let accepted = Self.connection(over: ends.acceptor, .acceptor)
        dialer = try await Self.connection(over: ends.dialer, .dialer)
        acceptor = try await accepted
        arrivals = Locked(Arrivals())
        server = Self.serve(acceptor, ends.acceptor.loop, arrivals)
        urgent = try await dialer.open(Self.urgentLabel, priority: urgentPriority)
        _ = try await send()
    }

    func close() async {
        server.cancel()
        await dialer.abort()
        await acceptor.abort()
    }

    private static func connection(
        over link: any Link, _ role: ChannelRole
    ) async throws -> PeerConnection {
        try await Task(executorPreference: link.loop) {
            let channel = try await EngineChoice.exactlyOnce.open(over: link, role: role)
            guard let connection = channel as? PeerConnection else {
                throw BenchError.wrongResult("the connection")
            }
            return connection
        }.value
    }

    private static func serve(
        _ connection: PeerConnection, _ loop: EventLoop, _ arrivals: Locked<Arrivals>
    ) -> Task<Void, Never> {
        Task(executorPreference: loop) {
            await withDiscardingTaskGroup { group in
                for await stream in connection.incomingStreams {
                    group.addTask(executorPreference: loop) {
                        // A stream that the dialer abandons ends with an error here.
                        try? await serve(stream, loop, arrivals)
                    }
                }
            }
        }
    }

    private static func serve(
        _ stream: PeerConnection.Stream, _ loop: EventLoop, _ arrivals: Locked<Arrivals>
    ) async throws {
        while let bytes = try await stream.read() {
            if stream.label == urgentLabel {
                let now = loop.now.nanoseconds
                arrivals.withLock { $0.lastUrgentTime = now }
                try await stream.write(bytes)
            } else {
                arrivals.withLock { $0.bulkBytes += bytes.count }
            }
        }
    }

    // MARK: - Measuring

    /// Runs `body` on the dialer's loop while `count` bulk streams are kept full.
    func withBulkStreams<Value: Sendable>(
        _ count: Int, _ body: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        var writers: [Task<Void, any Error>] = []
        for _ in 0..<count {
            let stream = try await dialer.open("bulk", priority: .bulk)
            writers.append(
                Task(executorPreference: loop) {
                    let bytes = [UInt8](repeating: 0x5A, count: Self.bulkSize)
                    while !Task.isCancelled { try await stream.write(bytes) }
                })
        }
        let task = Task(executorPreference: loop) { try await body() }
        let result = await task.result
        for writer in writers {
            writer.cancel()
            // A writer that was waiting ends with an error.
            _ = await writer.result
        }
        return try result.get()
    }

    /// Waits for the duration `settling`, so that the link can fill or empty, and then measures for
    /// `time`. Urgent messages are sent one after another, with `urgentPause` between them, which may
    /// be zero. If `urgentPause` is nil, no urgent messages are sent, and the measurement goes on
    /// until bulk bytes have arrived, so that the measured goodput is not 0.
    func measure(
        after settling: Duration, for time: Duration, urgentPause: Duration? = nil
    ) async throws -> Measurement {
        try await loop.sleep(for: settling)
        var measurement = Measurement()
        let start = loop.now
        let end = start.advanced(by: time)
        let before = arrivals.withLock { $0.bulkBytes }
        if let urgentPause {
            // At least one message, however short `time` is.
            repeat {
                measurement.urgent.append(try await send())
                if urgentPause > .zero { try await loop.sleep(for: urgentPause) }
            } while loop.now < end
        } else {
            try await loop.sleep(until: end)
            let limit = end.advanced(by: Self.arrivalLimit)
            while arrivals.withLock({ $0.bulkBytes }) == before {
                guard loop.now < limit else { throw BenchError.failed("the bulk stream") }
                try await loop.sleep(for: Self.arrivalPause)
            }
        }
        let passed = loop.now.nanoseconds - start.nanoseconds
        let bytes = arrivals.withLock { $0.bulkBytes } - before
        measurement.goodput = Double(bytes) / Double(passed) * 1e9
        return measurement
    }

    /// Sends an urgent message, and waits until the acceptor has sent it back.
    private func send() async throws -> Sample {
        let start = loop.now.nanoseconds
        try await urgent.write([UInt8](repeating: 0xA5, count: Self.urgentSize))
        var count = 0
        while count < Self.urgentSize {
            guard let bytes = try await urgent.read() else {
                throw BenchError.wrongResult("the peer's echo")
            }
            count += bytes.count
        }
        let arrived = arrivals.withLock { $0.lastUrgentTime }
        return Sample(
            oneWay: Double(arrived - start), roundTrip: Double(loop.now.nanoseconds - start))
    }
}
