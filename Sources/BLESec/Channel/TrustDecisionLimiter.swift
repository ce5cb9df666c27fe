internal import BLESecLocking

/// Limits how many peers at a time wait for a trust decision, or for a trust store.
///
/// A decision by a person or a store may take long, and keeps a handshake open meanwhile.
final class TrustDecisionLimiter: Sendable {
    /// One place, given back when its last reference is released.
    final class Place: Sendable {
        private let limiter: TrustDecisionLimiter
        fileprivate init(_ limiter: TrustDecisionLimiter) { self.limiter = limiter }
        deinit { limiter.free.withLock { $0 += 1 } }
    }

    private let free: Locked<Int>
    init(_ count: Int) { free = Locked(count) }

    /// Takes a place; returns `nil` when all are taken.
    func take() -> Place? {
        free.withLock { free in
            guard free > 0 else { return nil }
            free -= 1
            return Place(self)
        }
    }
}
