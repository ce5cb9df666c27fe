internal import BLESecLocking

/// Counts how often a code or a comparison is tried, over all links. A code or a comparison is
/// valid for one pairing.
final class PairingTries: Sendable {
    /// The most tries: 3.
    static let maximum = 3

    private let deadline: ContinuousClock.Instant
    private let state = Locked<(spent: Int, isUsed: Bool, owner: Fingerprint?)>((0, false, nil))

    init(lifetime: Duration) { deadline = .now + lifetime }

    /// How many tries are left now.
    var left: Int {
        ContinuousClock.now >= deadline
            ? 0 : state.withLock { $0.isUsed ? 0 : Self.maximum - $0.spent }
    }

    /// Why the code or the comparison cannot be tried any more; nil while it can. The reason calls
    /// the code or the comparison `what`.
    func refusal(of what: String) -> String? {
        let (spent, isUsed, _) = state.withLock { $0 }
        if isUsed { return "\(what) was used already" }
        if ContinuousClock.now >= deadline { return "\(what) is too old" }
        return spent < Self.maximum
            ? nil : "\(what) was tried \(Self.maximum) times; make a new one"
    }

    /// Counts one try; throws if none is left.
    func spend(_ what: String) throws(ChannelError) {
        if let refusal = refusal(of: what) { throw ChannelError(.untrusted, refusal) }
        let isSpent = state.withLock { state in
            guard !state.isUsed, state.spent < Self.maximum else { return false }
            state.spent += 1
            return true
        }
        guard isSpent else {
            throw ChannelError(.untrusted, refusal(of: what) ?? "\(what) was used already")
        }
    }

    /// Reserves the code or the comparison for `key`, which has been verified, if it is the first
    /// such key. Returns false for any other key, and for every key once ``close()`` was called. So
    /// if two peers try at the same time, this side pairs with only one of them.
    func reserve(for key: Fingerprint) -> Bool {
        state.withLock { state in
            if state.owner == nil, !state.isUsed { state.owner = key }
            return state.owner == key
        }
    }

    /// Ends all tries, since the key that has reserved the code or the comparison has paired.
    func didPair() { state.withLock { $0.isUsed = true } }

    /// Ends all tries and the reservation.
    func close() { state.withLock { ($0.isUsed, $0.owner) = (true, nil) } }
}
