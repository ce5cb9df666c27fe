import BLESecDelivery
import BLESecPrimitives
import FoundationEssentials

/// Two endpoints with one link between them. Both endpoints are used as if they had stores:
/// ``commit()`` reports all changes as committed, but keeps none of them.
struct EndpointPair {
    var sides: [DeliveryEndpoint]
    var generator: SeededGenerator

    init(seed: UInt64 = 1, limits: DeliveryEndpoint.Limits = DeliveryEndpoint.Limits()) {
        generator = SeededGenerator(seed: seed)
        sides = []
        for _ in 0..<2 {
            sides.append(DeliveryEndpoint(limits: limits, using: &generator))
        }
        commit()
    }

    mutating func commit() {
        for side in 0...1 {
            while sides[side].takeChanges() != nil { sides[side].didCommit() }
        }
    }

    mutating func connect() { for side in 0...1 { sides[side].linkBegan() } }

    /// Passes records both ways until no side has one, and then commits. After that commit, a side
    /// may have a record again, which the next call passes.
    mutating func exchange() throws(DeliveryError) {
        var isMoving = true
        while isMoving {
            isMoving = false
            for side in 0...1 {
                while let record = sides[side].nextRecord(atMost: 1_000) {
                    isMoving = true
                    try sides[1 - side].receive(record, using: &generator)
                    commit()
                }
            }
            commit()
        }
    }
}

/// The seed of this run's random chains of events: a fixed value, unless `BLESEC_SEED` sets
/// another.
enum RunSeed {
    static let value: UInt64 = {
        let chosen = ProcessInfo.processInfo.environment["BLESEC_SEED"].flatMap { UInt64($0) }
        // Limited, so that the tests can multiply it and add to it without an overflow.
        let seed = (chosen ?? 1) % 1_000_000_000
        print("EndpointTests: chains from seed \(seed); BLESEC_SEED=N sets another")
        return seed
    }()
}
