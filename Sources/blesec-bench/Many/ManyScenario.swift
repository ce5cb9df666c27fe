internal import BLESec
internal import BLESecLinks

/// Measures many open channels together, with both ends of all channels on one loop.
struct ManyScenario: Sendable {
    /// The number of messages in one send, when several are sent together.
    static let batch = 16

    /// The number of samples of each ratio, unless ``rounds(_:channels:)`` lowers the number.
    var rounds: Int

    struct Result: Sendable {
        var engine: String
        var link: ChannelGroup.LinkKind
        var channels: Int
        /// Channels opened, one after another, in a second of the processor time that both ends
        /// take together.
        var handshakeRate: Double
        /// The cost of idle channels, and of channels that send.
        var idle: Cost
        var busy: Cost
        /// Bytes of messages on all channels in a second of processor time of both ends together,
        /// with one message in each send.
        var goodput: Double
        /// The same with ``batch`` messages in each send.
        var batchGoodput: Double
        /// The two goodputs divided by those of an epoll loop in C; nil if that loop cannot do the same
        /// work.
        var goodputRatioToC: Summary?
        var batchRatioToC: Summary?
        /// The number of the slowest channel's messages divided by the mean of all channels.
        var fairness: Double
    }

    /// The resources that the channels add to the process.
    struct Cost: Sendable {
        private let before: ProcessState
        private let after: ProcessState
        private let ends: Int

        fileprivate init(_ after: ProcessState, since before: ProcessState, channels: Int) {
            (self.before, self.after) = (before, after)
            ends = 2 * channels
        }

        /// Resident bytes that one end adds.
        var memory: Double { Double(after.resident - before.resident) / Double(ends) }
        /// Bytes that one end allocates on the heap.
        var heap: Double { Double(after.heap - before.heap) / Double(ends) }
        /// Descriptors that one end opens.
        var descriptors: Double { Double(after.descriptors - before.descriptors) / Double(ends) }
        /// Threads, memory mappings and locked bytes that all ends together add.
        var threads: Int { max(0, after.threads - before.threads) }
        var maps: Int { after.maps - before.maps }
        var locked: Int { after.locked - before.locked }
    }

    /// The number of samples to take: at most three with more than 1,000 channels, since a sample
    /// can then take seconds.
    static func rounds(_ rounds: Int, channels: Int) -> Int {
        channels > 1_000 ? min(3, rounds) : rounds
    }

    /// The length of a sample in nanoseconds. After this time each channel sends once more, and the
    /// sample ends when everything is received; so even a short sample includes every channel.
    static func sampleTime(channels: Int) -> UInt64 { 50_000_000 + 100_000 * UInt64(channels) }

    /// Opens a number of channels, measures them while they are idle and while they send, and
    /// closes them.
    func measure(
        _ engine: String, _ peers: PeerConfigurations, channels count: Int,
        _ descriptors: DescriptorBudget
    ) async throws -> Result {
        let kind = ChannelGroup.LinkKind(channels: count, loops: 1, descriptors)
        let loop = EventLoop(name: "bench-many")
        let (group, opened) = try await Task(executorPreference: loop) {
            try await open(kind, peers, channels: count, loop)
        }.value
        let busy = try await Task(executorPreference: loop) {
            try await measureBusy(group, channels: count, loop)
        }.value
        // The epoll loop in C supports only sockets and ChaCha20-Poly1305.
        let isComparable = kind == .unix && engine.contains("_ChaChaPoly_")
        let single =
            isComparable
            ? try await compare(group, batch: 1, channels: count, loop, withC: true) : nil
        let batched = try await compare(
            group, batch: Self.batch, channels: count, loop, withC: isComparable)
        try await Task(executorPreference: loop) { try await group.close() }.value
        await loop.shutdown()
        let messages = busy.messages.reduce(0, +)
        return Result(
            engine: engine, link: kind, channels: count,
            handshakeRate: Double(count) / Double(opened.time) * 1e9,
            idle: Cost(opened.idle, since: opened.before, channels: count),
            busy: Cost(busy.state, since: opened.before, channels: count),
            goodput: Double(messages * ChannelGroup.messageSize) / Double(busy.time) * 1e9,
            batchGoodput: batched.goodput.median, goodputRatioToC: single?.ratioToC,
            batchRatioToC: batched.ratioToC,
            fairness: Double(busy.messages.min() ?? 0) * Double(count) / Double(max(1, messages)))
    }

