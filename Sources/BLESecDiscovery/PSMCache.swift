package import BLESecL2CAP

/// PSMs that were read over GATT, kept until a dial with one fails. Bounded.
///
/// By candidate, since a peer renews its PSM together with its tag.
package struct PSMCache: Sendable {
    private let capacity: Int
    private var known: [Candidate: PSM] = [:]
    /// The candidates in the order in which they came.
    private var order: [Candidate] = []

    /// Makes an empty one.
    package init(capacity: Int = 64) {
        precondition(capacity > 0, "a cache holds at least one")
        self.capacity = capacity
    }

    /// The PSM of a candidate; setting nil forgets it.
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
