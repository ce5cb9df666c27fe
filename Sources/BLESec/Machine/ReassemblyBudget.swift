internal import Locking

/// What all incomplete messages of a process may take together.
final class ReassemblyBudget: Sendable {
    /// The process's own: 256 MiB, sixteen messages of the default maximum.
    static let shared = ReassemblyBudget(bytes: 256 << 20)

    private let left: Locked<Int>

    init(bytes: Int) { left = Locked(bytes) }

    func take(_ count: Int) -> Bool {
        left.withLock { left in
            guard left >= count else { return false }
            left -= count
            return true
        }
    }

    func give(_ count: Int) {
        guard count > 0 else { return }
        left.withLock { $0 += count }
    }
}
