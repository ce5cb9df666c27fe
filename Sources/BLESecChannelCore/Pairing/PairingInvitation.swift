internal import BLESecLocking
package import BLESecPrimitives

/// An invitation to pair, which one device shows (as a QR code, for example) and the other reads:
/// the inviter's key, a one-time secret, and where to find the inviter.
///
/// The text of an invitation is a URI (`docs/wire-format.md`, "Invitation"). Whoever has the text can
/// pair with the inviter, once, until the invitation expires. So show the text, and do not send it.
public final class PairingInvitation: Sendable {
    /// How long an invitation may be valid: 1 second to 1 hour.
    public static let lifetimes: ClosedRange<Duration> = .seconds(1) ... .seconds(3_600)
    /// How long an invitation is valid by default: 120 seconds.
    public static let defaultLifetime: Duration = .seconds(120)
    /// The length of the secret in bytes.
    static let secretLength = 32
    /// The most keys in ``strangers``.
    private static let mostStrangers = 16
    /// The longest URI that is read, in bytes.
    static let maximumLength = 512

    private struct State {
        var owner: Fingerprint?
        var strangers: Set<Fingerprint> = []
        /// Whether ``close()`` was called.
        var isClosed = false
    }

    /// The inviter's key.
    public let key: Fingerprint
    /// The UUID of the service that the inviter advertises, in text form; nil if the reader has to
    /// know the inviter's address from elsewhere.
    public let service: String?
    /// When the invitation expires by the inviter's clock, in seconds since 1970. The reader's
    /// clock may differ; only the inviter decides.
    public let expires: Int64
    /// The one-time secret.
    private let secret: SecretBytes
    /// When this side's own invitation expires; nil for an invitation that this side has read.
    private let deadline: ContinuousClock.Instant?
    private let state = Locked(State())

    /// Makes a new invitation to pair with this side.
    ///
    /// - Parameters:
    ///   - key: this side's fingerprint.
    ///   - service: the UUID that this side advertises.
    ///   - lifetime: how long the invitation is valid, clamped to ``lifetimes``.
    ///   - now: the time in seconds since 1970.
    public init(
        from key: Fingerprint, service: String? = nil, lifetime: Duration = defaultLifetime,
        now: Int64
    ) {
        let lifetime = min(max(lifetime, Self.lifetimes.lowerBound), Self.lifetimes.upperBound)
        self.key = key
        self.service = service
        let (time, overflows) = now.addingReportingOverflow(lifetime.components.seconds)
        expires = overflows ? .max : time
        secret = SecretBytes(randomCount: Self.secretLength)
        deadline = .now + lifetime
    }

    /// Reads a URI; white space around it is ignored.
    ///
    /// - Throws: `badKey` for anything but an invitation of version 1; the reason says what is
    ///   wrong.
    public init(parsing text: String) throws(ChannelError) {
        let parts = try Self.parse(text)
        key = parts.key
        service = parts.service
        expires = parts.expires
        secret = SecretBytes(copying: parts.secret.span)
        deadline = nil
    }

    /// The text form, a URI with the secret in it.
    public var uri: String {
        let secret = unsafe secret.withUnsafeBytes { bytes in unsafe Self.encode(Array(bytes)) }
        let field = service.map { "&service=\($0)" } ?? ""
        return
            "blesec:pair?v=1&key=\(Self.encode(key.digest))&secret=\(secret)&expires=\(expires)\(field)"
    }

    /// A copy of the one-time secret, 32 bytes.
    package func copyOfSecret() -> SecretBytes {
        unsafe secret.withUnsafeBytes { bytes in
            unsafe SecretBytes(copying: Span(_unsafeElements: bytes))
        }
    }

    /// Whether this side has made the invitation.
    public var isOwn: Bool { deadline != nil }

    /// The keys whose holders have proven that they have the secret, except the first such key.
    /// Each key shows that someone else has seen the invitation. At most 16 are kept.
    public var strangers: Set<Fingerprint> { state.withLock { $0.strangers } }

    /// Ends the invitation: nobody can pair with it any more. A pairing for which the peer's
    /// confirmation has arrived is still completed.
    public func close() { state.withLock { $0.isClosed = true } }

    /// The first key whose holder has proven to this side, the inviter, that it has the secret, while
    /// the invitation was valid.
    var owner: Fingerprint? { state.withLock { $0.owner } }

    /// True until ``close()`` is called, even if the invitation has expired.
    var isOpen: Bool { state.withLock { !$0.isClosed } }

    /// The reason why nobody can pair with this side's invitation any more; nil while it is valid.
    package var refusal: String? {
        if state.withLock({ $0.isClosed }) { return "the invitation was used or withdrawn already" }
        if let deadline, ContinuousClock.now >= deadline { return "the invitation has expired" }
        return nil
    }