    private struct Opening: Sendable {
        /// The process's state without channels, and with idle channels.
        var before: ProcessState
        var idle: ProcessState
        /// The thread's processor time for the handshakes, in nanoseconds.
        var time: UInt64
    }

    private func open(
        _ kind: ChannelGroup.LinkKind, _ peers: PeerConfigurations, channels count: Int,
        _ loop: EventLoop
    ) async throws -> (ChannelGroup, Opening) {
        // Opens one channel before the measurement, since a process's first channel allocates
        // memory that remains.
        try await ChannelGroup.Pair(kind, peers, loop).close()
        let before = ProcessState.now
        let start = Clock.threadTime
        let group = try await ChannelGroup.open(count, kind, peers, loop)
        let time = Clock.threadTime - start
        try await loop.sleep(for: .milliseconds(100))
        return (group, Opening(before: before, idle: ProcessState.now, time: time))
    }

    /// Returns the number of each channel's messages in a window of time, the thread's processor
    /// time for them in nanoseconds, and the process's state halfway through the window.
    private func measureBusy(
        _ group: ChannelGroup, channels count: Int, _ loop: EventLoop
    ) async throws -> (messages: [Int], time: UInt64, state: ProcessState) {
        // In nanoseconds. The more channels there are, the longer it takes until each has sent.
        let window = min(2_000_000_000, 250_000_000 + 2_000_000 * UInt64(count))
        return try await group.keepSending(1) {
            // Gives every channel time to begin.
            try await loop.sleep(for: .nanoseconds(Int64(window / 8)))
            let (startCounts, startTime) = (group.received, Clock.threadTime)
            try await loop.sleep(for: .nanoseconds(Int64(window / 2)))
            // The processor time for reading the state is left out.
            let (pauseCounts, pauseTime) = (group.received, Clock.threadTime)
            let state = ProcessState.now
            let (resumeCounts, resumeTime) = (group.received, Clock.threadTime)
            try await loop.sleep(for: .nanoseconds(Int64(window / 2)))
            let (endCounts, endTime) = (group.received, Clock.threadTime)
            let messages = group.received.indices.map {
                pauseCounts[$0] - startCounts[$0] + endCounts[$0] - resumeCounts[$0]
            }
            return (messages, pauseTime - startTime + endTime - resumeTime, state)
        }
    }

    /// Measures the goodput with `batch` messages in each send and, if `comparesWithC`, that of the
    /// epoll loop in C, with interleaved samples.
    private func compare(
        _ group: ChannelGroup, batch: Int, channels count: Int, _ loop: EventLoop,
        withC comparesWithC: Bool
    ) async throws -> (goodput: Summary, ratioToC: Summary?) {
        let window = Self.sampleTime(channels: count)
        func sample(_ window: UInt64) async throws -> Double {
            let load = try await Task(executorPreference: loop) {
                try await group.measureSending(for: window, batch: batch)
            }.value
            return Double(load.bytes) / Double(load.time) * 1e9
        }
        func sampleC() throws -> Double {
            try EpollPeers.measure(
                channels: count, size: ChannelGroup.messageSize, batch: batch,
                nanoseconds: window
            ).goodput
        }
        // Each channel sends once before the samples, since the first use of memory takes longer.
        _ = try await sample(0)
        var samples: [Double] = []
        var reference: [Double] = []
        for round in 0..<Self.rounds(rounds, channels: count) {
            if comparesWithC, round % 2 == 1 { reference.append(try sampleC()) }
            samples.append(try await sample(window))
            if comparesWithC, round % 2 == 0 { reference.append(try sampleC()) }
        }
        return (Summary(samples), comparesWithC ? Summary(samples, over: reference) : nil)
    }
}
