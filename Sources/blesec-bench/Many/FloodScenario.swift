internal import BLESec
internal import BLESecChannelCore
internal import BLESecLinks

/// Measures a listener that known peers dial repeatedly, first without and then with a flood of
/// unauthenticated peers. ``KnownPeers/Kind`` says how far the known peers are from the listener.
struct FloodScenario: Sendable {
    /// The length of each measurement, in nanoseconds.
    var nanoseconds: UInt64

    /// The number of descriptors that are needed: both ends of each link.
    static let descriptors = 2 * (UnauthenticatedFlood.allCases.map(\.mostLinks).max() ?? 0)

    struct Result: Sendable {
        var engine: String
        /// Channels a second that near known peers opened: without a flood, and in the flood at
        /// full speed.
        var alone: Double
        var flooded: Double
        /// The fraction of the near known peers' links on which no channel opened, in the flood at
        /// full speed.
        var failures: Double
        /// How many links of unauthenticated peers ended each second in the flood at full speed.
        var endedLinkRate: Double
        /// The outcome for each group of known peers, with the flood during which they dialed.
        var outcomes: [Outcome]

        struct Outcome: Sendable {
            var kind: KnownPeers.Kind
            var flood: UnauthenticatedFlood
            var result: KnownPeers.Outcome
        }
    }

    /// Measures the listener. The listener, the known peers and the unauthenticated peers each have
    /// their own loop.
    func measure(_ engine: String, _ peers: PeerConfigurations) async throws -> Result {
        let loops = LoopPair()
        let floodLoop = EventLoop(name: "bench-flood")
        let messages = try await FloodMessages(peers, floodLoop)
        let result = try await SecureListener.withScratch(
            peers.acceptor, loop: loops.acceptor
        ) { listener, address in
            let host = Task(executorPreference: loops.acceptor) { await Self.serve(listener) }
            let knownPeers = { KnownPeers($0, address, peers.dialer, loops.dialer) }
            let alone = try await knownPeers(.near).dial(for: nanoseconds)
            var outcomes: [Result.Outcome] = []
            var endedLinkRate = 0.0
            for flood in UnauthenticatedFlood.allCases {
                let floodPeers = UnauthenticatedPeers(flood, address, messages, floodLoop)
                await floodPeers.start()
                // Gives the unauthenticated peers time to open their links.
                try await floodLoop.sleep(for: .milliseconds(300))
                let (start, before) = (Clock.time, await floodPeers.endedLinks)
                for kind in flood.knownPeers {
                    let outcome = try await knownPeers(kind).dial(for: nanoseconds)
                    outcomes.append(Result.Outcome(kind: kind, flood: flood, result: outcome))
                }
                if flood == .fullSpeed {
                    let ended = Double(await floodPeers.endedLinks - before)
                    endedLinkRate = ended / Double(Clock.time - start) * 1e9
                }
                await floodPeers.end()
            }
            await listener.close()
            await host.value
            // The flood at full speed is measured first, and the near peers dial first in it.
            let near = outcomes[0].result
            return Result(
                engine: engine, alone: alone.rate, flooded: near.rate,
                failures: Double(near.links - near.served) / Double(max(1, near.links)),
                endedLinkRate: endedLinkRate, outcomes: outcomes)
        }
        await loops.shutdown()
        await floodLoop.shutdown()
        return result
    }

    static func serve(_ listener: SecureListener) async {
        await withDiscardingTaskGroup { group in
            while let channel = try? await listener.accept() {
                group.addTask(executorPreference: listener.loop) { try? await channel.close() }
            }
        }
    }
}
