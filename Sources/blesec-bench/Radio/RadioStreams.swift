internal import BLESec
internal import BLESecLinks
internal import BLESecRadioModel

/// Computes how long an urgent message takes beside a bulk stream on an LE connection, with the
/// same model as ``RadioScenario``.
struct RadioStreams: Sendable {
    var urgentPriority = PeerConnection.Priority.urgent
    /// The number of bulk streams beside the urgent stream. Only tests change it.
    var bulkStreams = 1
    /// Wraps an end of the modelled link; the connection uses the result. Only tests change it.
    var wrap: @Sendable (any Link) -> any Link = { $0 }

    /// How long one measurement takes, in connection intervals, but at least ``leastTime``
    /// nanoseconds.
    private static let intervals = 128
    private static let leastTime: UInt64 = 6_000_000_000

    /// The figures of one connection, in nanoseconds and bytes a second.
    struct Result: Sendable {
        var parameters: RadioParameters
        /// The time from writing an urgent message of 64 bytes to reading it at the other end:
        /// without a bulk stream, and beside one.
        var idle: Times
        var busy: Times
        /// The goodput of the bulk stream: alone, and beside urgent messages, which are sent one at
        /// a time.
        var goodput: Double
        var busyGoodput: Double

        /// The limit for the longest time of ``busy``: two connection intervals, plus the time that
        /// the bytes of a ``ShortQueue`` take at the rate ``goodput``.
        var longestAllowed: Double {
            2 * Double(parameters.interval) + Double(ShortQueue.payload) / goodput * 1e9
        }
        /// The longest time of ``busy``, in connection intervals.
        var busyIntervals: Double { busy.longest / Double(parameters.interval) }
        /// The bytes that the bulk stream sends at the rate ``goodput`` in the longest time of
        /// ``busy``.
        var queuedBytes: Double { busy.longest / 1e9 * goodput }
        /// The bulk stream's goodput beside urgent messages, as a fraction of its goodput alone.
        var share: Double { busyGoodput / goodput }
    }

    /// The times of urgent messages, in nanoseconds.
    struct Times: Sendable {
        var median: Double
        var longest: Double

        init(_ samples: [StreamPair.Sample]) {
            let times = samples.map(\.oneWay).sorted()
            median = times.median
            longest = times[times.count - 1]
        }
    }

    func measure(_ parameters: RadioParameters) async throws -> Result {
        let time = Duration.nanoseconds(
            Int64(max(Self.leastTime, parameters.interval * UInt64(Self.intervals))))
        // With this pause, each message begins at another point of the connection interval.
        let pause = Duration.nanoseconds(Int64(parameters.interval * 5 / 13))
        let run = try await RadioRun(parameters)
        let measured = try await run.whileTimePasses { [self] ends in
            let ends = LinkEnds(dialer: wrap(ends.dialer), acceptor: wrap(ends.acceptor))
            let pair = try await StreamPair(over: ends, urgentPriority: urgentPriority)
            let idle = try await pair.measure(
                after: .seconds(1), for: time, urgentPause: pause)
            let bulk = try await pair.withBulkStreams(bulkStreams) {
                (
                    alone: try await pair.measure(after: .seconds(1), for: time),
                    busy: try await pair.measure(
                        after: .seconds(1), for: time, urgentPause: pause)
                )
            }
            await pair.close()
            return (idle: idle, alone: bulk.alone, busy: bulk.busy)
        }
        await run.end()
        return Result(
            parameters: parameters, idle: Times(measured.idle.urgent),
            busy: Times(measured.busy.urgent), goodput: measured.alone.goodput,
            busyGoodput: measured.busy.goodput)
    }
}
