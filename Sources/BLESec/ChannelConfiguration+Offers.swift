internal import BLESecChannelCore
internal import BLESecNoise
internal import BLESecNoiseEngine
internal import BLESecTLSEngine

// The configuration and its trust policy alone decide what may be offered; nothing that a peer
// sends changes that.
extension ChannelConfiguration {
    /// Refuses a configuration that contradicts itself, before anything is sent.
    func validate(for role: ChannelRole) throws(ChannelError) {
        guard !protocols.isEmpty else {
            throw ChannelError(.configuration, "a channel needs at least one protocol")
        }
        guard context.count <= 255 else {
            throw ChannelError(.configuration, "the context has at most 255 bytes")
        }
        for policy in [trust, certificateTrust] {
            if let contradiction = policy?.contradiction {
                throw ChannelError(.configuration, contradiction)
            }
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
            guard acknowledgement == .automatic else {
                throw ChannelError(
                    .configuration, "direct mode has no acknowledgements, so none can be manual")
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
        for offer in protocols {
            if offer == TLSContext.protocolName {
                _ = try tls(for: role)
            } else {
                plans.append(try plan(offer, for: role))
            }
        }
        // A pre-shared key may be used with one hash only (Noise §14), and does not say with which.
        // (A static key is stored with its hash.)
        let hashes = Set(plans.filter { !$0.presharedKeys.isEmpty }.map(\.name.hash))
        guard hashes.count <= 1 else {
            throw ChannelError(
                .configuration,
                "a pre-shared key belongs to one hash; offer protocols that end in the same one")
        }
    }

    /// Makes the engine for one offer.
    func makeEngine(
        _ offer: String, role: ChannelRole, prologue: [UInt8]
    ) throws(ChannelError) -> Engine {
        guard offer != TLSContext.protocolName else {
            return Engine(
                try TLSEngine(
                    try tls(for: role), role: role, isNegotiated: mode == .negotiated))
        }
        return Engine(try NoiseEngine(try plan(offer, for: role), prologue: prologue))
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

    /// Whether an identity is this device's own.
    func isOwn(_ claimed: ClaimedIdentity) -> Bool {
        guard let key = claimed.fingerprint else { return false }
        return key == identity?.fingerprint || key == tls?.identity.fingerprint
    }

    /// Checks and returns the TLS settings for a role.
    private func tls(for role: ChannelRole) throws(ChannelError) -> TLSContext {
        let name = TLSContext.protocolName
        guard let tls else {
            throw ChannelError(.configuration, "\(name) needs a certificate and its key")
        }
        guard prologue.isEmpty else {
            throw ChannelError(.configuration, "\(name) has no prologue")
        }
        guard certificateTrust?.denied == nil else {
            throw ChannelError(
                .configuration,
                "a deny list goes with the policy for all protocols, and not with the one for TLS")
        }
        guard !policy(for: name).requiresAuthority || tls.authorities != nil else {
            throw ChannelError(
                .configuration, "the policy asks what an authority vouches for, and TLS has none")
        }
        try tls.check(role)
        return tls
    }

    /// The plan to continue from the first message of the offer `attempt` with a fallback to
    /// `offer`; `nil` if these two offers have none.
    func fallback(
        _ offer: String, from attempt: String, for role: ChannelRole
    ) throws(ChannelError) -> NoisePlan? {
        guard offer != TLSContext.protocolName, let attempted = try? ProtocolName(attempt) else {
            return nil
        }
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
