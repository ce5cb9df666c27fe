internal import BLESecNoise
internal import BLESecPrimitives
internal import BLESecTLSEngine

/// Measures sealing and opening records, for each layer and for the libraries alone.
struct EngineScenario {
    /// The size in bytes of a buffer for the longest record.
    static let bufferSize = 65_536 + 128

    /// A protocol, and its cipher for a Noise protocol.
    struct Suite: Sendable, Equatable {
        /// The cipher of a Noise protocol; nil for TLS.
        let algorithm: AEADAlgorithm?
        let name: String

        /// The suite in a protocol's name.
        init(_ name: String) throws {
            algorithm = name == TLSContext.protocolName ? nil : try ProtocolName(name).aead
            self.name = name
        }
    }

    /// The processor time of one sample, in nanoseconds.
    var sampleTime: UInt64 = 2_000_000
    var rounds: Int
    /// The additional spinning of this package's layers, as a fraction of their time, for testing
    /// comparisons.
    var slowdown = Slowdown.wanted

    /// The cost of one layer for a record of one size.
    struct Result: Sendable {
        var suite: String
        var layer: String
        /// The library of the limit, if this figure is the limit.
        var library: String?
        var size: Int
        /// Nanoseconds of processor time for one seal and one open.
        var time: Summary
        /// Multiples of the limit, one for each sample.
        var ratio: Summary
    }

    /// Measures all layers at one size, with interleaved samples.
    func measure(_ suite: Suite, size: Int) throws -> [Result] {
        let (limit, library, own) = try layers(suite, size)
        let layers = [limit] + (slowdown == 0 ? own : own.map { Slowdown($0, by: slowdown) })
        var repetitions: [Int] = []
        for layer in layers { repetitions.append(try calibrate(layer, size)) }
        var samples = [[Double]](repeating: [], count: layers.count)
        for round in 0..<rounds {
            for turn in 0..<layers.count {
                let index = (round + turn) % layers.count
                samples[index].append(try sample(layers[index], size, repetitions[index]))
            }
        }
        return layers.indices.map { index in
            Result(
                suite: suite.name, layer: layers[index].name,
                library: index == 0 ? library.rawValue : nil, size: size,
                time: Summary(samples[index]),
                ratio: Summary(zip(samples[index], samples[0]).map { $0 / $1 }))
        }
    }

    /// The limit, its library, and this package's layers above.
    private func layers(
        _ suite: Suite, _ size: Int
    ) throws -> (limit: any EngineLayer, library: RawKeys.Library, own: [any EngineLayer]) {
        guard let algorithm = suite.algorithm else {
            let company = try BenchCompany.shared()
            return (company.raw, .openSSL, [try TLSEngineLayer(company)])
        }
        let limit = try fastest(algorithm, size: size)
        return (
            limit, limit.library,
            [
                AEADLayer(algorithm), try TransportLayer(suite.name),
                try NoiseEngineLayer(suite.name),
            ]
        )
    }

    /// The library that is faster for records of `size` bytes.
    private func fastest(_ algorithm: AEADAlgorithm, size: Int) throws -> RawKeys {
        let candidates = RawKeys.Library.allCases.compactMap { RawKeys(algorithm, $0) }
        var best: (keys: RawKeys, time: Double)?
        for keys in candidates {
            let repetitions = try calibrate(keys, size)
            let time = try (0..<3).map { _ in try sample(keys, size, repetitions) }.median
            if time < best?.time ?? .infinity { best = (keys, time) }
        }
        guard let best else { throw BenchError.wrongResult("no library has the cipher") }
        return best.keys
    }

    /// The number of repetitions in a sample.
    private func calibrate(_ layer: any EngineLayer, _ size: Int) throws -> Int {
        let few = 16
        let first = try sample(layer, size, few)
        let second = try sample(layer, size, few)
        return max(few, Int(Double(sampleTime) / min(first, second)))
    }

    private func sample(_ layer: any EngineLayer, _ size: Int, _ repetitions: Int) throws -> Double
    {
        let start = Clock.threadTime
        try layer.sealAndOpen(size, repetitions: repetitions)
        return Double(Clock.threadTime - start) / Double(repetitions)
    }
}
