internal import BLESec
internal import BLESecChannelCore
internal import BLESecLinks

/// Measures a listener that known peers dial repeatedly, near and far, without and with a flood of
/// unauthenticated peers. The code calls known peers friends.
struct FloodScenario: Sendable {
    /// The length of each measurement, in nanoseconds.
    var window: UInt64

    struct Result: Sendable {
        var engine: String
        /// Channels a second that near friends opened, without and with unauthenticated peers.
        var alone: Double
        var flooded: Double
        /// The fraction of near friends' links that failed during the flood.
        var failures: Double
        /// Links of unauthenticated peers that were refused, a second.
        var strangers: Double
        /// The outcome for each group of friends, with the flood that they met.
        var friends: [Friends]

        struct Friends: Sendable {
            var kind: FloodFriends.Kind
            var crowd: UnauthenticatedFlood
            var count: FloodFriends.Count
        }
    }

    /// Measures the listener, its friends and the unauthenticated peers, each on its own loop.
    func measure(_ engine: String, _ peers: PeerConfigurations) async throws -> Result {
        let loops = LoopPair()
        let outside = EventLoop(name: "bench-flood")
        let words = try await FloodMessage(peers, outside)
        let address = try UnixAddress.scratch(.seqpacket)
        let listener = try await SecureListener.listen(
            on: Endpoint(address), configuration: peers.acceptor, loop: loops.acceptor)
        let host = Task(executorPreference: loops.acceptor) { await Self.serve(listener) }
        let friends = { FloodFriends($0, address, peers.dialer, loops.dialer) }
        let alone = try await friends(.near).watch(for: window)
        var among: [Result.Friends] = []
        var turnedAway = 0.0
        for crowd in [UnauthenticatedFlood.fullSpeed, .lowEnergy] {
            let strangers = UnauthenticatedPeers(crowd, address, words, outside)
            await strangers.come()
            // Waits until the unauthenticated peers have taken their places.
            try await outside.sleep(for: .milliseconds(300))
            let (start, before) = (Clock.time, await strangers.count)
            for kind in crowd.friends {
                let count = try await friends(kind).watch(for: window)
                among.append(Result.Friends(kind: kind, crowd: crowd, count: count))
            }
            if crowd == .fullSpeed {
                turnedAway =
                    Double(await strangers.count - before) / Double(Clock.time - start) * 1e9
            }
            await strangers.end()
        }
        await listener.close()
        await host.value
        await loops.shutdown()
        await outside.shutdown()
        let near = among[0].count
        return Result(
            engine: engine, alone: alone.rate, flooded: near.rate,
            failures: Double(near.links - near.served) / Double(max(1, near.links)),
            strangers: turnedAway, friends: among)
    }

    static func serve(_ listener: SecureListener) async {
        await withTaskGroup(of: Void.self) { group in
            while let channel = try? await listener.accept() {
                group.addTask(executorPreference: listener.loop) { try? await channel.close() }
            }
        }
    }
}
