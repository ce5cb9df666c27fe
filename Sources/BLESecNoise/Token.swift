/// A step in a message of a handshake pattern; Noise §7.1.
public enum Token: String, Sendable, Hashable, CaseIterable {
    /// The sender's ephemeral public key, newly generated and in clear.
    case e
    /// The sender's static public key, encrypted once there is a key.
    case s
    /// The Diffie-Hellman product of both ephemeral keys.
    case ee
    /// The product of the initiator's ephemeral and the responder's static key.
    case es
    /// The product of the initiator's static and the responder's ephemeral key.
    case se
    /// The product of both static keys.
    case ss
    /// The next pre-shared key; Noise §9.
    case psk

    /// The two keys of a Diffie-Hellman token, the initiator's first; nil for other tokens.
    var dhKeys: (initiator: Token, responder: Token)? {
        switch self {
        case .ee: (.e, .e)
        case .es: (.e, .s)
        case .se: (.s, .e)
        case .ss: (.s, .s)
        case .e, .s, .psk: nil
        }
    }
}
