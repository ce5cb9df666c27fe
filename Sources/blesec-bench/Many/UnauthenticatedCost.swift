internal import BLESec
internal import BLESecLinks

/// The cost of one unauthenticated peer for a listener, including the peer's own end of the link.
struct UnauthenticatedCost: Sendable {
    var engine: String
    /// Bytes of resident memory for a peer that sends nothing, a peer whose first message was
    /// answered, and a peer that leaves the longest message unfinished.
    var bytesOfSilentPeer = 0.0
    var bytesOfAnsweredPeer = 0.0
    var bytesOfUnfinishedMessage = 0.0
    /// Processor time of the listener's thread, in nanoseconds, from accepting the link to the
    /// answer.
    var processorTime = 0.0

    /// The number of peers, below the default limit of 256 handshakes under way.
    private static let count = 200
    /// The number of descriptors that are needed: both ends of each peer's link.
    static let descriptors = 2 * count

    static func measure(_ engine: String, _ peers: PeerConfigurations) async throws
        -> UnauthenticatedCost
    {
        let (loop, floodLoop) = (EventLoop(name: "bench-host"), EventLoop(name: "bench-flood"))
        let messages = try await FloodMessages(peers, floodLoop)
        var cost = UnauthenticatedCost(engine: engine)
        func costAfterWarmUp(_ bytes: [UInt8]) async throws -> (memory: Double, time: Double) {
            // Drops the first result: the first peers make the process load code and data.
            _ = try await Self.costPerPeer(bytes, peers, loop, floodLoop)
            return try await Self.costPerPeer(bytes, peers, loop, floodLoop)
        }
        cost.bytesOfSilentPeer = try await costAfterWarmUp([]).memory
        (cost.bytesOfAnsweredPeer, cost.processorTime) =
            try await costAfterWarmUp(messages.firstFlight)
        cost.bytesOfUnfinishedMessage = try await costAfterWarmUp(messages.unfinished).memory
        await loop.shutdown()
        await floodLoop.shutdown()
        return cost
    }

    /// The memory in bytes, and the processor time of the listener's thread in nanoseconds, for
    /// each of ``count`` peers that send the given bytes and stay.
    private static func costPerPeer(
        _ bytes: [UInt8], _ peers: PeerConfigurations, _ loop: EventLoop, _ floodLoop: EventLoop
    ) async throws -> (memory: Double, time: Double) {
        try await SecureListener.withScratch(peers.acceptor, loop: loop) { _, address in
            let (before, start) = (ProcessState.now, await time(of: loop))
            var links: [SocketLink] = []
            for _ in 0..<count {
                let link = try await SocketLink.dial(address, loop: floodLoop)
                if !bytes.isEmpty { _ = try await floodLoop.run { try link.send(bytes.span) } }
                links.append(link)
            }
            try await floodLoop.sleep(for: .milliseconds(100))
            let time = await time(of: loop) - start
            let memory = ProcessState.now.resident - before.resident
            for link in links { await floodLoop.run { link.close() } }
            return (memory: Double(memory) / Double(count), time: Double(time) / Double(count))
        }
    }

    private static func time(of loop: EventLoop) async -> UInt64 {
        await loop.run { Clock.threadTime }
    }
}
