/// A handshake pattern as data; Noise §7.
///
/// The fundamental patterns are in `PatternTable.swift`; modifiers transform the data
/// (`PatternModifier`), and nothing else in the module knows a pattern's name.
public struct HandshakePattern: Sendable, Hashable, CustomStringConvertible {
    /// One message: who sends it, and what it does; Noise §7.1.
    public struct Message: Sendable, Hashable {
        /// Who sends the message.
        public let sender: Role
        /// The tokens in their order; a payload follows them.
        public internal(set) var tokens: [Token]
    }

    /// The name without modifiers, for example `XX`.
    public let baseName: String

    /// The modifiers in the order in which they were applied.
    public internal(set) var modifiers: [PatternModifier] = []

    /// The pattern before its first modifier, where there is one.
    var unmodified: [HandshakePattern] = []

    /// What the responder knows of the initiator beforehand.
    public internal(set) var initiatorPreMessage: [Token]

    /// What the initiator knows of the responder beforehand.
    public internal(set) var responderPreMessage: [Token]

    /// The messages in their order.
    public internal(set) var messages: [Message]

    /// Makes a pattern of one's own; the parties take turns, the initiator begins.
    ///
    /// - Parameters:
    ///   - name: uppercase letters and digits, beginning with a letter.
    ///   - initiatorPreMessage: what the responder knows of the initiator beforehand.
    ///   - responderPreMessage: what the initiator knows of the responder beforehand.
    ///   - messages: the tokens of each message.
    /// - Throws: `PatternError`, naming the rule of Noise §7.3 or §9.3 that the pattern breaks; also
    ///   for the name of a pattern of the specification that is not this one, since the name is all
    ///   that the parties' hashes have of a pattern.
    public init(
        name: String, initiatorPreMessage: [Token] = [], responderPreMessage: [Token] = [],
        messages: [[Token]]
    ) throws(PatternError) {
        guard let first = name.utf8.first, UInt8(ascii: "A")...UInt8(ascii: "Z") ~= first,
            name.utf8.allSatisfy({
                UInt8(ascii: "A")...UInt8(ascii: "Z") ~= $0
                    || UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0
            })
        else { throw .badName(name) }
        self.init(
            unchecked: name, initiatorPreMessage: initiatorPreMessage,
            responderPreMessage: responderPreMessage, messages: messages)
        if let known = Self.named(name), known != self { throw .nameTaken(name) }
        try checkRules()
    }

    init(
        unchecked name: String, initiatorPreMessage: [Token], responderPreMessage: [Token],
        messages: [[Token]]
    ) {
        baseName = name
        self.initiatorPreMessage = initiatorPreMessage
        self.responderPreMessage = responderPreMessage
        self.messages = messages.enumerated().map { index, tokens in
            Message(sender: index.isMultiple(of: 2) ? .initiator : .responder, tokens: tokens)
        }
    }

    /// The longest name with modifiers, in bytes: what the other parts of a protocol name leave.
    static let maximumNameLength =
        ProtocolName.maximumLength - "Noise__25519_ChaChaPoly_BLAKE2b".utf8.count

    /// The name with its modifiers, as in a protocol name: `XXfallback+psk0`.
    public var name: String { baseName + modifiers.map(\.name).joined(separator: "+") }

    /// The same as `name`.
    public var description: String { name }

    /// What the other party knows of `role` beforehand.
    public func preMessage(of role: Role) -> [Token] {
        switch role {
        case .initiator: initiatorPreMessage
        case .responder: responderPreMessage
        }
    }
}
