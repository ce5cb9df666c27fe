/// An error in a pattern or modifier; Noise §7.3, §8.1, §9.3 and §10.2.
public enum PatternError: Error, Sendable, Hashable {
    /// The name does not consist of uppercase letters and digits, or begins with a digit.
    case badName(String)
    /// A custom pattern has the name of another pattern.
    case nameTaken(String)
    /// The name, with this length in bytes, does not fit into a protocol name (Noise §8).
    case nameTooLong(Int)
    /// The pattern has no messages.
    case noMessages
    /// The pattern has neither a Diffie-Hellman product nor a psk, so its keys are no secret.
    case noSecret
    /// A pre-message is not `e`, `s` or `e, s` (Noise §7.1).
    case badPreMessage(Role)
    /// A modifier is repeated.
    case repeatedModifier(String)
    /// Two modifiers whose order does not matter are not in alphabetical order (Noise §8.1).
    case modifiersNotSorted(String, String)
    /// The N of a `pskN` is negative, or greater than the number of messages (Noise §9.4).
    case noSuchMessage(modifier: String, messages: Int)
    /// The pattern cannot become a fallback: its first message is not the initiator's `e`, `s` or
    /// `e, s`, or is its only message (Noise §10.2).
    case noFallback(pattern: String)
    /// A key is sent twice (Noise §7.3, rule 2).
    case keySentTwice(Token, Role)
    /// A Diffie-Hellman product needs a key that the parties do not have yet (Noise §7.3, rule 1).
    case keyMissing(for: Token)
    /// A product is computed twice (Noise §7.3, rule 3).
    case repeatedProduct(Token)
    /// A party encrypts after a product with its static key, but without the same product with its
    /// ephemeral key (Noise §7.3, rule 4).
    case encryptsWithoutEphemeral(Role, after: Token, needs: Token)
    /// A party that has sent no ephemeral key encrypts after a psk (Noise §9.3).
    case pskWithoutEphemeral(Role)
}

extension PatternError: CustomStringConvertible {
    /// The broken rule as text.
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
        case .repeatedModifier(let name): "the modifier '\(name)' occurs twice"
        case .modifiersNotSorted(let first, let second):
            "the modifiers '\(first)' and '\(second)' have to be in alphabetical order"
                + " (Noise §8.1)"
        case .noSuchMessage(let modifier, let messages):
            "'\(modifier)' is for none of the pattern's messages, whose numbers are 1 to \(messages)"
                + " (Noise §9.4)"
        case .noFallback(let pattern):
            "'\(pattern)' has no fallback: its first message is none of 'e', 's' and 'e, s'"
                + " (Noise §10.2)"
        case .keySentTwice(let token, let role):
            "the \(role) sends '\(token.rawValue)' twice (Noise §7.3)"
        case .keyMissing(let token):
            "'\(token.rawValue)' comes before the keys that it needs (Noise §7.3)"
        case .repeatedProduct(let token): "'\(token.rawValue)' occurs twice (Noise §7.3)"
        case .encryptsWithoutEphemeral(let role, let after, let needs):
            "the \(role) encrypts after '\(after.rawValue)' without '\(needs.rawValue)'"
                + " (Noise §7.3)"
        case .pskWithoutEphemeral(let role):
            "the \(role) encrypts after a psk without having sent an ephemeral (Noise §9.3)"
        }
    }
}
