internal import BLESecLocking

extension TrustPolicy {
    /// A limited time in which a listener enrols peers with unknown keys. Open a window only when a
    /// person asks for it.
    ///
    /// A window closes when its time is over, when it has no place left for a key, or with
    /// ``close()``.
    public final class PairingWindow: Sendable {
        private struct State: Sendable {
            /// The keys that have a place.
            var placed: Set<Fingerprint> = []
            var isClosed = false

            /// Whether the key has one of `places` places, or can get one.
            func admits(_ key: Fingerprint, places: Int) -> Bool {
                !isClosed && (placed.contains(key) || placed.count < places)
            }
        }

        private let state = Locked(State())
        private let places: Int
        private let deadline: ContinuousClock.Instant
        private let name: @Sendable (Fingerprint) -> String

        /// Opens a window for `duration`, with places for `peers` new keys, at least one. `name`
        /// returns the name under which the store keeps a key, by default the key's fingerprint.
        public init(
            peers: Int = 1, for duration: Duration,
            name: @escaping @Sendable (Fingerprint) -> String = { $0.description }
        ) {
            precondition(peers > 0, "a pairing window admits at least one peer")
            places = peers
            deadline = .after(duration)
            self.name = name
        }

        /// Whether a new key would be admitted now.
        public var isOpen: Bool {
            state.withLock { !$0.isClosed && $0.placed.count < places }
                && ContinuousClock.now < deadline
        }

        /// Whether ``nameForEnrolling(_:)`` would return a name now.
        func mayEnrol(_ key: Fingerprint) -> Bool {
            state.withLock { $0.admits(key, places: places) } && ContinuousClock.now < deadline
        }

        /// Closes the window at once.
        public func close() { state.withLock { $0.isClosed = true } }

        /// Uses up one place, and returns the name under which the store keeps the key; `nil` if
        /// the window is closed or has no place left. A key that already has a place uses up no
        /// other.
        func nameForEnrolling(_ key: Fingerprint) -> String? {
            guard ContinuousClock.now < deadline else { return nil }
            let hasPlace = state.withLock { state in
                guard state.admits(key, places: places) else { return false }
                state.placed.insert(key)
                return true
            }
            return hasPlace ? name(key) : nil
        }
    }
}
