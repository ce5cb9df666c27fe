internal import ChannelCore
internal import Noise
internal import NoiseEngine

// What may be offered is decided here, by the configuration and its trust policy; nothing that a
// peer says changes it.
extension ChannelConfiguration {
    /// Refuses a configuration that contradicts itself, before anything is sent.
    func validate(for role: ChannelRole) throws(ChannelError) {
        guard !protocols.isEmpty else {
            throw ChannelError(.configuration, "a channel needs at least one protocol")
        }
        guard context.count <= 255 else {
            throw ChannelError(.configuration, "the context has at most 255 bytes")
        }
        switch mode {
        case .negotiated:
            guard prologue.isEmpty else {
                throw ChannelError(
                    .configuration, "negotiated mode has its own prologue; use the context")
            }
        case .direct:
            guard protocols.count == 1 else {
                throw ChannelError(.configuration, "direct mode takes exactly one protocol")
            }
            guard context.isEmpty else {
                throw ChannelError(.configuration, "direct mode has no context; use the prologue")
            }
            guard !prologue.starts(with: "blesec/1".utf8) else {
                throw ChannelError(
                    .configuration, "a prologue of direct mode may not begin with blesec/1")
            }
        }
        var plans: [NoisePlan] = []
        for offer in protocols { plans.append(try plan(offer, for: role)) }
        // A static key has its hash with it; a pre-shared key has not (Noise §14).
        let hashes = Set(plans.filter { !$0.presharedKeys.isEmpty }.map(\.name.hash))
        guard hashes.count <= 1 else {
            throw ChannelError(
                .configuration,
                "a pre-shared key belongs to one hash; offer protocols that end in the same one")
        }
    }

    /// The engine of one offer.
    func makeEngine(
        _ offer: String, role: ChannelRole, prologue: [UInt8]
    ) throws(ChannelError) -> Engine {
        .noise(try NoiseEngine(try plan(offer, for: role), prologue: prologue))
    }

    /// The fallback of one offer from another one's first message; `nil` where there is none.
    func fallback(
        _ offer: String, from attempt: String, for role: ChannelRole
    ) throws(ChannelError) -> NoisePlan? {
        guard let attempted = try? ProtocolName(attempt) else { return nil }
        return try plan(offer, for: role).fallback(from: attempted)
    }

    private func plan(_ offer: String, for role: ChannelRole) throws(ChannelError) -> NoisePlan {
        var plan = try NoisePlan(
            offer, role: role, identity: identity, trust: trust, presharedKeys: presharedKeys,
            allowsExposedIdentity: allowsExposedIdentity)
        plan.fixedEphemeral = fixedEphemeral
        return plan
    }
}
