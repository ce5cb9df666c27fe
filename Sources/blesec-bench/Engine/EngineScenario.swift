internal import BLESecNoise
internal import BLESecPrimitives
internal import BLESecTLSEngine

/// Measures sealing and opening records, with each layer and with a library alone. The library
/// alone is the reference: reports call its time the *limit*, and compare each layer's time with
/// the limit.
struct EngineScenario {
    /// The size in bytes of a buffer for the longest record.
    static let bufferSize = 65_536 + 128

    /// The processor time of one sample, in nanoseconds.
    private static let sampleTime: UInt64 = 2_000_000
    var rounds: Int
    /// The artificial slowdown of this package's layers, as a fraction of their time. Tests of
    /// comparisons set it.
    var slowdown = Slowdown.requested

    /// The cost of one layer for a record of one size.
    struct Result: Sendable {
        var protocolName: String
        var layer: String
        /// The name of the measured library, if this is the reference; otherwise nil.
        var library: String?
        var size: Int
        /// Nanoseconds of processor time for one seal and one open.
        var time: Summary
        /// The time as a multiple of the reference's time, sample by sample.
        var ratio: Summary
    }

    /// Measures all layers of a protocol at one size, with interleaved samples.
    func measure(_ protocolName: String, size: Int) throws -> [Result] {
        let (reference, library, upperLayers) = try layers(protocolName, size)
        let layers =
            [reference]
            + (slowdown == 0 ? upperLayers : upperLayers.map { Slowdown($0, by: slowdown) })
        let repetitions = try layers.map { try calibrate($0, size) }
        var samples = [[Double]](repeating: [], count: layers.count)
        for round in 0..<rounds {
            // The gap is larger than a buffer: a smaller gap could fit into a hole in the heap, and
            // the buffers would not move.
            // A page has 256 multiples of 16. Since 37 is odd, 256 rounds use each of them once.
            let offsetInPage = 16 * (37 * round % 256)
            let gap = 2 * Self.bufferSize + offsetInPage
            for turn in 0..<layers.count {
                let index = (round + turn) % layers.count
                try layers[index].moveBuffers(by: gap)
                try layers[index].sealAndOpen(size, repetitions: 1)
                samples[index].append(try sample(layers[index], size, repetitions[index]))
            }
        }
        return layers.indices.map { index in
            Result(
                protocolName: protocolName, layer: layers[index].name,
                library: index == 0 ? library.rawValue : nil, size: size,
                time: Summary(samples[index]), ratio: Summary(samples[index], over: samples[0]))
        }
    }

    /// The reference, its library, and this package's layers above that library.
    private func layers(
        _ protocolName: String, _ size: Int
    ) throws -> (
        reference: any EngineLayer, library: RawCipher.Library, upperLayers: [any EngineLayer]
    ) {
        guard protocolName != TLSContext.protocolName else {
            let devices = try TLSDevices.shared()
            return (devices.rawTLS, .openSSL, [try TLSEngineLayer(devices)])
        }
        let algorithm = try ProtocolName(protocolName).aead
        let reference = try fastest(algorithm, size: size)
        let upperLayers: [any EngineLayer] = try [
            AEADLayer(algorithm), TransportLayer(protocolName), NoiseEngineLayer(protocolName),
        ]
        return (reference, reference.library, upperLayers)
    }

    /// The cipher of the library that is faster for records of `size` bytes.
    private func fastest(_ algorithm: AEADAlgorithm, size: Int) throws -> RawCipher {
        let candidates = RawCipher.Library.allCases.compactMap { RawCipher(algorithm, $0) }
        let timed = try candidates.map { cipher in
            let repetitions = try calibrate(cipher, size)
            // The shortest time is the one with the least disturbance from other programs.
            let times = try (0..<5).map { _ in try sample(cipher, size, repetitions) }
            return (cipher: cipher, time: times.min() ?? .infinity)
        }
        guard let best = timed.min(by: { $0.time < $1.time }) else {
            throw BenchError.wrongResult("a library with the cipher")
        }
        return best.cipher
    }

    /// The number of repetitions that take ``sampleTime``, by the faster of two trials; at least 16.
    private func calibrate(_ layer: any EngineLayer, _ size: Int) throws -> Int {
        let trialCount = 16
        let first = try sample(layer, size, trialCount)
        let second = try sample(layer, size, trialCount)
        return max(trialCount, Int(Double(Self.sampleTime) / min(first, second)))
    }

    /// Nanoseconds of processor time for one repetition, averaged over all repetitions.
    private func sample(_ layer: any EngineLayer, _ size: Int, _ repetitions: Int) throws -> Double
    {
        let start = Clock.threadTime
        try layer.sealAndOpen(size, repetitions: repetitions)
        return Double(Clock.threadTime - start) / Double(repetitions)
    }
}
