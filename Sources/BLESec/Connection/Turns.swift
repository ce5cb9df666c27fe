/// A queue of tasks: each task holds a ticket, and is next when all earlier tickets are given back.
struct Turns {
    /// The ticket of the task that is next or, if no task holds a ticket, of the next task to come.
    private(set) var next: UInt64 = 1
    private var last: UInt64 = 0
    /// The tickets after ``next`` that were given back, because their tasks were cancelled.
    private var returned: Set<UInt64> = []

    mutating func take() -> UInt64 {
        last += 1
        return last
    }

    /// Whether no task holds a ticket.
    var isEmpty: Bool { next > last }

    func isNext(_ ticket: UInt64) -> Bool { next == ticket }

    mutating func give(back ticket: UInt64) {
        guard ticket == next else {
            returned.insert(ticket)
            return
        }
        next += 1
        while returned.remove(next) != nil { next += 1 }
    }
}
