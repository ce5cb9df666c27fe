/// The fates of a program's messages, which are decided in the order of their ids.
package struct Fates: Sendable, Equatable {
    package enum Fate: Sendable, Equatable {
        /// The peer's program has taken the message.
        case confirmed
        /// Whether the peer's program has taken the message cannot be known any more.
        case unknown
        /// The message was removed from the store before it was sent.
        case dropped
    }

    /// All messages up to this id have a fate.
    package internal(set) var decided: UInt64 = 0
    /// The ids of the messages that have the fate ``Fate/unknown``, in ascending ranges. A range
    /// can be above ``decided``: see ``makeDroppedUnknown()``.
    package internal(set) var unknown: ArraySlice<ClosedRange<UInt64>> = []
    /// The ids of the messages that were dropped, in ascending ranges that do not touch. Only a
    /// person or a program on this side can drop messages, so the number of ranges needs no limit.
    package private(set) var dropped: [ClosedRange<UInt64>] = []
    /// The program has taken the fates of messages up to this id.
    package internal(set) var taken: UInt64 = 0

    /// The most ranges in ``unknown``. A peer can add to them without end, by losing its state
    /// again and again. To stay within the limit, the two oldest ranges become one, and the
    /// messages between them then count as unknown, too.
    package static let mostRanges = 1_024

    package init() {}

    package init(
        decided: UInt64, unknown: [ClosedRange<UInt64>], dropped: [ClosedRange<UInt64>],
        taken: UInt64
    ) {
        self.decided = decided
        self.unknown = unknown[...]
        self.dropped = dropped
        self.taken = taken
    }

    /// Decides the fate of a message: unknown if `isUnknown` is true, and otherwise confirmed.
    package mutating func add(id: UInt64, isUnknown: Bool) {
        decide(through: max(decided, id))
        guard isUnknown, !unknown.contains(where: { $0.contains(id) }) else { return }
        let earlier = unknown.lastIndex { $0.upperBound < id }
        if let earlier, unknown[earlier].upperBound + 1 == id {
            unknown[earlier] = unknown[earlier].lowerBound...id
        } else {
            unknown.insert(id...id, at: earlier.map { $0 + 1 } ?? unknown.startIndex)
        }
        // The two oldest ranges become one, which includes the messages between them.
        while unknown.count > Self.mostRanges, let first = unknown.popFirst() {
            unknown[unknown.startIndex] =
                first.lowerBound...unknown[unknown.startIndex].upperBound
        }
    }

    /// Marks all messages up to `id` as decided, and also the messages directly after `id` that were
    /// dropped, or whose fate is unknown already.
    private mutating func decide(through id: UInt64) {
        decided = id
        while let range = rangeAfterDecided { decided = range.upperBound }
    }

    /// The range of ``dropped`` or ``unknown`` that has the message after ``decided``.
    private var rangeAfterDecided: ClosedRange<UInt64>? {
        if let range = dropped.first(where: { $0.contains(decided + 1) }) { return range }
        // A range of `unknown` that ends above `decided` is rare. If the last range does not end
        // above `decided`, no range does, and the search is skipped.
        guard let last = unknown.last, last.upperBound > decided else { return nil }
        return unknown.first { $0.contains(decided + 1) }
    }

    /// Drops messages whose fate is not decided yet. The fate of each is decided as soon as the
    /// fates of all messages before it are.
    package mutating func drop(_ ids: Set<UInt64>) {
        var ranges: [ClosedRange<UInt64>] = []
        for range in (dropped + ids.map { $0...$0 }).sorted(by: { $0.lowerBound < $1.lowerBound }) {
            if let last = ranges.last, last.upperBound + 1 == range.lowerBound {
                ranges[ranges.count - 1] = last.lowerBound...range.upperBound
            } else {
                ranges.append(range)
            }
        }
        dropped = ranges
        decide(through: decided)
    }

    /// Makes the fate of dropped messages unknown. Called when the store was restored from an older
    /// copy: a message that was dropped in the copy may have been sent after the copy was made.
    /// Fates that the program has taken do not change. A fate that is not decided yet, because a
    /// message before it is pending, will be unknown.
    package mutating func makeDroppedUnknown() {
        // The ranges with a message whose fate the program has not taken.
        let doubted = dropped.filter { taken < $0.upperBound }
        guard !doubted.isEmpty else { return }
        dropped = dropped.compactMap { range in
            guard doubted.contains(range) else { return range }
            return range.lowerBound <= taken ? range.lowerBound...taken : nil
        }
        // A range of `unknown` that was joined from two (see `mostRanges`) may contain a dropped
        // range, which then is not added again.
        let ranges = doubted.map { max($0.lowerBound, taken + 1)...$0.upperBound }
            .filter { range in !unknown.contains { $0.contains(range.lowerBound) } }
        unknown = (unknown + ranges).sorted { $0.lowerBound < $1.lowerBound }[...]
    }

    /// The fate of a message; nil while it has none.
    package func fate(id: UInt64) -> Fate? {
        guard id <= decided else { return nil }
        if dropped.contains(where: { $0.contains(id) }) { return .dropped }
        return unknown.contains { $0.contains(id) } ? .unknown : .confirmed
    }

    /// How many messages have an unknown fate, or will have it (``makeDroppedUnknown()``).
    package var unknownCount: Int { unknown.reduce(0) { $0 + $1.count } }
    /// How many messages were dropped.
    package var droppedCount: Int { dropped.reduce(0) { $0 + $1.count } }
    /// Whether ``take()`` returns a fate.
    package var hasNext: Bool { taken < decided }

    /// Takes the next fate.
    package mutating func take() -> (id: UInt64, fate: Fate)? {
        guard let fate = fate(id: taken + 1) else { return nil }
        take(through: taken + 1)
        return (taken, fate)
    }

    /// Marks the fates up to this id as taken by the program. They stay known to ``fate(id:)``.
    package mutating func take(through id: UInt64) { taken = max(taken, id) }
}
