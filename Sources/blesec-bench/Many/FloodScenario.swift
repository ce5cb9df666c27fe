internal import BLESec
internal import BLESecChannelCore
internal import BLESecLinks

/// Measures a listener that known peers dial repeatedly, first without and then with a flood of
/// unauthenticated peers. ``KnownPeers/Kind`` says how far the known peers are from the listener.
struct FloodScenario: Sendable {
    /// The length of each measurement, in nanoseconds.
    var sampleTime: UInt64

    /// The number of descriptors that are needed: both ends of each link.
    static let descriptors = 2 * (UnauthenticatedFlood.allCases.map(\.mostLinks).max() ?? 0)

    struct Result: Sendable {
        var engine: String
        /// Channels a second that near known peers opened without a flood.
        var rateAlone: Double
        /// Channels a second that near known peers opened in the flood at full speed.
        var rateInFlood: Double
        /// The fraction of the near known peers' links on which no channel opened, in the flood at
        /// full speed.
        var failedShare: Double
        /// How many links of unauthenticated peers ended each second in the flood at full speed.
        var endedLinkRate: Double
        /// The groups of known peers that dialed during the floods.
        var groups: [Group]

        /// A group of known peers, the flood during which they dialed, and what they achieved.
        struct Group: Sendable {
            var kind: KnownPeers.Kind
            var flood: UnauthenticatedFlood
            var outcome: KnownPeers.Outcome
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
            let serving = Task(executorPreference: loops.acceptor) { await Self.serve(listener) }
            let knownPeers = { KnownPeers($0, address, peers.dialer, loops.dialer) }
            let alone = try await knownPeers(.near).dial(for: sampleTime)
            var groups: [Result.Group] = []
            var endedLinkRate = 0.0
            for flood in UnauthenticatedFlood.allCases {
                let floodPeers = UnauthenticatedPeers(flood, address, messages, floodLoop)
                await floodPeers.start()
                // Gives the unauthenticated peers time to open their links.
                try await floodLoop.sleep(for: .milliseconds(300))
                let (start, before) = (Clock.time, await floodPeers.endedLinks)
                for kind in flood.knownPeers {
                    let outcome = try await knownPeers(kind).dial(for: sampleTime)
                    groups.append(Result.Group(kind: kind, flood: flood, outcome: outcome))
                }
                if flood == .fullSpeed {
                    let ended = Double(await floodPeers.endedLinks - before)
                    endedLinkRate = ended / Double(Clock.time - start) * 1e9
                }
                await floodPeers.end()
            }
            await listener.close()
            await serving.value
            // The flood at full speed is measured first, and the near peers dial first in it.
            let near = groups[0].outcome
            return Result(
                engine: engine, rateAlone: alone.rate, rateInFlood: near.rate,
                failedShare: Double(near.links - near.served) / Double(max(1, near.links)),
                endedLinkRate: endedLinkRate, groups: groups)
        }
        await loops.shutdown()
        await floodLoop.shutdown()
        return result
    }

    /// Accepts channels, and closes each at once, until the listener is closed.
    static func serve(_ listener: SecureListener) async {
        await withDiscardingTaskGroup { group in
            while let channel = try? await listener.accept() {
                group.addTask(executorPreference: listener.loop) { try? await channel.close() }
            }
        }
    }
}
