/// The role of a party in a handshake; `initiator` in Noise §5.3.
public enum Role: Sendable, Hashable, CaseIterable {
    /// The left side of a pattern, which sends the first message unless the pattern is a fallback.
    case initiator
    /// The right side of a pattern.
    case responder

    /// The other role.
    public var peer: Role { self == .initiator ? .responder : .initiator }
}
