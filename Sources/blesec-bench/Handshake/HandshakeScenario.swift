/// Measures handshakes in memory, and the same work done from C: the primitives of a Noise
/// handshake, or a handshake of OpenSSL alone.
struct HandshakeScenario {
    /// The processor time of one sample, in nanoseconds.
    private static let sampleTime = 3_000_000.0
    /// How many samples are taken.
    var rounds: Int

    struct Result: Sendable {
        var name: String
        /// Nanoseconds of processor time of each side for one handshake.
        var time: BothSides<Summary>
        var flights: BothSides<Int>
        var bytes: BothSides<Int>
        /// The cost of the same work done from C, if that is measured.
        var reference: Reference?
    }

    /// The cost of the same work done from C. Reports call its time the limit.
    struct Reference: Sendable {
        /// The number of calls of each primitive, if the work is made of primitives.
        var calls: HandshakeCalls.Counts?
        /// Nanoseconds of processor time of both sides together for one handshake.
        var time: Summary
        /// Both sides' time as a multiple of the reference's time, sample by sample.
        var ratio: Summary
    }

    /// Measures one kind of handshake; its samples alternate with samples of its reference.
    func measure(_ subject: any HandshakeSubject) throws -> Result {
        let reference = subject.reference
        let handshakesPerSample = try calibrate { try subject.run($0).time.sum }
        let repetitionsPerSample = try reference.map { try calibrate($0.run) }
        var samples: [HandshakeSample] = []
        var referenceTimes: [Double] = []
        func takeSample() throws { samples.append(try subject.run(handshakesPerSample)) }
        for round in 0..<rounds {
            let precedesReference = round.isMultiple(of: 2)
            if precedesReference { try takeSample() }
            if let reference, let repetitionsPerSample {
                let time = try reference.run(repetitionsPerSample)
                referenceTimes.append(time / Double(repetitionsPerSample))
            }
            if !precedesReference { try takeSample() }
        }
        /// The time of one handshake in each sample.
        func times(_ time: (BothSides<Double>) -> Double) -> [Double] {
            samples.map { time($0.time) / Double(handshakesPerSample) }
        }
        return Result(
            name: subject.name,
            time: BothSides(
                dialer: Summary(times(\.dialer)), acceptor: Summary(times(\.acceptor))),
            flights: samples[0].flights, bytes: samples[0].bytes,
            reference: reference.map {
                Reference(
                    calls: $0.counts, time: Summary(referenceTimes),
                    ratio: Summary(times(\.sum), over: referenceTimes))
            })
    }

    /// The number of handshakes that take ``sampleTime``, by the faster of two trials; at least 2.
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
