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
        /// beside a bulk stream. `pacedIdle` and `pacedBusy` are the same two figures with ``pause``
        /// between messages.
        var idle: LinkScenario.Percentiles
        var busy: LinkScenario.Percentiles
        var pacedIdle: LinkScenario.Percentiles
        var pacedBusy: LinkScenario.Percentiles
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
        var twoStreamsRatio: Summary
    }

    /// One round's measurements.
    private struct Round {
        var idle, pacedIdle, bulkAlone, busy, pacedBusy, twoBulk: StreamPair.Measurement

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
            pacedBusy: percentiles(\.pacedBusy),
            busyRatio: Summary(measured.map { Round.ratio($0.busy, $0.idle) }),
            pacedRatio: Summary(measured.map { Round.ratio($0.pacedBusy, $0.pacedIdle) }),
            goodput: Summary(alone),
            busyShare: Summary(measured.map(\.busy.goodput), over: alone),
            pacedShare: Summary(measured.map(\.pacedBusy.goodput), over: alone),
            twoStreamsRatio: Summary(measured.map(\.twoBulk.goodput), over: alone))
    }

    private func measureRound(_ pair: StreamPair) async throws -> Round {
        let (time, settling) = (
            Duration.nanoseconds(Int64(sampleTime)), Duration.nanoseconds(Int64(sampleTime / 4))
        )
        /// Measures with this pause between urgent messages, or without urgent messages.
        @Sendable func measure(urgentPause: Duration?) async throws -> StreamPair.Measurement {
            try await pair.measure(after: settling, for: time, urgentPause: urgentPause)
        }
        // Here `withBulkStreams` only runs the measurement on the dialer's loop.
        let (idle, pacedIdle) = try await pair.withBulkStreams(0) {
            (try await measure(urgentPause: .zero), try await measure(urgentPause: Self.pause))
        }
        let besideBulk = try await pair.withBulkStreams(bulkStreams) {
            (
                alone: try await measure(urgentPause: nil),
                busy: try await measure(urgentPause: .zero),
                pacedBusy: try await measure(urgentPause: Self.pause)
            )
        }
        let twoBulk = try await pair.withBulkStreams(2) { try await measure(urgentPause: nil) }
        return Round(
            idle: idle, pacedIdle: pacedIdle, bulkAlone: besideBulk.alone, busy: besideBulk.busy,
            pacedBusy: besideBulk.pacedBusy, twoBulk: twoBulk)
    }
}
