/// The fates of a connection's messages, which are decided in the order of the messages.
struct Fates {
    /// All messages up to this number have a fate.
    private var decided: UInt64 = 0
    /// The numbers of those whose fate is unknown, in ranges.
    private var unknown: ArraySlice<ClosedRange<UInt64>> = []
    /// The program has taken the fates of messages up to this number.
    private var taken: UInt64 = 0
    /// At most so many ranges are kept. Each is a lost state, so a peer could make more without end;
    /// then the fates of older messages, which are long decided, count as unknown.
    private static let mostRanges = 1_024
    private var forgotten: UInt64 = 0

    mutating func add(_ fate: Delivery, _ number: UInt64) {
        decided = max(decided, number)
        guard fate == .unknown else { return }
        if let last = unknown.last, last.upperBound + 1 == number {
            unknown[unknown.endIndex - 1] = last.lowerBound...number
        } else {
            unknown.append(number...number)
        }
        if unknown.count > Self.mostRanges { forgotten = unknown.removeFirst().upperBound }
    }

    func fate(of number: UInt64) -> Delivery? {
        guard number <= decided else { return nil }
        guard number > forgotten else { return .unknown }
        return unknown.contains { $0.contains(number) } ? .unknown : .delivered
    }

    var hasNext: Bool { taken < decided }

    mutating func take() -> (number: UInt64, fate: Delivery)? {
        guard let fate = fate(of: taken + 1) else { return nil }
        taken += 1
        return (taken, fate)
    }
}
