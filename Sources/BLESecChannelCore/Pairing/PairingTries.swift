internal import BLESecLocking

/// Counts the tries of a ``TrustPolicy/PairingCode`` or a ``TrustPolicy/PairingComparison``, over
/// all links. A code or a comparison is valid for one pairing.
final class PairingTries: Sendable {
    /// The most tries: 3.
    static let maximum = 3

    private let deadline: ContinuousClock.Instant
    private let state = Locked<(spent: Int, isOver: Bool, owner: Fingerprint?)>((0, false, nil))

    init(lifetime: Duration) { deadline = .after(lifetime) }

    /// How many tries are left now.
    var remaining: Int {
        ContinuousClock.now >= deadline
            ? 0 : state.withLock { $0.isOver ? 0 : Self.maximum - $0.spent }
    }

    /// Why the code or the comparison cannot be tried any more; nil while it can. In the text,
    /// `what` is the subject, such as "the code".
    func refusal(of what: String) -> String? {
        let (spent, isOver, _) = state.withLock { $0 }
        if isOver { return "\(what) was used already" }
        if ContinuousClock.now >= deadline { return "\(what) is too old" }
        return spent < Self.maximum
            ? nil : "\(what) was tried \(Self.maximum) times; make a new one"
    }

    /// The verified key that the code or the comparison is reserved for.
    var owner: Fingerprint? { state.withLock { $0.owner } }

    /// Counts one try; throws if none is left. `what` is as for ``refusal(of:)``.
    func spend(_ what: String) throws(ChannelError) {
        if let refusal = refusal(of: what) { throw ChannelError(.untrusted, refusal) }
        let isSpent = state.withLock { state in
            guard !state.isOver, state.spent < Self.maximum else { return false }
            state.spent += 1
            return true
        }
        guard isSpent else {
            throw ChannelError(.untrusted, refusal(of: what) ?? "\(what) was used already")
        }
    }

    /// The first call reserves the code or the comparison for its `key`, which this side has
    /// verified, and returns true. Later calls return true for the same key and false for any other
    /// key. So if two peers try at the same time, this side pairs with only one of them. After
    /// ``close()``, and after ``end()`` without a reservation, returns false for every key.
    func reserve(for key: Fingerprint) -> Bool {
        state.withLock { state in
            if state.owner == nil, !state.isOver { state.owner = key }
            return state.owner == key
        }
    }

    /// Ends all tries, since the pairing is complete or cannot be completed; a reservation stays.
    func end() { state.withLock { $0.isOver = true } }

    /// Ends all tries and the reservation.
    func close() { state.withLock { ($0.isOver, $0.owner) = (true, nil) } }
}

extension ContinuousClock.Instant {
    /// The time `duration` from now; a duration of more than 10^12 seconds (31,700 years) counts as
    /// 10^12 seconds.
    static func after(_ duration: Duration) -> ContinuousClock.Instant {
        let limit = Duration.seconds(1_000_000_000_000)
        return .now + min(max(duration, .zero - limit), limit)
    }
}
