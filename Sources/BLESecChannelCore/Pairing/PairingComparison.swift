extension TrustPolicy {
    /// Six digits that both devices show, and a person who says whether they are the same.
    ///
    /// As with a ``PairingCode``, only three tries may begin, over all links that use this object,
    /// and only for a limited time. A try ends when the next one begins. An attacker between two
    /// devices has one chance in a million for each pair of tries that are under way at the same
    /// time, one on each device: five chances at the most.
    public final class PairingComparison: Sendable {
        /// Shows digits to a person, and returns whether the other device shows the same ones.
        public typealias Confirmation = @Sendable (_ digits: String) async throws -> Bool

        let confirm: Confirmation
        private let tries: PairingTries
        private static let name = "the comparison"

        /// Makes a comparison for one pairing.
        public init(
            lifetime: Duration = PairingCode.defaultLifetime, confirm: @escaping Confirmation
        ) {
            self.confirm = confirm
            tries = PairingTries(lifetime: lifetime)
        }

        /// How many tries may still begin.
        public var triesLeft: Int { tries.left }

        /// Ends the comparison: nobody can pair with it any more. A pairing for which the peer's
        /// confirmation has arrived is still completed.
        public func close() { tries.close() }

        var refusal: String? { tries.refusal(of: Self.name) }
        /// Counts a try, which ends any earlier one, and returns its number.
        func begin() throws(ChannelError) -> Int { try tries.spend(Self.name) }
        /// Throws if a later try has begun than the one with this number.
        func checkIsLatest(_ number: Int) throws(ChannelError) {
            guard tries.isLatest(number) else {
                throw ChannelError(
                    .untrusted, "another try of the comparison has begun, which ends this one")
            }
        }
        /// Reserves the comparison for the first key that this side has verified; see
        /// ``PairingTries/reserve(for:)``.
        func reserve(for key: Fingerprint) -> Bool { tries.reserve(for: key) }
        func end() { tries.end() }
    }
}
