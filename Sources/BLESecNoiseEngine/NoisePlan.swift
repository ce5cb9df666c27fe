package import BLESecChannelCore
package import BLESecNoise
package import BLESecPrimitives

/// An offered Noise protocol that was checked against an identity and a trust policy, for one role.
///
/// An offer that fails the check is never sent. An offer fails, for example, if its protocol proves
/// less than the policy requires, or if the identity key is for another hash function.
package struct NoisePlan: Sendable {
    package private(set) var name: ProtocolName
    /// This side's role on the link.
    package let role: ChannelRole
    /// This side's static key pair; nil if the pattern needs none.
    package let identity: IdentityKey?
    /// The peer's static key, if the pattern needs it in advance.
    package let remoteStatic: [UInt8]?
    /// The pre-shared keys, in the order of the pattern's `psk` tokens.
    package let presharedKeys: [PreSharedKey]
    /// A fixed ephemeral key, only for the worked examples of the wire format.
    package var fixedEphemeral: DHKeyPair?

    /// Checks an offer.
    ///
    /// - Throws: `configuration`, whose reason names the rule that the offer breaks.
    package init(
        _ offer: String, role: ChannelRole, identity: IdentityKey?, trust: TrustPolicy,
        presharedKeys: [PreSharedKey], allowsExposedIdentity: Bool
    ) throws(ChannelError) {
        do {
            name = try ProtocolName(offer)
        } catch {
            throw ChannelError(.configuration, "\(offer): \(error)")
        }
        let pattern = name.pattern
        self.role = role
        guard !pattern.isOneWay, !pattern.isFallback else {
            throw Self.refusal(offer, "a one-way or fallback pattern cannot be offered")
        }
        guard !trust.requiresAuthority else {
            throw Self.refusal(
                offer,
                "the policy requires a certificate from an authority, and Noise has no certificates"
            )
        }
        guard !trust.requiresPeerKey || pattern.authenticates(role.noiseRole.peer) else {
            throw Self.refusal(offer, "it does not prove the peer's key, as the policy requires")
        }
        self.identity = try Self.identity(
            offer, name, role, identity, allowsExposedIdentity: allowsExposedIdentity)
        remoteStatic = try Self.remoteStatic(offer, name, role, trust)
        guard presharedKeys.count >= pattern.pskCount else {
            throw Self.refusal(
                offer, "it needs \(pattern.pskCount) pre-shared keys, not \(presharedKeys.count)")
        }
        self.presharedKeys = Array(presharedKeys.prefix(pattern.pskCount))
    }

    /// This offer as a fallback that reuses the ephemeral key of `attempt`'s first message (Noise
    /// §10.4).
    ///
    /// The fallback is needed if the dialer used an outdated key of the acceptor: the acceptor then
    /// cannot read the first message. Returns `nil` unless this offer is XX over the curve of
    /// `attempt`, and the pattern of `attempt` needs the acceptor's key in advance.
    package func fallback(from attempt: ProtocolName) -> NoisePlan? {
        guard name.pattern.name == "XX", name.curve == attempt.curve,
            attempt.pattern.requiresRemoteStatic(.initiator), !attempt.pattern.isOneWay,
            let pattern = try? name.pattern.applying(.fallback)
        else { return nil }
        var plan = self
        plan.name = ProtocolName(
            pattern: pattern, curve: name.curve, aead: name.aead, hash: name.hash)
        return plan
    }

    private static func identity(
        _ offer: String, _ name: ProtocolName, _ role: ChannelRole, _ identity: IdentityKey?,
        allowsExposedIdentity: Bool
    ) throws(ChannelError) -> IdentityKey? {
        guard name.pattern.requiresLocalStatic(role.noiseRole) else { return nil }
        guard let identity else { throw refusal(offer, "it needs an identity key") }
        guard identity.keyPair.curve == name.curve else {
            throw refusal(offer, "the identity key is of another curve")
        }
        guard identity.hash == name.hash else {
            throw refusal(
                offer,
                "the identity key is for another hash function; a static key may be used with only "
                    + "one")
        }
        switch name.pattern.staticKeyExposure(of: role.noiseRole) {
        case .unused, .known, .protected: break
        // An acceptor may show its key to any peer, as in XX, since it answers every dialer.
        case .anyPeer where role == .acceptor: break
        case .anyPeer, .clear:
            guard allowsExposedIdentity else {
                throw refusal(offer, "it shows this side's key to anyone; allow that explicitly")
            }
        }
        return identity
    }

    private static func remoteStatic(
        _ offer: String, _ name: ProtocolName, _ role: ChannelRole, _ trust: TrustPolicy
    ) throws(ChannelError) -> [UInt8]? {
        guard name.pattern.requiresRemoteStatic(role.noiseRole) else { return nil }
        let keys = Set(trust.knownKeys.filter { $0.count == name.curve.keyLength })
        guard let key = keys.first, keys.count == 1 else {
            throw refusal(
                offer, "it needs the peer's public key, exactly one, and not only its fingerprint")
        }
        return key
    }

    private static func refusal(_ offer: String, _ why: String) -> ChannelError {
        ChannelError(.configuration, "\(offer) cannot be used: \(why)")
    }
}

extension ChannelRole {
    var noiseRole: Role { self == .dialer ? .initiator : .responder }
}
