/// One piece of work in the queue of an event loop.
enum LoopWork: Sendable {
    /// A job of a task, from the Swift runtime.
    case job(UnownedJob)
    /// A closure from ``EventLoop/execute(_:)``.
    case call(@Sendable () -> Void)
}

/// A first-in-first-out queue that reuses its memory.
struct JobQueue: Sendable {
    /// A ring whose size is a power of two, so that a mask can wrap the indices.
    private var slots: [LoopWork?] = Array(repeating: nil, count: 16)
    private var head = 0
    private(set) var count = 0

    var isEmpty: Bool { count == 0 }

    mutating func append(_ work: LoopWork) {
        if count == slots.count { grow() }
        slots[(head + count) & (slots.count - 1)] = work
        count += 1
    }

    mutating func popFirst() -> LoopWork? {
        guard count > 0 else { return nil }
        let work = slots[head].take()
        head = (head + 1) & (slots.count - 1)
        count -= 1
        return work
    }

    private mutating func grow() {
        var larger: [LoopWork?] = []
        larger.reserveCapacity(slots.count * 2)
        larger.append(contentsOf: slots[head...])
        larger.append(contentsOf: slots[..<head])
        larger.append(contentsOf: repeatElement(nil, count: slots.count))
        slots = larger
        head = 0
    }
}
