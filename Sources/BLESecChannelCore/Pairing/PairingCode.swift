internal import BLESecLocking
internal import BLESecPrimitives

extension TrustPolicy {
    /// A short code that two people carry from one device to the other, and how often it may still be
    /// tried.
    ///
    /// A code is valid for one pairing, for a limited time and for three tries, counted over all links
    /// that use this object. Each try lets whoever is at the other end check one guess.
    public final class PairingCode: Sendable {
        /// The lengths that a code may have, in digits; 6 by default.
        public static let lengths = 4...12
        /// How often a code may be tried: 3.
        public static let maximumTries = 3
        /// How long a code is valid by default: 120 seconds.
        public static let defaultLifetime: Duration = .seconds(120)

        private enum Status { case open, used }

        private let secret: SecretBytes
        private let deadline: ContinuousClock.Instant
        private let state = Locked((tries: 0, status: Status.open))

        /// Makes a new random code. The length is one of ``lengths``.
        public init(length: Int = 6, lifetime: Duration = defaultLifetime) {
            precondition(Self.lengths.contains(length), "a code has 4 to 12 digits")
            secret = Self.random(length)
            deadline = .now + lifetime
        }

        /// Takes the code that a person has read on the other device. Spaces and hyphens between
        /// digits are ignored.
        ///
        /// - Throws: `badKey` unless the text has 4 to 12 digits and nothing else.
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
            deadline = .now + lifetime
        }

        /// The digits, to show them to a person.
        public var digits: String {
            unsafe secret.withUnsafeBytes { bytes in unsafe String(decoding: bytes, as: UTF8.self) }
        }

        /// How often the code may still be tried now; 0 when it was used, or is too old.
        public var triesLeft: Int {
            isExpired
                ? 0
                : state.withLock { $0.status == .used ? 0 : Self.maximumTries - $0.tries }
        }

        /// When the code ceases to be valid.
        public var expires: ContinuousClock.Instant { deadline }

        /// Ends the code: nobody can pair with it any more.
        public func close() { state.withLock { $0.status = .used } }

        private var isExpired: Bool { ContinuousClock.now >= deadline }

        /// The reason why nobody can pair with the code any more; nil while it is valid.
        package var refusal: String? {
            let (tries, status) = state.withLock { $0 }
            if status == .used { return "the code was used already" }
            if isExpired { return "the code is too old" }
            return tries < Self.maximumTries
                ? nil : "the code was tried \(Self.maximumTries) times; make a new one"
        }

        /// Counts one try; throws if none is left.
        func spend() throws(ChannelError) {
            if let refusal { throw ChannelError(.untrusted, refusal) }
            let isSpent = state.withLock { state in
                guard state.status == .open, state.tries < Self.maximumTries else { return false }
                state.tries += 1
                return true
            }
            guard isSpent else {
                throw ChannelError(.untrusted, refusal ?? "the code was used already")
            }
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

        /// A uniform digit: bytes of 250 and more are drawn again.
        private static func randomDigit() -> UInt8 {
            while true {
                let byte = SecretBytes(randomCount: 1)
                let value = unsafe byte.withUnsafeBytes { bytes in unsafe bytes[0] }
                if value < 250 { return value % 10 }
            }
        }
    }
}
