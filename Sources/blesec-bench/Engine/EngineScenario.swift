internal import BLESecNoise
internal import BLESecPrimitives
internal import BLESecTLSEngine

/// Sealing and opening records, layer by layer, beside the libraries themselves.
struct EngineScenario {
    /// What holds the longest record.
    static let bufferSize = 65_536 + 128

    /// A protocol, and its cipher where that is ours to choose.
    struct Suite: Sendable, Equatable {
        /// The cipher of a Noise protocol; nil for TLS.
        let algorithm: AEADAlgorithm?
        let name: String

        /// The suite of a protocol's name.
        init(_ name: String) throws {
            algorithm = name == TLSContext.protocolName ? nil : try ProtocolName(name).aead
            self.name = name
        }
    }

    /// How long one sample computes, in nanoseconds.
    var sampleTime: UInt64 = 2_000_000
    var rounds: Int
    /// Of our layers' time, how much they idle on top, for a test that a comparison sees it.
    var slowdown = Slowdown.wanted

    /// What one layer takes for a record of one size.
    struct Result: Sendable {
        var suite: String
        var layer: String
        /// Which library the limit is of, when this is the limit.
        var library: String?
        var size: Int
        /// Nanoseconds of processor time for one seal and one open.
        var time: Summary
        /// Times the limit, sample by sample.
        var ratio: Summary
    }

    /// Measures all layers at one size, the samples of one after those of another.
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

    /// The limit, the library behind it, and our layers above.
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

    /// The library that is the faster one at that size.
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

    /// How many repetitions fill a sample.
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
