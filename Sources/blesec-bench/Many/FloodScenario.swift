internal import BLESec
internal import BLESecChannelCore
internal import BLESecLinks

/// Friends who dial a listener again and again, near and far, by themselves and among unauthenticated peers who
/// only keep it busy.
struct FloodScenario: Sendable {
    /// How long each crowd is watched, in nanoseconds.
    var window: UInt64

    struct Result: Sendable {
        var engine: String
        /// Channels a second that near friends opened, without unauthenticated peers and among them.
        var alone: Double
        var flooded: Double
        /// Links of near friends that failed among unauthenticated peers, over all their links there.
        var failures: Double
        /// UnauthenticatedPeers a second that were turned away.
        var strangers: Double
        /// How each kind of friends fared, and among whom.
        var friends: [Friends]

        struct Friends: Sendable {
            var kind: FloodFriends.Kind
            var crowd: UnauthenticatedFlood
            var count: FloodFriends.Count
        }
    }

    /// Measures a listener, its friends and the unauthenticated peers on a loop each.
    func measure(_ engine: String, _ peers: PeerConfigurations) async throws -> Result {
        let loops = LoopPair()
        let outside = EventLoop(name: "bench-flood")
        let words = try await FloodMessage(peers, outside)
        let path = "/tmp/blesec-bench-\(UInt64.random(in: 0...UInt64.max)).sock"
        let address = try UnixAddress(path: path, kind: .seqpacket)
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
            // Until all places are taken that they take.
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
