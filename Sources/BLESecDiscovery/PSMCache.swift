package import BLESecL2CAP

/// A bounded cache with one PSM for each candidate. At the limit, the oldest PSM is dropped.
///
/// The key is the candidate, which includes its tag, since a peer renews its advertised PSM
/// together with the tag.
package struct PSMCache: Sendable {
    private let capacity: Int
    private var known: [Candidate: PSM] = [:]
    /// The candidates, in the order in which their PSMs were set.
    private var order: [Candidate] = []

    /// Makes an empty cache.
    package init(capacity: Int = 64) {
        precondition(capacity > 0, "a cache holds at least one PSM")
        self.capacity = capacity
    }

    /// The cached PSM of a candidate. Setting nil removes the PSM.
    package subscript(candidate: Candidate) -> PSM? {
        get { known[candidate] }
        set {
            order.removeAll { $0 == candidate }
            known[candidate] = newValue
            guard newValue != nil else { return }
            order.append(candidate)
            if order.count > capacity { known[order.removeFirst()] = nil }
        }
    }
}
