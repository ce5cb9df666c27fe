public import BLESecChannelCore
public import BLESecNoise
package import BLESecPrimitives
public import BLESecTLSEngine

/// What a channel is made with: this side's identity, the trust policy, the protocols, the limits.
public struct ChannelConfiguration: Sendable {
    /// The two modes of blesec/1; a link uses one of them throughout.
    public enum Mode: Sendable, Hashable {
        /// Hello, answer, handshake, then records with acknowledgements and an explicit end.
        case negotiated
        /// Length-prefixed Noise messages or TLS, and nothing else, to interoperate with other
        /// implementations. In this mode a side cannot detect that a Noise stream was truncated.
        ///
        /// A direct channel carries a stream of bytes, without the boundaries of messages:
        /// ``SecureChannel/byteStream`` is the interface for this stream. A long message is sent in
        /// pieces, and ``SecureChannel/receive()`` returns the next piece of the stream.
        ///
        /// With some patterns, a peer is proven only by its first message after the handshake, and
        /// there is no channel before that message has arrived (`docs/noise.md`, "Who speaks first
        /// in direct mode").
        case direct
    }

    /// Which of the peer's messages this side acknowledges.
    public enum Acknowledgement: Sendable, Hashable {
        /// The messages that the application has taken: ``SecureChannel/receive()`` has returned
        /// the message, or ``SecureChannel/ByteStream/read(atMost:)`` has returned its last byte.
        /// With a peer that lacks the feature *taken* (`docs/wire-format.md`, "Features"): the
        /// messages that have arrived.
        case automatic
        /// The messages that ``SecureChannel/confirm(through:)`` names. Negotiated mode only.
        case manual
    }

    /// The default protocol, which a phone can implement with its platform's own primitives.
    public static let defaultProtocol = "Noise_XX_25519_ChaChaPoly_SHA256"

    /// This side's Noise identity; may be `nil` if no offered protocol needs an identity.
    public var identity: IdentityKey?
    /// Decides which peers are accepted.
    public var trust: TrustPolicy
    /// This side's certificate and TLS settings, needed if ``TLSContext/protocolName`` is offered.
    public var tls: TLSContext?
    /// Decides about peers over TLS; `nil` means that ``trust`` decides. The deny list of ``trust``
    /// applies in either case.
    public var certificateTrust: TrustPolicy?
    /// Protocol names, best first; in direct mode exactly one.
    public var protocols = [defaultProtocol]
    /// Negotiated or direct.
    public var mode = Mode.negotiated
    /// Which of the peer's messages this side acknowledges.
    public var acknowledgement = Acknowledgement.automatic
    /// At most 255 bytes that must be the same on both sides; not secret. Negotiated mode only.
    public var context: [UInt8] = []
    /// The Noise prologue in direct mode. It must not begin with `blesec/1`, and must not have
    /// `blesec/1` right after its first two bytes, where every prologue of negotiated mode has it:
    /// those begin with a length field of two bytes.
    public var prologue: [UInt8] = []
    /// The keys for patterns with `psk`, 32 bytes each.
    public var presharedKeys: [PreSharedKey] = []
    /// Allows patterns that send this side's static key in clear and, when this side dials, patterns
    /// that reveal the key to whoever accepts. When this side accepts, patterns that reveal its key
    /// to whoever dials, such as XX, need no permission.
    public var allowsExposedIdentity = false
    /// Whether the channel is for a connection whose messages arrive exactly once
    /// (``PeerConnection/Guarantee/exactlyOnce(_:)``). Such a channel carries no messages of its
    /// own. Both sides must set the same value. Negotiated mode only.
    public var carriesDelivery = false
    /// The process's unfinished dials, by which a device detects a connection to itself.
    package var pendingDials = PendingDials.shared
    /// A fixed ephemeral key, only for the worked examples of the wire format.
    package var fixedEphemeral: DHKeyPair?
    /// Bounds on memory and work.
    public var limits = ChannelLimits()
    /// Bounds on time.
    public var timeouts = ChannelTimeouts()

    /// Makes a configuration for the default protocol.
    public init(identity: IdentityKey?, trust: TrustPolicy) {
        self.identity = identity
        self.trust = trust
    }
}

// Only the configuration and its trust policy, and nothing from a peer, decide what is offered.
extension ChannelConfiguration {
    /// Refuses a configuration that contradicts itself or lacks a part, before anything is sent.
    func validate(for role: ChannelRole) throws(ChannelError) {
        _ = try OfferPlans(self, for: role)
    }

