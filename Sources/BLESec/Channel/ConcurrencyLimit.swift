internal import BLESecLocking

/// A limit on how many trust decisions, or calls to a trust store, may be under way at once.
final class ConcurrencyLimit: Sendable {
    /// One place, given back when its last reference is released.
    final class Place: Sendable {
        private let limit: ConcurrencyLimit
        fileprivate init(_ limit: ConcurrencyLimit) { self.limit = limit }
        deinit { limit.freePlaces.withLock { $0 += 1 } }
    }

    private let freePlaces: Locked<Int>
    init(_ count: Int) { freePlaces = Locked(count) }

    /// Takes a place; returns `nil` when all are taken.
    func take() -> Place? {
        freePlaces.withLock { free in
            guard free > 0 else { return nil }
            free -= 1
            return Place(self)
        }
    }
}
