/// A queue of tasks: each task holds a ticket, and is next when all earlier tickets are given back.
struct Turns {
    private var last: UInt64 = 0
    private var waiting: [UInt64] = []

    mutating func take() -> UInt64 {
        last += 1
        waiting.append(last)
        return last
    }

    /// Whether no task holds a ticket.
    var isEmpty: Bool { waiting.isEmpty }

    func isNext(_ ticket: UInt64) -> Bool { waiting.first == ticket }

    mutating func give(back ticket: UInt64) {
        if let index = waiting.firstIndex(of: ticket) { waiting.remove(at: index) }
    }
}
