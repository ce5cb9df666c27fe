extension TrustPolicy {
    /// Six digits that both devices show, and a person who says whether they are the same.
    ///
    /// As with a ``PairingCode``, only three tries may begin, over all links that use this object,
    /// and only for a limited time. An attacker between two devices can combine each of the three
    /// tries on one device with each of the three on the other. Each of these nine combinations
    /// succeeds with a probability of one in a million.
    public final class PairingComparison: Sendable {
        /// Shows digits to a person, and returns whether the other device shows the same digits.
        public typealias Confirmation = @Sendable (_ digits: String) async throws -> Bool

        let confirm: Confirmation
        private let tries: PairingTries
        /// The subject of the error messages.
        private static let subject = "the comparison"

        /// Makes a comparison for one pairing.
        public init(
            lifetime: Duration = PairingCode.defaultLifetime, confirm: @escaping Confirmation
        ) {
            self.confirm = confirm
            tries = PairingTries(lifetime: lifetime)
        }

        /// How many tries may still begin.
        public var triesLeft: Int { tries.remaining }

        /// Ends the comparison: nobody can pair with it any more. A pairing for which the peer's
        /// confirmation has arrived is still completed.
        public func close() { tries.close() }

        var refusal: String? { tries.refusal(of: Self.subject) }
        func spend() throws(ChannelError) { try tries.spend(Self.subject) }
        /// Reserves the comparison for the first key that this side has verified; see
        /// ``PairingTries/reserve(for:)``.
        func reserve(for key: Fingerprint) -> Bool { tries.reserve(for: key) }
        func end() { tries.end() }
    }
}
