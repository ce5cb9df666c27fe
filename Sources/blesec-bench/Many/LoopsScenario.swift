internal import BLESec
internal import BLESecLinks

/// Measures many channels that are spread over several loops, and as many on one loop. Both ends of
/// a channel are on the same loop.
struct LoopsScenario: Sendable {
    /// The number of loops, each with a thread of its own.
    var loops: Int
    /// The number of samples over all loops; as many samples are taken on one loop.
    var rounds: Int

    /// The number of loops that exist during the measurement: `loops`, and one for comparison.
    private var allLoops: Int { loops + 1 }
    /// The number of descriptors that are needed besides those of the links: two for each loop.
    var descriptors: Int { 2 * allLoops }

    struct Result: Sendable {
        var engine: String
        var link: ChannelGroup.LinkKind
        var channels: Int
        var loops: Int
        /// Channels opened in a second of elapsed time; each loop opens its channels one by one.
        var handshakeRate: Compared
        /// Bytes of messages in a second of elapsed time, on all channels together: with one
        /// message in each send, and with ``ManyScenario/batch`` messages.
        var goodput: Compared
        var batchGoodput: Compared
    }

    /// A figure measured over all loops, and its ratio to the figure of one loop.
    struct Compared: Sendable {
        var median: Double
        /// The figure divided by that of one loop; nil if there is only one loop.
        var ratioToOneLoop: Summary?
    }

    /// The figures of one sample, each for a second of elapsed time.
    private struct Sample {
        var handshakeRate: Double
        var goodput: Double
        var batchGoodput: Double
    }

    /// Measures `count` channels; `count` must not be less than the number of loops.
    func measure(
        _ engine: String, _ peers: PeerConfigurations, channels count: Int,
        _ descriptors: DescriptorBudget
    ) async throws -> Result {
        let kind = ChannelGroup.LinkKind(channels: count, loops: allLoops, descriptors)
        let one = [EventLoop(name: "bench-one")]
        let several = (0..<loops).map { EventLoop(name: "bench-loop-\($0)") }
        var samples: [Sample] = []
        var reference: [Sample] = []
        // Not counted: the first sample takes longer, since code and memory are used for the first
        // time.
        _ = try await sample(min(count, 4 * loops), kind, peers, several)
        for round in 0..<ManyScenario.rounds(rounds, channels: count) {
            // Every second round begins with the single loop, so that no order is preferred.
            if loops > 1, round % 2 == 1 {
                reference.append(try await sample(count, kind, peers, one))
            }
            samples.append(try await sample(count, kind, peers, several))
            if loops > 1, round % 2 == 0 {
                reference.append(try await sample(count, kind, peers, one))
            }
        }
        for loop in one + several { await loop.shutdown() }
        func compared(_ value: (Sample) -> Double) -> Compared {
            let values = samples.map(value)
            return Compared(
                median: values.median,
                ratioToOneLoop: loops > 1 ? Summary(values, over: reference.map(value)) : nil)
        }
        return Result(
            engine: engine, link: kind, channels: count, loops: loops,
            handshakeRate: compared(\.handshakeRate), goodput: compared(\.goodput),
            batchGoodput: compared(\.batchGoodput))
    }

    /// Opens channels, spread over the loops, lets them send, and closes them.
    private func sample(
        _ count: Int, _ kind: ChannelGroup.LinkKind, _ peers: PeerConfigurations,
        _ loops: [EventLoop]
    ) async throws -> Sample {
        let start = Clock.time
        let groups = try await Self.onEach(loops) { index, loop in
            // If the loops cannot have equal shares, the first loops get one channel more.
            let share = (count + loops.count - 1 - index) / loops.count
            return try await ChannelGroup.open(share, kind, peers, loop)
        }
        let handshakeRate = Double(count) / Double(Clock.time - start) * 1e9
        let window = ManyScenario.sampleTime(channels: count)
        func goodput(_ batch: Int) async throws -> Double {
            let start = Clock.time
            let bytes = try await Self.onEach(loops) { index, _ in
                try await groups[index].measureSending(for: window, batch: batch).bytes
            }
            return Double(bytes.reduce(0, +)) / Double(Clock.time - start) * 1e9
        }
        let sample = Sample(
            handshakeRate: handshakeRate, goodput: try await goodput(1),
            batchGoodput: try await goodput(ManyScenario.batch))
        _ = try await Self.onEach(loops) { index, _ in try await groups[index].close() }
        return sample
    }

    /// Runs `body` on all loops at once, and returns its results in the loops' order.
    private static func onEach<Value: Sendable>(
        _ loops: [EventLoop], _ body: @escaping @Sendable (Int, EventLoop) async throws -> Value
    ) async throws -> [Value] {
        let tasks = loops.enumerated().map { index, loop in
            Task(executorPreference: loop) { try await body(index, loop) }
        }
        var values: [Value] = []
        for task in tasks { values.append(try await task.value) }
        return values
    }
}
