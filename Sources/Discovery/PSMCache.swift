public import L2CAP

/// PSMs that were read over GATT, kept until a dial with one fails. Bounded.
public struct PSMCache: Sendable {
    private let capacity: Int
    private var known: [DeviceAddress: PSM] = [:]
    /// The addresses in the order in which they came.
    private var order: [DeviceAddress] = []

    /// Makes an empty one.
    public init(capacity: Int = 64) {
        precondition(capacity > 0, "a cache holds at least one")
        self.capacity = capacity
    }

    /// The PSM of an address; setting nil forgets it.
    public subscript(address: DeviceAddress) -> PSM? {
        get { known[address] }
        set {
            order.removeAll { $0 == address }
            known[address] = newValue
            guard newValue != nil else { return }
            order.append(address)
            if order.count > capacity { known[order.removeFirst()] = nil }
        }
    }
}
