/// Who a party is in a handshake; Noise §5.3's `initiator`.
public enum Role: Sendable, Hashable, CaseIterable {
    /// The left side of a pattern, who sends the first message unless the pattern is a fallback.
    case initiator
    /// The right side of a pattern.
    case responder

    /// The other role.
    public var peer: Role {
        switch self {
        case .initiator: .responder
        case .responder: .initiator
        }
    }
}
