/// A handshake pattern as data; Noise §7.
///
/// The fundamental patterns are in `PatternTable.swift`; modifiers transform the data
/// (`PatternModifier`). No other code in the module depends on a pattern's name.
public struct HandshakePattern: Sendable, Hashable, CustomStringConvertible {
    /// One message: its sender and its tokens; Noise §7.1.
    public struct Message: Sendable, Hashable {
        /// The sender of the message.
        public let sender: Role
        /// The tokens in order; a payload follows them.
        public internal(set) var tokens: [Token]
    }

    /// The name without modifiers, such as `XX`.
    public let baseName: String

    /// The modifiers in the order in which they were applied.
    public internal(set) var modifiers: [PatternModifier] = []

    /// The pattern before its first modifier; empty if there is none.
    var unmodified: [HandshakePattern] = []

    /// The initiator's keys that the responder knows before the handshake.
    public internal(set) var initiatorPreMessage: [Token]

    /// The responder's keys that the initiator knows before the handshake.
    public internal(set) var responderPreMessage: [Token]

    /// The messages in order.
    public internal(set) var messages: [Message]

    /// Makes a custom pattern; the parties take turns, and the initiator begins.
    ///
    /// - Parameters:
    ///   - name: uppercase letters and digits, beginning with a letter.
    ///   - initiatorPreMessage: the initiator's keys that the responder knows before the handshake.
    ///   - responderPreMessage: the responder's keys that the initiator knows before the handshake.
    ///   - messages: the tokens of each message.
    /// - Throws: `PatternError`, which names the broken rule of Noise §7.3 or §9.3. Also throws if
    ///   the name belongs to a different pattern of the specification, since only the name of a
    ///   pattern is hashed into the handshake.
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

    /// The longest name with modifiers, in bytes, that fits into a protocol name.
    static let maximumNameLength =
        ProtocolName.maximumLength - "Noise__25519_ChaChaPoly_BLAKE2b".utf8.count

    /// The name with its modifiers, as in a protocol name: `XXfallback+psk0`.
    public var name: String { baseName + modifiers.map(\.name).joined(separator: "+") }

    /// The same as `name`.
    public var description: String { name }

    /// The keys of `role` that the other party knows before the handshake.
    public func preMessage(of role: Role) -> [Token] {
        switch role {
        case .initiator: initiatorPreMessage
        case .responder: responderPreMessage
        }
    }
}