    /// Decides about a peer's key. The reader admits only the inviter's key. On the inviter's side,
    /// the peer has already proven that it has the secret. While the invitation is valid, the key of
    /// the first such peer becomes ``owner``, and only the owner is admitted, as often as it tries.
    func admit(_ peer: Fingerprint) -> TrustPolicy.Verdict {
        guard isOwn else {
            return peer == key ? .admit : .refuse("\(peer) is not the key of the invitation")
        }
        let owner = state.withLock { state in
            if let owner = state.owner {
                if owner != peer, state.strangers.count < Self.mostStrangers {
                    state.strangers.insert(peer)
                }
            } else if isValid(state) {
                state.owner = peer
            }
            return state.owner
        }
        if let owner, owner != peer {
            return .refuse(
                "the invitation was seen by someone else: \(peer) has its secret too, after \(owner)"
            )
        }
        if let refusal { return .refuse(refusal) }
        return .admit
    }

    private func isValid(_ state: State) -> Bool {
        !state.isClosed && deadline.map { ContinuousClock.now < $0 } ?? true
    }

    // MARK: - Text

    private struct Parts {
        let key: Fingerprint
        let secret: [UInt8]
        let expires: Int64
        let service: String?
    }

    private static func parse(_ text: String) throws(ChannelError) -> Parts {
        guard text.utf8.count <= maximumLength else { throw bad("it is too long") }
        let words = text.split { $0.isWhitespace }
        guard words.count == 1, words[0].hasPrefix("blesec:") else {
            throw bad("it does not begin with blesec:, or contains white space")
        }
        let halves = words[0].dropFirst(7).split(
            separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        guard halves.count == 2, halves[0] == "pair" else {
            throw bad("blesec:pair? is missing at its beginning")
        }
        var values: [Substring: Substring] = [:]
        for part in halves[1].split(separator: "&", omittingEmptySubsequences: false) {
            let pair = part.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard pair.count == 2, values.updateValue(pair[1], forKey: pair[0]) == nil else {
                throw bad("a part is not a name with a value, or is repeated")
            }
        }
        guard let version = values.removeValue(forKey: "v") else { throw bad("v is missing") }
        guard version == "1" else {
            throw bad("its version is not 1, the only one that this program reads")
        }
        let key = Fingerprint(digest: try bytes(&values, "key"))
        let secret = try bytes(&values, "secret")
        guard let expiry = values.removeValue(forKey: "expires"), let expires = Int64(expiry),
            expires >= 0, String(expires) == expiry
        else { throw bad("expires is missing, or is no number of seconds since 1970") }
        let service = values.removeValue(forKey: "service").map(String.init)
        if let service, !isUUID(service) { throw bad("its service is no UUID") }
        guard values.isEmpty else { throw bad("it has a part with an unknown name") }
        return Parts(key: key, secret: secret, expires: expires, service: service)
    }

    /// The error for an invalid invitation. `reason` must quote nothing from the invitation, since
    /// a malformed part may contain the secret.
    private static func bad(_ reason: String) -> ChannelError {
        ChannelError(.badKey, "this is no invitation to pair: \(reason)")
    }

    /// Removes the value with this name, and decodes its 32 bytes.
    private static func bytes(
        _ values: inout [Substring: Substring], _ name: Substring
    ) throws(ChannelError) -> [UInt8] {
        guard let text = values.removeValue(forKey: name) else { throw bad("\(name) is missing") }
        // base64url has `-` and `_` in place of `+` and `/`.
        let hasStandardSigns = text.contains { $0 == "+" || $0 == "/" }
        let standard = String(
            text.map { $0 == "-" ? "+" : $0 == "_" ? "/" : $0 })
        guard !hasStandardSigns, let bytes = Base64.decode(standard, padded: false),
            bytes.count == 32
        else { throw bad("\(name) is not 43 characters of base64url") }
        return bytes
    }

    private static func encode(_ bytes: [UInt8]) -> String {
        String(
            Base64.encode(bytes, padded: false)
                .map { $0 == "+" ? "-" : $0 == "/" ? "_" : $0 })
    }

    /// Whether the text is a UUID in lower case: 36 characters, or the four of a 16-bit UUID.
    private static func isUUID(_ text: String) -> Bool {
        let isDigit = text.utf8.map { byte in
            (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
                || (UInt8(ascii: "a")...UInt8(ascii: "f")).contains(byte)
        }
        if isDigit.count == 4 { return isDigit.allSatisfy { $0 } }
        guard isDigit.count == 36 else { return false }
        let hyphens: Set = [8, 13, 18, 23]
        return text.utf8.enumerated().allSatisfy { index, byte in
            hyphens.contains(index) ? byte == UInt8(ascii: "-") : isDigit[index]
        }
    }
}
