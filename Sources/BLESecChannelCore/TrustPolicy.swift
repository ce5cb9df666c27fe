/// Decides which peers may be at the other end of a channel.
///
/// A policy is asked once per handshake, as soon as the peer's key is known: if the pattern allows
/// it, before this side sends its own key. A policy that remembers peers stores the peer's key only
/// after the peer's `ready` record or, in direct mode, after the peer has proven its key.
public struct TrustPolicy: Sendable {
    /// A policy's decision about one peer.
    public enum Verdict: Sendable {
        /// The peer is accepted.
        case admit
        /// The peer is refused. The text says why, and is not sent to the peer.
        case refuse(String)

        /// The error with which the peer is refused; nil if it is accepted.
        package var refusal: ChannelError? {
            if case .refuse(let reason) = self { ChannelError(.untrusted, reason) } else { nil }
        }
    }

    /// Decides about a claimed identity, which may not be proven yet; an error refuses the peer.
    public typealias Evaluation = @Sendable (ClaimedIdentity) async throws -> Verdict
    /// Decides as an ``Evaluation`` does, but waits for nobody. The call may read a small file.
    package typealias Condition = @Sendable (ClaimedIdentity) throws(ChannelError) -> Verdict

    package enum Rule: Sendable {
        case pinned([PeerKey])
        case firstUse(any TrustStore, name: String)
        case enrolled(any TrustStore, window: PairingWindow?)
        case pairing(PairingRule)
        case authority(uris: Set<String>?)
        case anyone
        case asking(Evaluation)
    }

    package let rule: Rule
    /// Decides about a peer that the rule has admitted; nil if the rule alone decides.
    private(set) var condition: Condition?
    /// Keys that are refused whatever the rule decides.
    public var denied: DenyList?

    /// Accepts only holders of one of `keys`. A configuration with an empty list is refused.
    public static func pinned(_ keys: [PeerKey]) -> TrustPolicy { TrustPolicy(rule: .pinned(keys)) }

    /// Accepts only holders of a key with one of these fingerprints.
    public static func pinned(_ first: Fingerprint, _ others: Fingerprint...) -> TrustPolicy {
        .pinned(([first] + others).map { PeerKey(fingerprint: $0) })
    }

    /// Accepts only holders of one of these keys.
    public static func pinned(_ first: PeerKey, _ others: PeerKey...) -> TrustPolicy {
        .pinned([first] + others)
    }

    /// For a dialer: remembers the first key seen under `name`, and accepts only this key later.
    ///
    /// `name` must be the application's own name for the peer, never a name that the peer sends.
    public static func firstUse(_ store: any TrustStore, name: String) -> TrustPolicy {
        TrustPolicy(rule: .firstUse(store, name: name))
    }

    /// For a listener: accepts keys in the store, and new keys only while `window` is open.
    public static func enrolled(
        _ store: any TrustStore, window: PairingWindow? = nil
    ) -> TrustPolicy {
        TrustPolicy(rule: .enrolled(store, window: window))
    }

    /// Pairs with a peer that this side does not know yet, and stores the peer's key under `name`.
    ///
    /// Both sides have to use this policy, with the same way of pairing. The channel is ready when
    /// both sides have confirmed the pairing, and each store has the other side's key. From then
    /// on, other policies over the same store accept the peer. If the link is lost during the last
    /// confirmations, the channel fails with `mayBePaired`. The peer is then pending in the store,
    /// and the next handshake with this policy completes the pairing.
    ///
    /// With an invitation, the side that made it has to listen, and the side that reads it has to
    /// dial. SECURITY.md, "Pairing", says what each way protects, and how likely an attack is to
    /// succeed.
    ///
    /// - Parameters:
    ///   - way: the way of pairing: an invitation, a code, or a comparison of digits.
    ///   - store: where the peer is kept, also while the pairing is not complete.
    ///   - name: this side's own name for the peer; pairing is refused if the store has another key
    ///     under this name.
    public static func pairing(
        _ way: Pairing, store: any TrustStore, name: String
    ) -> TrustPolicy {
        TrustPolicy(rule: .pairing(PairingRule(way: way, store: store, name: name)))
    }

    /// Accepts only holders of a certificate that one of the authorities in the TLS configuration
    /// vouches for. With `uris`, accepts only certificates whose single URI is in the set, compared
    /// byte by byte; an empty set is refused. Does not work with Noise.
    public static func authority(uris: Set<String>? = nil) -> TrustPolicy {
        TrustPolicy(rule: .authority(uris: uris))
    }

    /// Accepts every peer. The channel is encrypted, but the peer may be an attacker.
    public static let anyone = TrustPolicy(rule: .anyone)

    /// Accepts the peers that `evaluate` admits. The call may take up to
    /// ``ChannelTimeouts/trustDecision``, because a person may have to compare a fingerprint. The
    /// peer waits for the decision too, and by default only 10 seconds: an application that asks a
    /// person sets ``ChannelTimeouts/ready`` and ``ChannelTimeouts/handshake`` higher on the peer.
    ///
    /// If the peer does not wait until the call returns, the task of the call is cancelled, and the
    /// call should end. Until the call ends, it counts towards the listener's limit of decisions.
    /// While this limit is reached, other peers are turned away. Peers that have proven nothing can
    /// use up the limit, so use another policy where no person is asked.
    ///
    /// An admitted identity is only claimed: the channel opens only after the peer has proven it.
    public static func asking(_ evaluate: @escaping Evaluation) -> TrustPolicy {
        TrustPolicy(rule: .asking(evaluate))
    }

    /// The same policy with a deny list, which takes precedence.
    public func denying(_ list: DenyList) -> TrustPolicy {
        var policy = self
        policy.denied = list
        return policy
    }

    /// The same policy with one more condition: the new policy accepts a peer only if `condition`
    /// admits the peer too. The condition is checked in each handshake, after the rule and earlier conditions
    /// have admitted the peer.
    package func requiring(_ condition: @escaping Condition) -> TrustPolicy {
        var policy = self
        policy.condition =
            if let earlier = self.condition {
                { claimed throws(ChannelError) in
                    let verdict = try earlier(claimed)
                    guard case .admit = verdict else { return verdict }
                    return try condition(claimed)
                }
            } else { condition }
        return policy
    }

    private init(rule: Rule) { self.rule = rule }

    /// The reason why the policy can never admit a peer, if there is one. Such a policy is an error
    /// of the application. Without this check, its refusals would look like faults of the peers.
    package var contradiction: String? {
        switch rule {
        case .pinned(let keys) where keys.isEmpty:
            "a policy of pinned keys without any key admits nobody: give the peers' keys, or another "
                + "policy"
        case .authority(let uris?) where uris.isEmpty:
            "a policy of certificates' names without any name admits nobody: give the peers' URIs, or "
                + "nil for every peer that the authority vouches for"
        case .pinned, .firstUse, .enrolled, .pairing, .authority, .anyone, .asking: nil
        }
    }

    /// Whether the policy admits only peers with a key, which the pattern must therefore prove.
    package var requiresPeerKey: Bool {
        switch rule {
        case .pinned, .firstUse, .enrolled, .pairing, .authority: true
        case .anyone, .asking: false
        }
    }

    /// Whether the policy requires names that an authority vouches for.
    package var requiresAuthority: Bool { if case .authority = rule { true } else { false } }

    /// The raw keys that are known before the handshake, for patterns such as IK.
    package var knownKeys: [[UInt8]] {
        if case .pinned(let keys) = rule { keys.compactMap(\.publicKey) } else { [] }
    }
}
