/// The phases of a channel. ``ChannelTimeouts`` limits how long they last.
public enum ChannelPhase: String, Sendable, Hashable {
    /// The link is being opened.
    case connecting
    /// Hello and answer are being exchanged.
    case negotiating
    /// Handshake messages are being exchanged.
    case handshaking
    /// The local trust policy is deciding about the peer, or a person here compares digits.
    case awaitingTrustDecision
    /// The handshake is over; the peer's `ready` (in direct mode, its proof) has not arrived yet, or
    /// the two sides are pairing.
    case proving
    /// The peer has given every proof that the protocol asks for; application data can be sent.
    case established
    /// An end was sent or received, and the channel is not over yet.
    case closing
    /// The channel has ended: the keys are wiped and the link is closed.
    case closed
}

/// Which side opened the link. A side keeps its role for the link's whole life.
public enum ChannelRole: UInt8, Sendable, Hashable {
    /// Opened the link: Noise's initiator, TLS's client.
    case dialer = 0
    /// Accepted the link: Noise's responder, TLS's server.
    case acceptor = 1

    /// The other side's role.
    public var peer: ChannelRole { self == .dialer ? .acceptor : .dialer }
}
