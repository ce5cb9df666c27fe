/// Who the peer says it is, in a handshake that is not over.
///
/// A trust policy is asked about it before this side shows anything more of itself, and at that time
/// the peer need not have proven it: a recording of an earlier handshake claims the same. What a peer
/// has proven is a ``PeerIdentity``, and no claim becomes one outside an engine. Show a claim to a
/// person, compare it with what is expected, and act on ``PeerIdentity`` alone.
public struct ClaimedIdentity: Sendable, Hashable {
    private let identity: PeerIdentity

    /// A claim to be `identity`; engines make it.
    public init(_ identity: PeerIdentity) { self.identity = identity }

    /// The fingerprint of the key that the peer claims to hold, or `nil` where it claims none.
    public var fingerprint: Fingerprint? { identity.fingerprint }

    /// The one URI of the certificate that the peer has shown, where an authority vouches for it. The
    /// certificate is genuine; that the peer holds its key is the claim.
    public var uri: String? { identity.uri }
}

extension ClaimedIdentity: CustomStringConvertible {
    /// `claimed`, and the fingerprint, or a word where there is none.
    public var description: String { "claimed \(identity)" }
}
