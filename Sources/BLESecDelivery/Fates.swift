/// The fates of a program's messages, which are decided in the order of their ids.
package struct Fates: Sendable, Equatable {
    /// All messages up to this id have a fate.
    package internal(set) var decided: UInt64 = 0
    /// The ids of those whose fate is unknown, in ranges.
    package internal(set) var unknown: ArraySlice<ClosedRange<UInt64>> = []
    /// The program has taken the fates of messages up to this id.
    package internal(set) var taken: UInt64 = 0

    /// At most so many ranges are kept. Each is a lost state, so a peer could make more without
    /// end; the fates of messages before the ranges that are kept are then not known here any more.
    package static let mostRanges = 1_024

    package init() {}

    package init(decided: UInt64, unknown: [ClosedRange<UInt64>], taken: UInt64) {
        self.decided = decided
        self.unknown = unknown[...]
        self.taken = taken
    }

    package mutating func add(id: UInt64, isUnknown: Bool) {
        decided = max(decided, id)
        guard isUnknown else { return }
        if let last = unknown.last, last.upperBound + 1 == id {
            unknown[unknown.endIndex - 1] = last.lowerBound...id
        } else {
            unknown.append(id...id)
        }
        // The second range takes the first one, and what is between them.
        if unknown.count > Self.mostRanges, let first = unknown.popFirst() {
            unknown[unknown.startIndex] =
                first.lowerBound...unknown[unknown.startIndex].upperBound
        }
    }

    /// Whether the fate is unknown; nil while the message has none.
    package func isUnknown(id: UInt64) -> Bool? {
        guard id <= decided else { return nil }
        return unknown.contains { $0.contains(id) }
    }

    /// How many messages have an unknown fate.
    package var unknownCount: Int { unknown.reduce(0) { $0 + $1.count } }
    package var hasNext: Bool { taken < decided }

    /// Takes the next fate.
    package mutating func take() -> (id: UInt64, isUnknown: Bool)? {
        guard let isUnknown = isUnknown(id: taken + 1) else { return nil }
        take(through: taken + 1)
        return (taken, isUnknown)
    }

    /// The fates stay known, in case they are asked for by id.
    package mutating func take(through id: UInt64) { taken = max(taken, id) }
}
