/// A queue that releases each element as soon as it is taken. An `ArraySlice` would keep the taken
/// elements until it is copied.
struct Queue<Element> {
    private var slots: [Element?] = []
    /// The index of the first element; the slots before it are empty.
    private var head = 0

    init(_ elements: [Element] = []) { slots = elements }

    var count: Int { slots.count - head }
    var isEmpty: Bool { count == 0 }
    var first: Element? { isEmpty ? nil : slots[head] }

    /// The element with this index, counted from the first.
    subscript(index: Int) -> Element? { index < count ? slots[head + index] : nil }

    mutating func append(_ element: Element) { slots.append(element) }

    mutating func popFirst() -> Element? {
        guard !isEmpty else { return nil }
        let element = slots[head].take()
        head += 1
        if head == slots.count {
            slots.removeAll(keepingCapacity: slots.count <= Self.keptSlots)
            head = 0
        } else if head >= Self.keptSlots, 2 * head >= slots.count {
            slots.removeFirst(head)
            head = 0
        }
        return element
    }

    /// The elements from the first on.
    var elements: [Element] { slots[head...].compactMap { $0 } }

    private static var keptSlots: Int { 64 }
}

extension Queue: Sendable where Element: Sendable {}
