/// A pattern or modifier that the framework does not allow; Noise §7.3, §8.1, §9.3 and §10.2.
public enum PatternError: Error, Sendable, Hashable {
    /// A name that is not uppercase letters and digits.
    case badName(String)
    /// A pattern of one's own under the name of another one.
    case nameTaken(String)
    /// A name that no protocol name has room for, with its length in bytes (Noise §8).
    case nameTooLong(Int)
    /// No message at all.
    case noMessages
    /// Neither a product nor a psk: what comes out of the handshake is known to everybody.
    case noSecret
    /// A pre-message that is not `e`, `s` or `e, s` (Noise §7.1).
    case badPreMessage(Role)
    /// A modifier twice.
    case repeatedModifier(String)
    /// Two modifiers that may stand in either order and are not in alphabetical order (Noise §8.1).
    case modifiersNotSorted(String, String)
    /// A `pskN` whose N is above the number of messages (Noise §9.4).
    case noSuchMessage(modifier: String, messages: Int)
    /// A fallback whose first message is not `e`, `s` or `e, s` (Noise §10.2).
    case noFallback(pattern: String)
    /// A key that is sent twice (Noise §7.3, rule 2).
    case keySentTwice(Token, Role)
    /// A product of a key that is not there yet (Noise §7.3, rule 1).
    case keyMissing(for: Token)
    /// A product that is computed twice (Noise §7.3, rule 3).
    case repeatedProduct(Token)
    /// Something encrypted after a product with one's static key, and without the same product
    /// with one's ephemeral (Noise §7.3, rule 4).
    case encryptsWithoutEphemeral(Role, after: Token, needs: Token)
    /// Something encrypted after a psk by a party that has sent no ephemeral (Noise §9.3).
    case pskWithoutEphemeral(Role)
}

extension PatternError: CustomStringConvertible {
    /// The broken rule in words.
    public var description: String {
        switch self {
        case .badName(let name): "'\(name)' is not a pattern's name"
        case .nameTaken(let name): "'\(name)' is another pattern's name"
        case .nameTooLong(let count):
            "the name has \(count) bytes, and a protocol name has room for "
                + "\(HandshakePattern.maximumNameLength) (Noise §8)"
        case .noMessages: "the pattern has no message"
        case .noSecret:
            "the pattern has neither a product nor a psk: its keys are known to everybody"
        case .badPreMessage(let role):
            "the \(role)'s pre-message is none of 'e', 's' and 'e, s' (Noise §7.1)"
        case .repeatedModifier(let name): "the modifier '\(name)' stands twice"
        case .modifiersNotSorted(let first, let second):
            "the modifiers '\(first)' and '\(second)' have to stand in alphabetical order"
                + " (Noise §8.1)"
        case .noSuchMessage(let modifier, let messages):
            "'\(modifier)' is behind the pattern's last message, which is number \(messages)"
                + " (Noise §9.4)"
        case .noFallback(let pattern):
            "'\(pattern)' has no fallback: its first message is none of 'e', 's' and 'e, s'"
                + " (Noise §10.2)"
        case .keySentTwice(let token, let role):
            "the \(role) sends '\(token.rawValue)' twice (Noise §7.3)"
        case .keyMissing(let token):
            "'\(token.rawValue)' stands before the keys that it needs (Noise §7.3)"
        case .repeatedProduct(let token): "'\(token.rawValue)' stands twice (Noise §7.3)"
        case .encryptsWithoutEphemeral(let role, let after, let needs):
            "the \(role) encrypts after '\(after.rawValue)' without '\(needs.rawValue)'"
                + " (Noise §7.3)"
        case .pskWithoutEphemeral(let role):
            "the \(role) encrypts after a psk without having sent an ephemeral (Noise §9.3)"
        }
    }
}
