internal import BLESec
internal import BLESecLinks
internal import BLESecNoise
internal import CBLESecBench

/// Measures the processor time of a listener's thread for one channel, from accepting the link to
/// closing the link. Known peers, which the listener trusts, open and close channels all the time
/// on another thread.
struct ListenerScenario: Sendable {
    /// The number of samples of each kind.
    var rounds: Int
    /// The length of one sample of blesec, in nanoseconds.
    var sampleTime: UInt64

    struct Result: Sendable {
        var engine: String
        /// The number of known peers; each has one link at a time.
        var dialerCount: Int
        /// Nanoseconds of processor time for a channel.
        var time: Double
        /// The same without blesec: the primitives of the listener's side of the handshake, and the
        /// system calls for the same packets, both from C.
        var limit: Double
        var ratioToLimit: Summary
    }

    /// The number of known peers: so many that neither thread has to wait for the other.
    private static let dialerCount = 16
    /// The number of descriptors that are needed: both ends of each known peer's link.
    static let descriptors = 2 * dialerCount
    /// The numbers of links and of handshakes in one sample of the work in C.
    private static let linksInC = 3_000
    private static let handshakesInC = 800

    /// Measures a Noise protocol whose pattern is XX: the work in C has the packets of three
    /// handshake messages, and half of the handshake's calls of primitives.
    func measure(_ engine: String, _ peers: PeerConfigurations) async throws -> Result {
        let protocolName = try ProtocolName(engine)
        var (times, limits): ([Double], [Double]) = ([], [])
        for _ in 0..<rounds {
            limits.append(try await limit(protocolName))
            times.append(try await sample(peers))
        }
        return Result(
            engine: engine, dialerCount: Self.dialerCount, time: times.median, limit: limits.median,
            ratioToLimit: Summary(times, over: limits))
    }

    private func sample(_ peers: PeerConfigurations) async throws -> Double {
        let loops = LoopPair()
        let (time, served) = try await SecureListener.withScratch(
            peers.acceptor, loop: loops.acceptor
        ) { listener, address in
            let serving = Task(executorPreference: loops.acceptor) {
                await FloodScenario.serve(listener)
            }
            func dial(for window: UInt64) async throws -> KnownPeers.Outcome {
                let kind = KnownPeers.Kind(count: Self.dialerCount, roundTrip: 0...0)
                return try await KnownPeers(kind, address, peers.dialer, loops.dialer).dial(
                    for: window)
            }
            // The first channels take longer, as does the first use of memory.
            _ = try await dial(for: sampleTime / 8)
            let start = await loops.acceptor.run { Clock.threadTime }
            let outcome = try await dial(for: sampleTime)
            let time = await loops.acceptor.run { Clock.threadTime } - start
            await listener.close()
            await serving.value
            return (time, outcome.served)
        }
        await loops.shutdown()
        guard served > 0 else { throw BenchError.failed("every dial to the listener") }
        return Double(time) / Double(served)
    }

    /// Nanoseconds of processor time for a channel without blesec (``Result/limit``). Both sides'
    /// threads are busy meanwhile, as in a sample of blesec, since work on one processor may slow down
    /// another processor.
    private func limit(_ protocolName: ProtocolName) async throws -> Double {
        let loops = LoopPair()
        // In XX, both sides make the same calls of primitives.
        async let dialer = primitives(protocolName, loops.dialer)
        let handshake = try await primitives(protocolName, loops.acceptor)
        _ = try await dialer
        await loops.shutdown()
        let time = blesec_bench_accept(Self.dialerCount, UInt64(Self.linksInC))
        guard time >= 0 else { throw BenchError.failed("the listener in C") }
        return Double(time) / Double(Self.linksInC) + handshake
    }

    /// The processor time that the primitives of one side of a handshake take on the loop's thread.
    private func primitives(
        _ protocolName: ProtocolName, _ loop: EventLoop
    ) async throws -> Double {
        try await loop.run {
            guard let primitives = RawHandshake(protocolName) else {
                throw BenchError.failed("the primitives of \(protocolName)")
            }
            return try primitives.run(Self.handshakesInC) / Double(Self.handshakesInC) / 2
        }
    }
}
