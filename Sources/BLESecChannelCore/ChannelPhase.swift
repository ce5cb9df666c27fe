/// How far a channel has come; each phase has a deadline of its own.
public enum ChannelPhase: String, Sendable, Hashable {
    /// The link is being opened.
    case connecting
    /// Hello and answer are on their way.
    case negotiating
    /// Handshake messages are on their way.
    case handshaking
    /// The local trust policy is deciding about the peer.
    case awaitingTrustDecision
    /// The handshake is over; the peer's `ready` is not here yet.
    case proving
    /// Both sides are proven; application data flows.
    case established
    /// `end` was sent or received, and acknowledgements are outstanding.
    case closing
    /// Nothing is left: the keys are wiped and the link is closed.
    case closed
}

/// Who opened the link. The roles stay what they are for the link's whole life.
public enum ChannelRole: UInt8, Sendable, Hashable {
    /// Opened the link: Noise's initiator, TLS's client.
    case dialer = 0
    /// Accepted the link: Noise's responder, TLS's server.
    case acceptor = 1

    /// The other side's role.
    public var peer: ChannelRole { self == .dialer ? .acceptor : .dialer }
}
