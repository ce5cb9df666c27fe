internal import BLESecChannelCore
internal import BLESecNoise
internal import BLESecNoiseEngine
internal import BLESecPrimitives
internal import BLESecTLSEngine

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

    /// The plan of a fallback to `offer` after the first handshake message of the offer `attempt` was
    /// sent; `nil` if a handshake of `attempt` cannot fall back to `offer`.
    func fallback(_ offer: String, from attempt: String) -> NoisePlan? {
        guard let plan = noise[offer], let attempted = try? ProtocolName(attempt) else {
            return nil
        }
        return plan.fallback(from: attempted)
    }
}

extension ChannelConfiguration {
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

extension ChannelError {
    fileprivate static func notOffered(_ offer: String) -> ChannelError {
        ChannelError(.internal, "\(offer) is none of this side's offers")
    }
}
