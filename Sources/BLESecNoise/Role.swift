/// A party's role in a handshake. Noise §5.3 has it as the Boolean variable `initiator`.
public enum Role: Sendable, Hashable, CaseIterable {
    /// The left side of a pattern, which sends the first message unless the pattern is a fallback.
    case initiator
    /// The right side of a pattern.
    case responder

    /// The other role.
    public var peer: Role { self == .initiator ? .responder : .initiator }
}
