/// The identity that the peer claims in an unfinished handshake.
///
/// A trust policy is asked about the claim before this side reveals anything more about itself. The
/// peer may not have proven the claim at that time: a replay of an earlier handshake makes the same
/// claim. A policy may show the claim to a person and compare it with the expected identity.
/// Everything else must rely on the ``PeerIdentity`` that the channel has after the proof.
public struct ClaimedIdentity: Sendable, Hashable, CustomStringConvertible {
    private let identity: PeerIdentity

    /// Makes a claim to be `identity`; called by engines.
    public init(_ identity: PeerIdentity) { self.identity = identity }

    /// The fingerprint of the key that the peer claims to hold, or `nil` if it claims none.
    public var fingerprint: Fingerprint? { identity.fingerprint }
    /// The only URI in the peer's certificate, if an authority vouches for the certificate. The
    /// certificate is genuine; that the peer holds the certificate's key is only claimed.
    public var uri: String? { identity.uri }

    /// `claimed`, then the fingerprint, or the kind of identity if there is no fingerprint.
    public var description: String { "claimed \(identity)" }
}
