/// Who may be at the other end of a channel.
///
/// A policy is asked once a handshake, when the peer's key is known and before one's own key is
/// sent where the pattern allows that; what it remembers is written only after the peer's `ready`.
public struct TrustPolicy: Sendable {
    /// A policy's word on one peer.
    public enum Verdict: Sendable {
        /// The peer is who it should be.
        case admit
        /// The peer is not; the text stays on this side.
        case refuse(String)
    }

    /// Decides about an identity that the peer claims and need not have proven yet; a throw counts as
    /// a refusal.
    public typealias Evaluation = @Sendable (ClaimedIdentity) async throws -> Verdict

    package enum Rule: Sendable {
        case pinned([PeerKey])
        case firstUse(any TrustStore, name: String)
        case enrolled(any TrustStore, window: PairingWindow?)
        case authority(uris: Set<String>?)
        case anyone
        case asking(Evaluation)
    }

    package let rule: Rule
    /// Keys that are refused whatever the rule says.
    public var denied: DenyList?

    /// Only holders of one of `keys`. A configuration with an empty list is refused.
    public static func pinned(_ keys: [PeerKey]) -> TrustPolicy { TrustPolicy(rule: .pinned(keys)) }

    /// Only holders of a key with one of these fingerprints.
    public static func pinned(_ first: Fingerprint, _ others: Fingerprint...) -> TrustPolicy {
        .pinned(([first] + others).map { PeerKey(fingerprint: $0) })
    }

    /// Only holders of one of these keys.
    public static func pinned(_ first: PeerKey, _ others: PeerKey...) -> TrustPolicy {
        .pinned([first] + others)
    }

    /// For a dialer: the key first seen under `name` is the only one accepted under it afterwards.
    ///
    /// `name` is what the application calls the peer, never something the peer says of itself.
    public static func firstUse(_ store: any TrustStore, name: String) -> TrustPolicy {
        TrustPolicy(rule: .firstUse(store, name: name))
    }

    /// For a listener: keys in the store, and new ones only while `window` is open.
    public static func enrolled(
        _ store: any TrustStore, window: PairingWindow? = nil
    ) -> TrustPolicy {
        TrustPolicy(rule: .enrolled(store, window: window))
    }

    /// Only holders of a certificate that an authority vouches for, one of those that TLS is given;
    /// with `uris`, only those whose one name is among them, byte by byte; an empty set is refused. Noise
    /// cannot answer it.
    public static func authority(uris: Set<String>? = nil) -> TrustPolicy {
        TrustPolicy(rule: .authority(uris: uris))
    }

    /// Whoever comes. The channel is encrypted, and the other end may be an attacker.
    public static let anyone = TrustPolicy(rule: .anyone)

    /// Whatever `evaluate` says, which may take its time: a person may have to look at a fingerprint.
    ///
    /// That somebody claims an identity is no proof that they are there, even where `evaluate` admits it:
    /// the channel exists only when they have proven it.
    public static func asking(_ evaluate: @escaping Evaluation) -> TrustPolicy {
        TrustPolicy(rule: .asking(evaluate))
    }

    /// The same policy with a deny list, which beats it.
    public func denying(_ list: DenyList) -> TrustPolicy {
        var policy = self
        policy.denied = list
        return policy
    }

    private init(rule: Rule) { self.rule = rule }

    /// Why the policy can never admit anybody, if so. That is a mistake of the application, and would look
    /// like a fault of the peers.
    package var contradiction: String? {
        switch rule {
        case .pinned(let keys) where keys.isEmpty:
            "a policy of pinned keys without any key admits nobody: give the peers' keys, or another "
                + "policy"
        case .authority(let uris?) where uris.isEmpty:
            "a policy of certificates' names without any name admits nobody: give the peers' URIs, or "
                + "none at all for whoever the authority vouches for"
        case .pinned, .firstUse, .enrolled, .authority, .anyone, .asking: nil
        }
    }

    /// Whether the policy is about keys, so that only patterns that prove the peer's key will do.
    package var requiresPeerKey: Bool {
        switch rule {
        case .pinned, .firstUse, .enrolled, .authority: true
        case .anyone, .asking: false
        }
    }

    /// Whether the policy is about names that an authority vouches for.
    package var requiresAuthority: Bool {
        if case .authority = rule { true } else { false }
    }

    /// Raw keys that are known before the handshake, for patterns such as IK.
    package var knownKeys: [[UInt8]] {
        switch rule {
        case .pinned(let keys): keys.compactMap(\.publicKey)
        case .firstUse, .enrolled, .authority, .anyone, .asking: []
        }
    }
}
