internal import BLESecPrimitives

extension TrustPolicy {
    /// A short code that people carry from one device to the other, and how often the code may
    /// still be tried.
    ///
    /// A code is valid for one pairing, for a limited time and for three tries, counted over all
    /// links that use this object. Each try lets whoever is at the other end check one guess.
    public final class PairingCode: Sendable {
        /// The lengths that a code may have, in digits; 6 by default.
        public static let lengths = 4...12
        /// How often a code may be tried: 3.
        public static var maximumTries: Int { PairingTries.maximum }
        /// How long a code is valid by default: 120 seconds.
        public static let defaultLifetime: Duration = .seconds(120)

        private let secret: SecretBytes
        private let tries: PairingTries
        /// The subject of the error messages.
        private static let subject = "the code"

        /// Makes a new random code. The length is one of ``lengths``.
        public init(length: Int = 6, lifetime: Duration = defaultLifetime) {
            precondition(Self.lengths.contains(length), "a code has 4 to 12 digits")
            secret = Self.random(length)
            tries = PairingTries(lifetime: lifetime)
        }

        /// Takes the code that a person has read on the other device. Spaces and hyphens between
        /// digits are ignored.
        ///
        /// - Throws: `badKey` if the rest is not 4 to 12 digits.
        public init(
            _ text: String, lifetime: Duration = defaultLifetime
        ) throws(ChannelError) {
            let digits = text.utf8.filter { $0 != UInt8(ascii: " ") && $0 != UInt8(ascii: "-") }
            guard Self.lengths.contains(digits.count),
                digits.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) })
            else {
                throw ChannelError(
                    .badKey, "a code has 4 to 12 digits, as the other device shows them")
            }
            secret = SecretBytes(copying: digits.span)
            tries = PairingTries(lifetime: lifetime)
        }

        /// The digits, to show them to a person.
        public var digits: String {
            unsafe secret.withUnsafeBytes { bytes in unsafe String(decoding: bytes, as: UTF8.self) }
        }

        /// How often the code may still be tried now; 0 when it was used or closed, or is too old.
        public var triesLeft: Int { tries.remaining }

        /// Ends the code: nobody can pair with it any more. A pairing for which the peer's
        /// confirmation has arrived is still completed.
        public func close() { tries.close() }

        /// The reason why nobody can pair with the code any more; nil while it is valid.
        package var refusal: String? { tries.refusal(of: Self.subject) }
        /// The first key that this side has verified, for which the code is reserved.
        var owner: Fingerprint? { tries.owner }
        func spend() throws(ChannelError) { try tries.spend(Self.subject) }
        /// Reserves the code for the first key that this side has verified; see
        /// ``PairingTries/reserve(for:)``.
        func reserve(for key: Fingerprint) -> Bool { tries.reserve(for: key) }
        func end() { tries.end() }

        private static let mismatchReason =
            "the codes differ: a digit is wrong, or somebody interferes"

        /// The error for a peer with another code. It says how often this code may still be tried now.
        var mismatch: ChannelError {
            let left = triesLeft
            return ChannelError(
                .untrusted,
                "\(Self.mismatchReason); "
                    + (left == 0
                        ? "this code cannot be tried again, make a new one"
                        : "this code can be tried \(left) more time\(left == 1 ? "" : "s")"))
        }

        /// Returns `error`. If `error` is a ``mismatch``, the result says how often the code may
        /// still be tried now: other links may have used tries since `error` was made.
        func updated(_ error: ChannelError) -> ChannelError {
            guard error.reason.hasPrefix(Self.mismatchReason) else { return error }
            var error = error
            error.reason = mismatch.reason
            return error
        }

        func begin(_ context: CPace.Context, isInitiator: Bool) -> CPace {
            CPace(code: secret, context, isInitiator: isInitiator)
        }

        private static func random(_ length: Int) -> SecretBytes {
            var digits = SecretBytes(count: length)
            var span = digits.mutableSpan
            for index in 0..<length { span[index] = UInt8(ascii: "0") + randomDigit() }
            return digits
        }

        /// A random digit. A byte of 250 or more is discarded, so that all digits are equally likely.
        private static func randomDigit() -> UInt8 {
            while true {
                let byte = SecretBytes(randomCount: 1)
                let value = unsafe byte.withUnsafeBytes { bytes in unsafe bytes[0] }
                if value < 250 { return value % 10 }
            }
        }
    }
}
