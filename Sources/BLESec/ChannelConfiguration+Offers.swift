internal import BLESecChannelCore
internal import BLESecNoise
internal import BLESecNoiseEngine
internal import BLESecPrimitives
internal import BLESecTLSEngine

// Only the configuration and its trust policy, and nothing from a peer, decide what is offered.
extension ChannelConfiguration {
    /// Refuses a configuration that contradicts itself or lacks a part, before anything is sent.
    func validate(for role: ChannelRole) throws(ChannelError) {
        _ = try OfferPlans(self, for: role)
    }

    /// Refuses settings that contradict each other or the role. Each protocol is checked later,
    /// when its plan is made.
    fileprivate func validateSettings(for role: ChannelRole) throws(ChannelError) {
        try validatePairing(for: role)
        try require(!offers.isEmpty, "a channel needs at least one protocol")
        try require(context.count <= 255, "the context has at most 255 bytes")
        try require(
            limits.readAhead > 0 && limits.unauthenticatedBytes > 0,
            "without a byte of room, nothing can be read from a peer")
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
            try require(
                !prologue.starts(with: "blesec/1".utf8),
                "a prologue of direct mode may not begin with blesec/1")
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

    /// The features that this side offers, in addition to the base of blesec/1: those that it
    /// requires, and those that need no configuration.
    var features: ChannelFeatures { requiredFeatures.union(.acknowledgesTaken) }

    /// The features that the peer has to offer too.
    var requiredFeatures: ChannelFeatures {
        var features = ChannelFeatures()
        if carriesDelivery { features.insert(.delivery) }
        if trust.pairingRule != nil { features.insert(.pairing) }
        return features
    }

    /// The policy that decides about a peer that uses `protocolName`.
    func policy(for protocolName: String) -> TrustPolicy {
        guard protocolName == TLSContext.protocolName, var policy = certificateTrust else {
            return trust
        }
        policy.denied = trust.denied
        return policy
    }

    /// The bytes that distinguish this device from other devices in the same process: its public
    /// key and the fingerprint of its certificate's key.
    var ownKeys: [UInt8] { (identity?.publicKey ?? []) + (tls?.identity.fingerprint.digest ?? []) }

    /// The fingerprint of the key that this side proves with `protocolName`.
    func ownFingerprint(for protocolName: String) -> Fingerprint? {
        protocolName == TLSContext.protocolName
            ? tls?.identity.fingerprint : identity?.fingerprint
    }

    func isOwn(_ claimed: ClaimedIdentity) -> Bool {
        guard let key = claimed.fingerprint else { return false }
        return key == identity?.fingerprint || key == tls?.identity.fingerprint
    }

    fileprivate func tls(for role: ChannelRole) throws(ChannelError) -> TLSContext {
        let name = TLSContext.protocolName
        guard let tls else {
            throw ChannelError(.configuration, "\(name) needs a certificate and its key")
        }
        try require(prologue.isEmpty, "\(name) has no prologue")
        try require(
            certificateTrust?.denied == nil,
            "a deny list goes with the policy for all protocols, and not with the one for TLS")
        try require(
            !policy(for: name).requiresAuthority || tls.authorities != nil,
            "the policy needs a certificate authority, and the TLS settings name none")
        try tls.check(role)
        return tls
    }

    /// The secret of an invitation as a pre-shared key; nil without an invitation.
    private func pairingKeys() throws(ChannelError) -> [PreSharedKey]? {
        guard let invitation = trust.pairingRule?.invitation else { return nil }
        do {
            return [try PreSharedKey(invitation.copyOfSecret())]
        } catch {
            throw ChannelError(.internal, "the invitation's secret is no key: \(error)")
        }
    }

    fileprivate func plan(_ offer: String, for role: ChannelRole) throws(ChannelError) -> NoisePlan
    {
        var plan = try NoisePlan(
            offer, role: role, identity: identity, trust: trust,
            presharedKeys: try pairingKeys() ?? presharedKeys,
            allowsExposedIdentity: allowsExposedIdentity)
        plan.fixedEphemeral = fixedEphemeral
        return plan
    }
}

/// The protocols that a side offers or accepts in one role, each checked and ready for use. A
/// listener makes these plans once for all of its channels.
struct OfferPlans: Sendable {
    private let role: ChannelRole
    private let isNegotiated: Bool
    private let noise: [String: NoisePlan]
    /// Nil if TLS is not offered.
    private let tls: TLSContext?

    /// - Throws: `configuration` if the configuration contradicts itself or lacks a part.
    init(
        _ configuration: ChannelConfiguration, for role: ChannelRole
    ) throws(ChannelError) {
        try configuration.validateSettings(for: role)
        self.role = role
        isNegotiated = configuration.mode == .negotiated
        var noise: [String: NoisePlan] = [:]
        var tls: TLSContext?
        for offer in configuration.offers {
            if offer == TLSContext.protocolName {
                tls = try configuration.tls(for: role)
            } else {
                noise[offer] = try configuration.plan(offer, for: role)
            }
        }
        self.noise = noise
        self.tls = tls
        try require(
            configuration.trust.pairingRule == nil
                || noise.values.allSatisfy { $0.identity != nil },
            "pairing needs protocols in which this side proves its key too")
        // A pre-shared key may be used with one hash only (Noise §14). A static key is stored with
        // its hash, but a pre-shared key is not, so the offers themselves must agree on the hash.
        let hashes = Set(noise.values.filter { !$0.presharedKeys.isEmpty }.map(\.name.hash))
        try require(
            hashes.count <= 1,
            "a pre-shared key belongs to one hash; offer protocols that use the same hash")
    }

    /// Makes an engine for `offer`, which must be one of the configuration's offers.
    func makeEngine(_ offer: String, prologue: [UInt8]) throws(ChannelError) -> Engine {
        if let tls, offer == TLSContext.protocolName {
            return Engine(try TLSEngine(tls, role: role, isNegotiated: isNegotiated))
        }
        guard let plan = noise[offer] else { throw .notOffered(offer) }
        return Engine(try NoiseEngine(plan, prologue: prologue))
    }

    /// The plan of a fallback to `offer` after the first handshake message of the offer `attempt`;
    /// `nil` if `attempt` cannot fall back to `offer`.
    func fallback(_ offer: String, from attempt: String) -> NoisePlan? {
        guard let plan = noise[offer], let attempted = try? ProtocolName(attempt) else {
            return nil
        }
        return plan.fallback(from: attempted)
    }
}

extension ChannelError {
    fileprivate static func notOffered(_ offer: String) -> ChannelError {
        ChannelError(.internal, "\(offer) is none of this side's offers")
    }
}
