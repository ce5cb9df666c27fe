internal import BLESec

/// Measures streams of a connection whose messages arrive exactly once: how long an urgent message
/// takes beside bulk data, and how much urgent messages slow the bulk data.
struct StreamScenario: Sendable {
    /// The length of one sample, in nanoseconds.
    var sampleTime: Double
    var rounds: Int
    var urgentPriority = PeerConnection.Priority.urgent
    /// The number of bulk streams beside the urgent stream. Only tests change it.
    var bulkStreams = 1

    /// The pause between two urgent messages, when they do not follow each other at once.
    static let pause = Duration.milliseconds(5)

    /// The figures of one kind of link. Each ratio compares two figures of the same round.
    struct Result: Sendable {
        var transport: String
        /// The number of rounds that were measured.
        var rounds: Int
        /// The round trip of an urgent message, in nanoseconds: `idle` without bulk data, `busy`
        /// beside a bulk stream. `pacedIdle` and `paced` are the same two figures with ``pause``
        /// between messages.
        var idle: LinkScenario.Percentiles
        var busy: LinkScenario.Percentiles
        var pacedIdle: LinkScenario.Percentiles
        var paced: LinkScenario.Percentiles
        /// The median round trip beside a bulk stream divided by the median without bulk data, for
        /// messages without and with ``pause``.
        var busyRatio: Summary
        var pacedRatio: Summary
        /// Bytes a second of one bulk stream alone.
        var goodput: Summary
        /// The bulk stream's goodput while urgent messages are sent, divided by its goodput alone:
        /// for messages without and with ``pause``.
        var busyShare: Summary
        var pacedShare: Summary
        /// The goodput of two bulk streams together divided by that of one.
        var twoStreams: Summary
    }

    /// One round's measurements.
    private struct Round {
        var idle, pacedIdle, bulkAlone, busy, paced, twoBulk: StreamPair.Measurement

        static func ratio(_ busy: StreamPair.Measurement, _ idle: StreamPair.Measurement) -> Double
        {
            busy.urgent.map(\.roundTrip).median / idle.urgent.map(\.roundTrip).median
        }
    }

    /// Measures over a link that has no other user. The first round is always measured; no other
    /// round begins after `deadline`.
    func measure(
        _ transport: String, over ends: LinkEnds, until deadline: UInt64
    ) async throws -> Result {
        let pair = try await StreamPair(over: ends, urgentPriority: urgentPriority)
        var measured: [Round] = []
        for round in 0..<rounds where round == 0 || Clock.time < deadline {
            measured.append(try await measureRound(pair))
        }
        await pair.close()
        func percentiles(
            _ measurement: KeyPath<Round, StreamPair.Measurement>
        ) -> LinkScenario.Percentiles {
            LinkScenario.Percentiles(
                measured.flatMap { $0[keyPath: measurement].urgent.map(\.roundTrip) })
        }
        let alone = measured.map(\.bulkAlone.goodput)
        return Result(
            transport: transport, rounds: measured.count, idle: percentiles(\.idle),
            busy: percentiles(\.busy), pacedIdle: percentiles(\.pacedIdle),
            paced: percentiles(\.paced),
            busyRatio: Summary(measured.map { Round.ratio($0.busy, $0.idle) }),
            pacedRatio: Summary(measured.map { Round.ratio($0.paced, $0.pacedIdle) }),
            goodput: Summary(alone),
            busyShare: Summary(measured.map(\.busy.goodput), over: alone),
            pacedShare: Summary(measured.map(\.paced.goodput), over: alone),
            twoStreams: Summary(measured.map(\.twoBulk.goodput), over: alone))
    }

    private func measureRound(_ pair: StreamPair) async throws -> Round {
        let (time, settling) = (
            Duration.nanoseconds(Int64(sampleTime)), Duration.nanoseconds(Int64(sampleTime / 4))
        )
        @Sendable func measurement(_ pause: Duration? = nil) async throws -> StreamPair.Measurement
        {
            try await pair.measure(after: settling, for: time, pause: pause)
        }
        // `withBulk` runs this measurement, too, on the loop of the connection that sends.
        let (idle, pacedIdle) = try await pair.withBulk(streams: 0) {
            (try await measurement(.zero), try await measurement(Self.pause))
        }
        let besideBulk = try await pair.withBulk(streams: bulkStreams) {
            let (alone, busy) = (try await measurement(), try await measurement(.zero))
            return (alone: alone, busy: busy, paced: try await measurement(Self.pause))
        }
        let twoBulk = try await pair.withBulk(streams: 2) { try await measurement() }
        return Round(
            idle: idle, pacedIdle: pacedIdle, bulkAlone: besideBulk.alone, busy: besideBulk.busy,
            paced: besideBulk.paced, twoBulk: twoBulk)
    }
}
