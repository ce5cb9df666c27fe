internal import BLESec
internal import BLESecLinks
internal import BLESecTesting

/// Peers that the listener trusts. Each of them opens and closes one channel after another, with up
/// to two tries for each channel.
actor KnownPeers {
    /// A group of known peers: their number, and their distance from the listener.
    struct Kind: Sendable, Equatable {
        let count: Int
        /// The simulated round trip in milliseconds, a random value in this range for each link.
        /// The dialer's bytes are delayed by this time, and the listener's are not delayed.
        let roundTrip: ClosedRange<Int>

        static let near = Kind(count: 4, roundTrip: 0...0)
        static let far = Kind(count: 16, roundTrip: 10...10)
        static let overRadio = Kind(count: 64, roundTrip: 100...500)
    }

    /// The outcome of the dials of a group.
    struct Outcome: Sendable {
        var dials = 0
        /// The dials that opened a channel with the first or the second link.
        var served = 0
        /// The dials that opened a channel with the first link.
        var servedAtOnce = 0
        /// The links that were dialed: one or two for each dial.
        var links = 0
        /// Channels opened a second.
        var rate = 0.0

        var servedShare: Double { Double(served) / Double(max(1, dials)) }
        var servedAtOnceShare: Double { Double(servedAtOnce) / Double(max(1, dials)) }
    }

    private let kind: Kind
    private let address: UnixAddress
    private let configuration: ChannelConfiguration
    private let loop: EventLoop
    private var outcome = Outcome()
    /// Whether the time for dials is over, so that no dial begins any more.
    private var isOver = false

    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

    init(
        _ kind: Kind, _ address: UnixAddress, _ configuration: ChannelConfiguration,
        _ loop: EventLoop
    ) {
        self.kind = kind
        self.address = address
        self.configuration = configuration
        self.loop = loop
    }

    /// Dials for `window` nanoseconds, waits until the dials that have begun are over, and returns
    /// the outcome.
    func dial(for window: UInt64) async throws -> Outcome {
        let tasks = (0..<kind.count).map { _ in
            Task(executorPreference: loop) { [self] in while await !isOver { await dialOnce() } }
        }
        let start = Clock.time
        try await loop.sleep(for: .nanoseconds(Int64(window)))
        outcome.rate = Double(outcome.served) / Double(Clock.time - start) * 1e9
        isOver = true
        for task in tasks { await task.value }
        return outcome
    }

    /// Dials as an application does: if the first link gets no channel, a second link follows after
    /// 100 to 500 ms.
    private func dialOnce() async {
        var channel = await openChannel()
        let isServedAtOnce = channel != nil
        if channel == nil {
            try? await loop.sleep(for: .milliseconds(Int.random(in: 100...500)))
            channel = await openChannel()
        }
        outcome.dials += 1
        if channel != nil { outcome.served += 1 }
        if isServedAtOnce { outcome.servedAtOnce += 1 }
        try? await channel?.close()
    }

    private func openChannel() async -> SecureChannel? {
        outcome.links += 1
        let deadline = loop.now.advanced(by: configuration.timeouts.connect)
        guard let socket = try? await SocketLink.dial(address, deadline: deadline, loop: loop)
        else {
            return nil
        }
        let roundTrip = Int.random(in: kind.roundTrip)
        let link: any Link =
            roundTrip == 0 ? socket : FaultyLink(socket, [.delay(.milliseconds(roundTrip))])
        return try? await SecureChannel.open(
            over: link, role: .dialer, configuration: configuration)
    }
}
