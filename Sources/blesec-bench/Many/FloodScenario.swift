internal import BLESec
internal import BLESecChannelCore
internal import BLESecLinks

/// Measures a listener that known peers dial repeatedly, near and far, without and with a flood of
/// unauthenticated peers. In names, `friends` are known peers and `strangers` unauthenticated peers.
struct FloodScenario: Sendable {
    /// The length of each measurement, in nanoseconds.
    var window: UInt64

    struct Result: Sendable {
        var engine: String
        /// Channels a second that near known peers opened, without and with the flood.
        var alone: Double
        var flooded: Double
        /// The fraction of near known peers' links that got no channel during the flood.
        var failures: Double
        /// Links of unauthenticated peers that ended, a second, during the flood at full speed.
        var strangers: Double
        /// The outcome for each group of known peers, with the flood during which they dialed.
        var friends: [Friends]

        struct Friends: Sendable {
            var kind: FloodFriends.Kind
            var crowd: UnauthenticatedFlood
            var count: FloodFriends.Count
        }
    }

    /// Measures the listener. The listener, the known peers and the unauthenticated peers each have
    /// their own loop.
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
        var endedRate = 0.0
        for flood in [UnauthenticatedFlood.fullSpeed, .lowEnergy] {
            let attackers = UnauthenticatedPeers(flood, address, words, outside)
            await attackers.come()
            // Waits until the unauthenticated peers have opened their links.
            try await outside.sleep(for: .milliseconds(300))
            let (start, before) = (Clock.time, await attackers.count)
            for kind in flood.friends {
                let count = try await friends(kind).watch(for: window)
                among.append(Result.Friends(kind: kind, crowd: flood, count: count))
            }
            if flood == .fullSpeed {
                endedRate =
                    Double(await attackers.count - before) / Double(Clock.time - start) * 1e9
            }
            await attackers.end()
        }
        await listener.close()
        await host.value
        await loops.shutdown()
        await outside.shutdown()
        let near = among[0].count
        return Result(
            engine: engine, alone: alone.rate, flooded: near.rate,
            failures: Double(near.links - near.served) / Double(max(1, near.links)),
            strangers: endedRate, friends: among)
    }

    static func serve(_ listener: SecureListener) async {
        await withTaskGroup(of: Void.self) { group in
            while let channel = try? await listener.accept() {
                group.addTask(executorPreference: listener.loop) { try? await channel.close() }
            }
        }
    }
}