    /// Refuses settings that contradict each other or the role. Each protocol is checked later,
    /// when its plan is made.
    func validateSettings(for role: ChannelRole) throws(ChannelError) {
        try validatePairing(for: role)
        try require(!offers.isEmpty, "a channel needs at least one protocol")
        try require(context.count <= 255, "the context has at most 255 bytes")
        try require(
            limits.readAhead > 0 && limits.unauthenticatedBytes > 0,
            "the limits readAhead and unauthenticatedBytes must be at least 1")
        for case let contradiction? in [trust.contradiction, certificateTrust?.contradiction] {
            throw ChannelError(.configuration, contradiction)
        }
        switch mode {
        case .negotiated:
            try require(prologue.isEmpty, "negotiated mode has its own prologue; use the context")
        case .direct:
            try require(protocols.count == 1, "direct mode takes exactly one protocol")
            try require(
                acknowledgement == .automatic,
                "direct mode has no acknowledgements, so none can be manual")
            try require(context.isEmpty, "direct mode has no context; use the prologue")
            try require(
                !carriesDelivery, "direct mode cannot deliver messages over more than one link")
            // A prologue of negotiated mode begins with a u16 length field and `blesec/1`.
            try require(
                !prologue.starts(with: "blesec/1".utf8)
                    && !prologue.dropFirst(2).starts(with: "blesec/1".utf8),
                "a prologue of direct mode may not begin with blesec/1, nor have it after the first "
                    + "two bytes, where prologues of negotiated mode have it")
        }
    }

    /// Refuses a pairing that contradicts the role, the mode, the identity or the protocols.
    private func validatePairing(for role: ChannelRole) throws(ChannelError) {
        try require(
            certificateTrust?.pairingRule == nil,
            "a pairing is the trust policy for all protocols, not only for certificates")
        guard let rule = trust.pairingRule else { return }
        try require(mode == .negotiated, "pairing needs negotiated mode")
        try require(
            certificateTrust == nil, "pairing takes no separate trust policy for certificates")
        guard let invitation = rule.invitation else { return }
        try require(
            role == (invitation.isOwn ? .acceptor : .dialer),
            "the side that has made the invitation listens, and the side that has read it dials")
        try require(
            !invitation.isOwn || invitation.key == identity?.fingerprint,
            "the invitation names another key than this side's identity")
        try require(
            !offers.isEmpty, "pairing by an invitation needs a Noise protocol with the pattern XX")
        try require(
            presharedKeys.isEmpty, "pairing by an invitation takes no further pre-shared key")
    }

    /// The protocols that are offered or accepted, best first. Pairing by an invitation uses only
    /// the protocols with the pattern XX, and adds the invitation's secret to each as a pre-shared
    /// key.
    var offers: [String] {
        guard trust.pairingRule?.invitation != nil else { return protocols }
        let pattern = "Noise_XX_"
        return protocols.filter { $0.hasPrefix(pattern) }
            .map { "Noise_XXpsk3_" + $0.dropFirst(pattern.count) }
    }

    /// The features that this side offers: those that it requires of the peer, and
    /// ``ChannelFeatures/acknowledgesTaken``, which needs no configuration.
    var features: ChannelFeatures { requiredFeatures.union(.acknowledgesTaken) }

    /// The features that the peer has to offer too.
    var requiredFeatures: ChannelFeatures {
        var features = ChannelFeatures()
        if carriesDelivery { features.insert(.delivery) }
        if trust.pairingRule != nil { features.insert(.pairing) }
        return features
    }

    /// The policy that decides about a peer when both sides use `protocolName`.
    func policy(for protocolName: String) -> TrustPolicy {
        guard protocolName == TLSContext.protocolName, var policy = certificateTrust else {
            return trust
        }
        policy.denied = trust.denied
        return policy
    }

    /// The keys by which a process that has several identities tells their dials apart: the Noise
    /// public key, and the fingerprint of the certificate's key.
    var ownKeys: [UInt8] { (identity?.publicKey ?? []) + (tls?.identity.fingerprint.digest ?? []) }

    /// The fingerprint of the key that this side proves with `protocolName`.
    func ownFingerprint(for protocolName: String) -> Fingerprint? {
        protocolName == TLSContext.protocolName
            ? tls?.identity.fingerprint : identity?.fingerprint
    }

    /// Whether the peer claims one of this side's own keys.
    func isOwn(_ claimed: ClaimedIdentity) -> Bool {
        guard let key = claimed.fingerprint else { return false }
        return key == identity?.fingerprint || key == tls?.identity.fingerprint
    }
}

/// Throws `configuration` with `reason` unless `condition` is true.
func require(_ condition: Bool, _ reason: @autoclosure () -> String) throws(ChannelError) {
    guard condition else { throw ChannelError(.configuration, reason()) }
}
