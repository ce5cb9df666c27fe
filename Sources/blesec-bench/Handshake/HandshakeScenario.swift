/// Measures handshakes in memory, and the same work done from C: the primitives of a Noise
/// handshake, or a handshake of OpenSSL alone.
struct HandshakeScenario {
    /// The processor time of one sample, in nanoseconds.
    private static let sampleTime = 3_000_000.0
    var rounds: Int

    struct Result: Sendable {
        var name: String
        /// Nanoseconds of processor time of each side for one handshake.
        var time: BothSides<Summary>
        var flights: BothSides<Int>
        var bytes: BothSides<Int>
        /// The cost of the same work done from C, if that is measured.
        var limit: Limit?
    }

    /// The cost of the same work done from C.
    struct Limit: Sendable {
        /// The number of calls of each primitive, if the limit is made of primitives.
        var calls: HandshakeCalls.Counts?
        /// Nanoseconds of processor time of both sides together for one handshake.
        var time: Summary
        /// Both sides' time as a multiple of the limit, sample by sample.
        var ratio: Summary
    }

    /// Measures one kind of handshake; its samples alternate with samples of its limit.
    func measure(_ subject: any HandshakeSubject) throws -> Result {
        let limit = subject.limit
        let count = try calibrate { try subject.run($0).time.sum }
        let repetitions = try limit.map { limit in try calibrate(limit.run) }
        var samples: [HandshakeSample] = []
        var limits: [Double] = []
        func takeSample() throws { samples.append(try subject.run(count)) }
        for round in 0..<rounds {
            let precedesLimit = round.isMultiple(of: 2)
            if precedesLimit { try takeSample() }
            if let limit, let repetitions {
                limits.append(try limit.run(repetitions) / Double(repetitions))
            }
            if !precedesLimit { try takeSample() }
        }
        /// The time of one handshake in each sample.
        func times(_ time: (BothSides<Double>) -> Double) -> [Double] {
            samples.map { time($0.time) / Double(count) }
        }
        return Result(
            name: subject.name,
            time: BothSides(
                dialer: Summary(times(\.dialer)), acceptor: Summary(times(\.acceptor))),
            flights: samples[0].flights, bytes: samples[0].bytes,
            limit: limit.map {
                Limit(
                    calls: $0.counts, time: Summary(limits),
                    ratio: Summary(times(\.sum), over: limits))
            })
    }

    /// The number of handshakes in a sample, found after some warm-up handshakes.
    private func calibrate(_ run: (Int) throws -> Double) throws -> Int {
        let trialCount = 2
        let first = try run(trialCount)
        let second = try run(trialCount)
        return max(trialCount, Int(Double(trialCount) * Self.sampleTime / min(first, second)))
    }
}

extension BothSides<Double> {
    fileprivate var sum: Double { dialer + acceptor }
}
