internal import BLESec

/// Measures messages over a link: goodput one way, and round trips.
struct LinkScenario: Sendable {
    /// The length of one sample, in nanoseconds, unless a single message takes longer.
    var sampleTime: Double
    var rounds: Int
    var measuresRoundTrips: Bool

    /// The figures of one engine with messages of one size.
    struct Result: Sendable {
        var transport: String
        var engine: String
        var size: Int
        /// The number of rounds that were measured.
        var rounds: Int
        /// Bytes of messages a second, one way.
        var goodput: Summary
        /// Each round's goodput divided by the plain link's.
        var goodputRatio: Summary?
        /// Each round's goodput divided by that of two blocking threads in C; nil if these threads
        /// were not measured, or cannot do the same work.
        var goodputRatioToBlocking: Summary?
        /// Nanoseconds of a round trip: the 50th, 90th and 99th percentiles, and the maximum.
        var roundTrip: Percentiles?
        /// Each round's median round trip divided by the plain link's.
        var roundTripRatio: Summary?
        /// Each round's median round trip divided by that of the blocking threads in C.
        var roundTripRatioToBlocking: Summary?
    }

    struct Percentiles: Sendable {
        var p50, p90, p99, longest: Double

        init(_ samples: [Double]) {
            let sorted = samples.sorted()
            p50 = sorted.quantile(0.5)
            p90 = sorted.quantile(0.9)
            p99 = sorted.quantile(0.99)
            longest = sorted[sorted.count - 1]
        }
    }

    /// The samples of one channel at one size. A sample of goodput has `transferCount` messages, and
    /// a sample of round trips has `roundTripCount`.
    private struct Samples {
        var transferCount = 0
        var roundTripCount = 0
        var goodput: [Double] = []
        var roundTrips: [[Double]] = []

        var roundTripMedians: [Double] { roundTrips.map(\.median) }
    }

    /// Measures all sessions at one size, with interleaved samples; the first session is the plain
    /// link's. The first round is always measured; no other round begins after `deadline`. If
    /// `measuresBlockingThreads` is true, each round also measures two blocking threads in C.
    func measure(
        _ transport: String, _ sessions: [Session], size: Int, until deadline: UInt64,
        measuresBlockingThreads: Bool
    ) async throws -> [Result] {
        var samples: [Samples] = []
        for session in sessions { samples.append(try await calibrate(session, size)) }
        var blocking = BlockingPeers(
            size: size, sampleTime: measuresBlockingThreads ? sampleTime : 0,
            measuresRoundTrips: measuresRoundTrips)
        for round in 0..<rounds where round == 0 || Clock.time < deadline {
            for turn in sessions.indices {
                let index = (round + turn) % sessions.count
                let session = sessions[index]
                let count = samples[index].transferCount
                let time = try await session.transfer(count: count, size: size)
                samples[index].goodput.append(Double(count * size) / time * 1e9)
                guard measuresRoundTrips else { continue }
                samples[index].roundTrips.append(
                    try await session.roundTrips(
                        count: samples[index].roundTripCount, size: size))
            }
            blocking.sample()
        }
        return zip(sessions, samples).map { session, measured in
            let isPlain = session.engine == .plain
            let reference = blocking.samples(comparableTo: session.engine)
            return Result(
                transport: transport, engine: session.engine.name, size: size,
                rounds: measured.goodput.count, goodput: Summary(measured.goodput),
                goodputRatio: isPlain ? nil : Summary(measured.goodput, over: samples[0].goodput),
                goodputRatioToBlocking: reference.goodput.isEmpty
                    ? nil : Summary(measured.goodput, over: reference.goodput),
                roundTrip: measuresRoundTrips
                    ? Percentiles(measured.roundTrips.flatMap { $0 }) : nil,
                roundTripRatio: isPlain || !measuresRoundTrips
                    ? nil : Summary(measured.roundTripMedians, over: samples[0].roundTripMedians),
                roundTripRatioToBlocking: reference.roundTrips.isEmpty
                    ? nil : Summary(measured.roundTripMedians, over: reference.roundTrips))
        }
    }

    /// Finds by trials how many messages one way, and how many round trips, take about
    /// ``sampleTime``. The result has these two numbers, and no samples yet.
    private func calibrate(_ session: Session, _ size: Int) async throws -> Samples {
        var samples = Samples()
        var count = max(1, 4_096 / size)
        while true {
            let time = try await session.transfer(count: count, size: size)
            if time > sampleTime / 8 || count >= 1 << 20 {
                samples.transferCount = max(1, Int(Double(count) * sampleTime / time))
                break
            }
            count *= 4
        }
        guard measuresRoundTrips else { return samples }
        var times = try await session.roundTrips(count: 1, size: size)
        if times[0] < sampleTime / 8 { times = try await session.roundTrips(count: 8, size: size) }
        samples.roundTripCount = max(1, min(1 << 16, Int(sampleTime / times.median)))
        return samples
    }
}
