internal import BLESec
internal import BLESecLinks

/// Measures many open channels together, with both ends of all channels on one loop.
struct ManyScenario: Sendable {
    static let messageSize = 1_024

    enum LinkKind: String, Sendable {
        /// Byte streams, like L2CAP's sockets.
        case unix
        /// Memory, if there are too few descriptors for sockets.
        case memory
    }

    struct Result: Sendable {
        var engine: String
        var link: LinkKind
        var channels: Int
        /// Channels opened in a second of processor time of both ends together, one after another.
        var handshakes: Double
        var idle: Cost
        var busy: Cost
        /// Bytes of messages on all channels in a second of processor time of both ends together.
        var goodput: Double
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

        /// Bytes that one end adds: resident, and allocated on the heap.
        var memory: Double { Double(after.resident - before.resident) / Double(ends) }
        var heap: Double { Double(after.heap - before.heap) / Double(ends) }
        var descriptors: Double { Double(after.descriptors - before.descriptors) / Double(ends) }
        /// The additions of all ends together.
        var threads: Int { max(0, after.threads - before.threads) }
        var maps: Int { after.maps - before.maps }
        var locked: Int { after.locked - before.locked }
    }

    /// Opens a number of channels, measures them while they are idle and while they send, and
    /// closes them.
    func measure(
        _ engine: String, _ peers: PeerConfigurations, channels count: Int, descriptorLimit: Int
    ) async throws -> Result {
        // 64 descriptors remain for other files.
        let kind: LinkKind = 2 * count + 64 <= descriptorLimit ? .unix : .memory
        let loop = EventLoop(name: "bench-many")
        // How long the channels send, in nanoseconds: more channels need more time until each has
        // sent.
        let window = min(2_000_000_000, 250_000_000 + 2_000_000 * UInt64(count))
        let result = try await Task(executorPreference: loop) {
            // One channel before the measurement, since a process's first channel allocates memory
            // that remains.
            try await Pair(kind, peers, loop).close()
            let before = ProcessState.now
            let start = Clock.threadTime
            var pairs: [Pair] = []
            for _ in 0..<count { pairs.append(try await Pair(kind, peers, loop)) }
            let opened = Double(Clock.threadTime - start)
            try await loop.sleep(for: .milliseconds(100))
            let idle = Cost(ProcessState.now, since: before, channels: count)
            let sending = SendingChannels(pairs, loop)
            let load = try await sending.work(for: window)
            let busy = Cost(load.state, since: before, channels: count)
            try await sending.close()
            let messages = load.messages.reduce(0, +)
            return Result(
                engine: engine, link: kind, channels: count,
                handshakes: Double(count) / opened * 1e9, idle: idle, busy: busy,
                goodput: Double(messages * Self.messageSize) / Double(load.time) * 1e9,
                fairness: Double(load.messages.min() ?? 0) * Double(count)
                    / Double(max(1, messages)))
        }.value
        await loop.shutdown()
        return result
    }
}

private struct Pair: Sendable {
    let dialer: SecureChannel
    let acceptor: SecureChannel

    init(
        _ kind: ManyScenario.LinkKind, _ peers: PeerConfigurations, _ loop: EventLoop
    ) async throws {
        let links: (any Link, any Link) =
            switch kind {
            case .unix: try await SocketLink.pair(.stream, loop: loop)
            case .memory: MemoryLink.pair(loop: loop, capacity: 16 << 10)
            }
        async let dialed = SecureChannel.open(
            over: links.0, role: .dialer, configuration: peers.dialer)
        async let accepted = SecureChannel.open(
            over: links.1, role: .acceptor, configuration: peers.acceptor)
        dialer = try await dialed
        acceptor = try await accepted
    }

    func close() async throws {
        async let other: Void = acceptor.close()
        try await dialer.close()
        try await other
    }
}

/// Channels that all send during the same time. Used on the loop's thread.
private final class SendingChannels: @unchecked Sendable {
    // Sendable because its state is used only on the loop's thread.

    private let pairs: [Pair]
    private let loop: EventLoop
    private var received: [Int]
    private var isOver = false
    private var tasks: [Task<Void, any Error>] = []

    init(_ pairs: [Pair], _ loop: EventLoop) {
        self.pairs = pairs
        self.loop = loop
        received = Array(repeating: 0, count: pairs.count)
    }

    /// Lets every channel send until ``close()``. Returns the number of each channel's messages in
    /// `window` nanoseconds, the thread's processor time for them, and the process's state halfway.
    func work(
        for window: UInt64
    ) async throws -> (messages: [Int], time: UInt64, state: ProcessState) {
        let message = [UInt8](repeating: 0x5A, count: ManyScenario.messageSize)
        for index in pairs.indices {
            let pair = pairs[index]
            tasks.append(
                Task(executorPreference: loop) { [self] in
                    while !isOver { try await pair.dialer.send(message) }
                    try await pair.dialer.close()
                })
            tasks.append(
                Task(executorPreference: loop) { [self] in
                    while try await pair.acceptor.receive() != nil { received[index] += 1 }
                    try await pair.acceptor.close()
                })
        }
        // Gives every channel time to begin.
        try await loop.sleep(for: .nanoseconds(Int64(window / 8)))
        let (startCounts, startTime) = (received, Clock.threadTime)
        try await loop.sleep(for: .nanoseconds(Int64(window / 2)))
        let (pauseCounts, pauseTime) = (received, Clock.threadTime)
        let state = ProcessState.now
        let (resumeCounts, resumeTime) = (received, Clock.threadTime)
        try await loop.sleep(for: .nanoseconds(Int64(window / 2)))
        let (endCounts, endTime) = (received, Clock.threadTime)
        let messages = pairs.indices.map {
            pauseCounts[$0] - startCounts[$0] + endCounts[$0] - resumeCounts[$0]
        }
        return (messages, pauseTime - startTime + endTime - resumeTime, state)
    }

    /// Ends all channels; throws the error of any channel.
    func close() async throws {
        isOver = true
        for task in tasks { try await task.value }
    }
}
