internal import BLESec
internal import BLESecLinks
internal import BLESecRadioModel

/// Computes how long an urgent message takes beside a bulk stream on an LE connection, with the same
/// model as ``RadioScenario``.
struct RadioStreams: Sendable {
    var urgentClass = PeerConnection.Priority.urgent
    var bulkStreams = 1
    /// The link that one end uses; another one than the model's in tests.
    var wrap: @Sendable (any Link) -> any Link = { $0 }

    /// How long one measurement takes, in connection intervals, but at least ``leastTime``.
    private static let intervals = 128
    private static let leastTime: UInt64 = 6_000_000_000

    /// The figures of one connection, in nanoseconds and bytes a second.
    struct Result: Sendable {
        var parameters: RadioParameters
        /// From the program that writes 64 bytes to the one that reads them: the median and the
        /// longest, alone and beside a bulk stream.
        var idle: Span
        var busy: Span
        /// Of the bulk stream alone, and beside an urgent message at a time.
        var goodput: Double
        var busyGoodput: Double

        /// What the longest one may take: two connection intervals, and a short queue's bytes.
        var limit: Double {
            2 * Double(parameters.interval) + Double(ShortQueue.payload) / goodput * 1e9
        }
        /// How many of them the longest one takes.
        var intervals: Double { busy.longest / Double(parameters.interval) }
        /// The bytes of bulk data that take as long as the longest one.
        var queue: Double { busy.longest / 1e9 * goodput }
        var share: Double { busyGoodput / goodput }
    }

    struct Span: Sendable {
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
        // Moves on within the connection interval from message to message.
        let pause = Duration.nanoseconds(Int64(parameters.interval * 5 / 13))
        let run = try await RadioRun(parameters)
        let spans = try await run.whileTimePasses { [self] ends in
            let ends = LinkEnds(dialer: wrap(ends.dialer), acceptor: wrap(ends.acceptor))
            let pair = try await StreamPair(over: ends, urgentClass: urgentClass)
            let idle = try await pair.measure(after: .seconds(1), for: time, pause: pause)
            let bulk = try await pair.withBulk(streams: bulkStreams) {
                (
                    alone: try await pair.measure(after: .seconds(1), for: time),
                    busy: try await pair.measure(after: .seconds(1), for: time, pause: pause)
                )
            }
            await pair.close()
            return (idle: idle, alone: bulk.alone, busy: bulk.busy)
        }
        await run.end()
        return Result(
            parameters: parameters, idle: Span(spans.idle.urgent), busy: Span(spans.busy.urgent),
            goodput: spans.alone.goodput, busyGoodput: spans.busy.goodput)
    }
}
