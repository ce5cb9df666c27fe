internal import BLESecLocking

/// Keys that are refused whatever the policy decides. When ``replace(with:)`` adds a key, the live
/// channels with the peer that has this key end.
public final class DenyList: Sendable {
    private struct State: Sendable {
        var keys: Set<Fingerprint>
        var observers: [UInt64: @Sendable (DenyList) -> Void] = [:]
        var nextToken: UInt64 = 0
    }

    private let state: Locked<State>

    /// Makes a list with these keys.
    public init(_ keys: some Sequence<Fingerprint> = []) { state = Locked(State(keys: Set(keys))) }

    /// Whether `key` is refused.
    public func contains(_ key: Fingerprint) -> Bool { state.withLock { $0.keys.contains(key) } }

    /// Replaces the keys. Every live channel whose policy has this list then checks its peer again.
    public func replace(with keys: some Sequence<Fingerprint>) {
        let fresh = Set(keys)
        let observers = state.withLock { state in
            state.keys = fresh
            return Array(state.observers.values)
        }
        for observer in observers { observer(self) }
    }

    /// Calls `observer` after each ``replace(with:)``, until ``stopObserving(_:)`` gets the returned
    /// token.
    package func observe(_ observer: @escaping @Sendable (DenyList) -> Void) -> UInt64 {
        state.withLock { state in
            defer { state.nextToken += 1 }
            state.observers[state.nextToken] = observer
            return state.nextToken
        }
    }

    package func stopObserving(_ token: UInt64) {
        _ = state.withLock { $0.observers.removeValue(forKey: token) }
    }
}
