/// The armed timers of a loop, in a binary heap.
///
/// A timer's key in the heap may lie *before* the timer's deadline: if the deadline is moved to a
/// later time, the timer keeps its old key. Only when the time of that key has come does the timer
/// move down. So it costs little to re-arm a timer with each record.
struct TimerHeap {
    private struct Entry {
        var key: MonotonicTime
        let timer: LoopTimer
    }

    private var entries: [Entry] = []

    var count: Int { entries.count }
    /// No timer fires before this time; nil if no timer is armed.
    var earliest: MonotonicTime? { entries.isEmpty ? nil : entries[0].key }

    /// Adds the timer, or moves it up if `time` is before its key; a later `time` changes nothing.
    mutating func place(_ timer: LoopTimer, at time: MonotonicTime) {
        guard let position = timer.position else {
            timer.position = entries.count
            entries.append(Entry(key: time, timer: timer))
            return raise(entries.count - 1)
        }
        guard time < entries[position].key else { return }
        entries[position].key = time
        raise(position)
    }

    mutating func remove(_ timer: LoopTimer) {
        guard let position = timer.position else { return }
        timer.position = nil
        let last = entries.removeLast()
        guard position < entries.count else { return }
        entries[position] = last
        last.timer.position = position
        raise(position)
        sink(last.timer.position ?? position)
    }

    /// Removes and returns a timer whose deadline is not after `now`.
    mutating func popDue(_ now: MonotonicTime) -> LoopTimer? {
        while !entries.isEmpty, entries[0].key <= now {
            let timer = entries[0].timer
            guard let deadline = timer.deadline, deadline > now else {
                remove(timer)
                return timer
            }
            entries[0].key = deadline
            sink(0)
        }
        return nil
    }

    /// Removes and returns some timer; nil if none is armed.
    mutating func popAny() -> LoopTimer? {
        guard let timer = entries.last?.timer else { return nil }
        remove(timer)
        return timer
    }

    private mutating func raise(_ start: Int) {
        var position = start
        while position > 0 {
            let parent = (position - 1) / 2
            guard entries[position].key < entries[parent].key else { return }
            exchange(position, parent)
            position = parent
        }
    }

    private mutating func sink(_ start: Int) {
        var position = start
        while true {
            var least = position
            let firstChild = 2 * position + 1
            for child in firstChild...firstChild + 1
            where child < entries.count && entries[child].key < entries[least].key { least = child }
            guard least != position else { return }
            exchange(position, least)
            position = least
        }
    }

    private mutating func exchange(_ one: Int, _ other: Int) {
        entries.swapAt(one, other)
        entries[one].timer.position = one
        entries[other].timer.position = other
    }
}
