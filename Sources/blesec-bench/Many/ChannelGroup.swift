internal import BLESec
internal import BLESecLinks
internal import BLESecTesting

/// Open channels on one loop, which runs both ends of each channel. Used on the loop's thread.
final class ChannelGroup: @unchecked Sendable {
    // Sendable because its state is used only on the loop's thread.

    enum LinkKind: String, Sendable {
        /// Pairs of Unix stream sockets; blesec's L2CAP sockets are stream sockets too.
        case unix
        /// Links in memory, if there are too few descriptors for sockets.
        case memory

        /// The kind for a number of channels that are open at once on a number of loops. A channel
        /// has two sockets, and a loop has two descriptors.
        init(channels: Int, loops: Int, _ descriptors: DescriptorBudget) {
            self = descriptors.permits(2 * (channels + loops)) ? .unix : .memory
        }
    }

    /// The length of a message in bytes.
    static let messageSize = 1_024

    private let pairs: [Pair]
    private let loop: EventLoop
    /// The number of messages that each channel has received.
    private(set) var received: [Int]
    /// Whether the next send of each channel is its last.
    private var nextSendIsLast = false

    private init(_ pairs: [Pair], _ loop: EventLoop) {
        self.pairs = pairs
        self.loop = loop
        received = Array(repeating: 0, count: pairs.count)
    }

    /// Opens channels, one after another. Call this on the loop.
    static func open(
        _ count: Int, _ kind: LinkKind, _ peers: PeerConfigurations, _ loop: EventLoop
    ) async throws -> ChannelGroup {
        var pairs: [Pair] = []
        pairs.reserveCapacity(count)
        for _ in 0..<count { pairs.append(try await Pair(kind, peers, loop)) }
        return ChannelGroup(pairs, loop)
    }

    /// Lets every channel send `batch` messages at a time for `window` nanoseconds, and then once
    /// more. When everything is received, returns the bytes of all messages, and the thread's
    /// processor time in nanoseconds.
    func measureSending(for window: UInt64, batch: Int) async throws -> (bytes: Int, time: UInt64) {
        let (before, start) = (received.reduce(0, +), Clock.threadTime)
        try await keepSending(batch) {
            if window > 0 { try await loop.sleep(for: .nanoseconds(Int64(window))) }
        }
        let time = Clock.threadTime - start
        return ((received.reduce(0, +) - before) * Self.messageSize, max(1, time))
    }

    /// Lets every channel send `batch` messages at a time while `body` runs, and then once more.
    /// When everything is received, returns the result of `body`; throws the error of any channel.
    func keepSending<Value>(
        _ batch: Int, while body: () async throws -> Value
    ) async throws -> Value {
        nextSendIsLast = false
        let tasks = pairs.indices.flatMap { index in
            [
                Task(executorPreference: loop) { [self] in
                    try await send(batch, over: pairs[index].dialer)
                },
                Task(executorPreference: loop) { [self] in
                    try await receive(batch, index)
                },
            ]
        }
        let value = try await body()
        nextSendIsLast = true
        for task in tasks { try await task.value }
        return value
    }

    /// The first byte of a message, which marks the last message that a channel sends.
    private enum Mark { static let last: UInt8 = 1, other: UInt8 = 0 }

    private func send(_ batch: Int, over channel: SecureChannel) async throws {
        var message = [UInt8](repeating: 0x5A, count: Self.messageSize)
        message[0] = Mark.other
        let messages = Array(repeating: message, count: batch)
        while !nextSendIsLast { try await Self.send(messages, over: channel) }
        message[0] = Mark.last
        try await Self.send(messages.dropLast() + [message], over: channel)
    }

    private static func send(_ messages: [[UInt8]], over channel: SecureChannel) async throws {
        if messages.count == 1 {
            try await channel.send(messages[0])
        } else {
            try await channel.send(contentsOf: messages)
        }
    }

    private func receive(_ batch: Int, _ index: Int) async throws {
        let channel = pairs[index].acceptor
        var isLast = false
        while !isLast {
            if batch == 1 {
                guard let message = try await channel.receive() else { throw Self.wrongResult }
                received[index] += 1
                isLast = try Self.isLast(message)
            } else {
                guard let messages = try await channel.receive(upTo: batch) else {
                    throw Self.wrongResult
                }
                received[index] += messages.count
                for message in messages { isLast = try Self.isLast(message) }
            }
        }
    }

    private static func isLast(_ message: [UInt8]) throws -> Bool {
        guard message.count == messageSize else { throw wrongResult }
        return message[0] == Mark.last
    }

    private static let wrongResult = BenchError.wrongResult("a channel")

    func close() async throws {
        for pair in pairs { try await pair.close() }
    }
}

extension ChannelGroup {
    /// The two ends of an open channel.
    struct Pair: Sendable {
        let dialer: SecureChannel
        let acceptor: SecureChannel

        init(
            _ kind: ChannelGroup.LinkKind, _ peers: PeerConfigurations, _ loop: EventLoop
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
}
