internal import BLESecLocking

/// How many peers a listener's trust policy thinks about at once: by asking a person, or a store.
///
/// Either may take its time, and holds a handshake open meanwhile.
final class TrustDecisionLimiter: Sendable {
    /// One of the places, given back when the last reference goes.
    final class Place: Sendable {
        private let places: TrustDecisionLimiter

        fileprivate init(_ places: TrustDecisionLimiter) { self.places = places }

        deinit { places.free.withLock { $0 += 1 } }
    }

    private let free: Locked<Int>

    init(_ count: Int) { free = Locked(count) }

    /// A place, or `nil` when all are taken.
    func take() -> Place? {
        let isTaken = free.withLock { free in
            guard free > 0 else { return false }
            free -= 1
            return true
        }
        return isTaken ? Place(self) : nil
    }
}
