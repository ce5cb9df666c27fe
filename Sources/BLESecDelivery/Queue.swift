/// A queue that releases each element as soon as it is taken. An `ArraySlice` would keep the taken
/// elements until it is copied.
struct Queue<Element> {
    /// A ring; its size is 0 or a power of two.
    private var slots: [Element?] = []
    /// The index of the first element.
    private var head = 0
    private(set) var count = 0

    /// A queue with at most this many slots keeps its slots when it becomes empty.
    private static var keptSlots: Int { 64 }

    init(_ elements: [Element] = []) { for element in elements { append(element) } }

    var isEmpty: Bool { count == 0 }
    var first: Element? { self[0] }

    /// The element with this index, counted from the first.
    subscript(index: Int) -> Element? { index < count ? slots[slot(index)] : nil }

    /// The elements from the first on.
    var elements: [Element] { (0..<count).compactMap { self[$0] } }

    /// The slot of the element with this index; for the index ``count``, the slot of the element
    /// that is appended next. Call this only if there are slots.
    private func slot(_ index: Int) -> Int { (head + index) & (slots.count - 1) }

    mutating func append(_ element: consuming Element) {
        if count == slots.count { grow() }
        slots[slot(count)] = element
        count += 1
    }

    mutating func popFirst() -> Element? {
        guard !isEmpty else { return nil }
        let element = slots[head].take()
        count -= 1
        head = isEmpty ? 0 : slot(1)
        if isEmpty, slots.count > Self.keptSlots { slots = [] }
        return element
    }

    private mutating func grow() {
        var larger = [Element?](repeating: nil, count: max(4, 2 * count))
        for index in 0..<count { larger[index] = slots[slot(index)].take() }
        (slots, head) = (larger, 0)
    }
}

extension Queue: Sendable where Element: Sendable {}
