import Testing

/// Random chains of events, and what `docs/delivery.md` promises after each.
struct DeliveryWorldTests {
    /// Runs `count` chains of 1,000 events each. Returns the sum of their
    /// ``DeliveryWorld/noticedRollbacks``.
    @discardableResult
    private static func run(_ hazards: DeliveryWorld.Hazards, count: UInt64 = 120) -> Int {
        var noticedRollbacks = 0
        for seed in RunSeed.value * 10_000..<RunSeed.value * 10_000 + count {
            var world = DeliveryWorld(seed: seed, hazards)
            do {
                for _ in 0..<1_000 { try world.step() }
                try world.settle()
            } catch {
                Issue.record("chain \(seed): \(error)")
                return noticedRollbacks
            }
            noticedRollbacks += world.noticedRollbacks
        }
        return noticedRollbacks
    }

    @Test("every message arrives once and in order, however often links are lost")
    func links() { Self.run(.init()) }

    @Test("a process that ends at any moment continues from its store")
    func crashes() { Self.run(.init(crashes: true)) }

    @Test(
        "if programs finish, the end of each direction arrives after its messages, and both sides become complete"
    )
    func ends() { Self.run(.init(crashes: true, finishes: true)) }

    @Test("where a state is lost, no message arrives twice, and what may be lost is reported")
    func lostStates() { Self.run(.init(crashes: true, crashesWithoutStore: true)) }

    @Test("a store that was replaced with an older copy is noticed")
    func rollbacks() {
        let noticed = Self.run(.init(crashes: true, rollbacks: true))
        #expect(noticed > 10)
    }

    @Test("stores that are lost or replaced with older copies break no promise")
    func everything() {
        Self.run(.init(crashes: true, crashesWithoutStore: true, rollbacks: true))
    }

    @Test("dropped messages do not arrive, and all others do")
    func drops() { Self.run(.init(crashes: true, finishes: true, drops: true)) }

    @Test(
        "a message that was dropped from an older copy is not reported as dropped if it has arrived"
    )
    func dropsFromCopies() { Self.run(.init(crashes: true, rollbacks: true, drops: true)) }

    @Test("a dropped message does not arrive, even if states are lost")
    func dropsAndLostStates() {
        Self.run(
            .init(crashes: true, crashesWithoutStore: true, rollbacks: true, drops: true))
    }

    @Test("with at-least-once delivery, no message is lost")
    func atLeastOnce() {
        Self.run(.init(crashes: true, crashesWithoutStore: true, resendsUnknown: true))
    }

    @Test("with at-least-once delivery, no message that has arrived is reported as dropped")
    func atLeastOnceWithDrops() {
        Self.run(.init(crashes: true, rollbacks: true, resendsUnknown: true, drops: true))
    }
}
