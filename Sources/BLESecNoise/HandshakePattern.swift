internal import BLESecPrimitives

/// A handshake pattern as data; Noise §7.
///
/// The specification's patterns are in `PatternTable.swift`; modifiers transform the data
/// (`PatternModifier`). The code that runs a handshake knows no pattern by its name.
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
    /// The pattern without its modifiers; empty if the pattern has no modifiers. An array, since a
    /// struct cannot contain itself.
    var unmodified: [HandshakePattern] = []
    /// The initiator's keys that the responder knows before the handshake.
    public internal(set) var initiatorPreMessage: [Token]
    /// The responder's keys that the initiator knows before the handshake.
    public internal(set) var responderPreMessage: [Token]
    /// The messages in order.
    public internal(set) var messages: [Message] { didSet { pskCount = Self.pskCount(messages) } }
    /// The number of pre-shared keys in the pattern.
    public private(set) var pskCount: Int

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
        let letters = UInt8(ascii: "A")...UInt8(ascii: "Z")
        guard let first = name.utf8.first, letters ~= first,
            name.utf8.allSatisfy({ letters ~= $0 || UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 })
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
        pskCount = Self.pskCount(self.messages)
    }

    /// The greatest length of a pattern's name in bytes. A protocol name of 255 bytes has room for
    /// such a name and for the longest names of algorithms.
    static let maximumNameLength =
        ProtocolName.maximumLength - "Noise__25519_ChaChaPoly_BLAKE2b".utf8.count

    /// The name with its modifiers, as in a protocol name: `XXfallback+psk0`.
    public var name: String { baseName + modifiers.map(\.name).joined(separator: "+") }
    /// The same as `name`.
    public var description: String { name }

    /// The keys of `role` that the other party knows before the handshake.
    public func preMessage(of role: Role) -> [Token] {
        role == .initiator ? initiatorPreMessage : responderPreMessage
    }
}

/// The requirements and the security properties of a pattern.
extension HandshakePattern {
    /// How the other party gets a party's static public key, and who else can read it; Noise §7.8.
    public enum StaticKeyExposure: Sendable, Hashable {
        /// The party has no static key in this pattern.
        case unused
        /// The other party knows the key before the handshake, and no message carries the key.
        case known
        /// The message at this index carries the key in clear: every eavesdropper can read the key.
        case clear(message: Int)
        /// The message at this index carries the key encrypted, to a party that has proven nothing
        /// yet: anyone who runs the protocol with the sender can read the key.
        case anyPeer(message: Int)
        /// The message at this index carries the key encrypted, and the encryption depends on a psk
        /// or on the reader's static key.
        case protected(message: Int)
    }

    /// Whether only the initiator sends messages; Noise §7.4.
    public var isOneWay: Bool { messages.allSatisfy { $0.sender == .initiator } }
    /// Whether the responder sends the first message, as the answer to the first message of an
    /// earlier handshake; Noise §10.
    public var isFallback: Bool { modifiers.contains(.fallback) }

    private static func pskCount(_ messages: [Message]) -> Int {
        messages.reduce(0) { $0 + $1.tokens.count { $0 == .psk } }
    }

    /// The numbers N of the `pskN` modifiers. `psk0` places the token before the other tokens of
    /// message 0, and `pskN` after the tokens of message N − 1.
    public var pskPositions: [Int] {
        modifiers.compactMap { if case .psk(let position) = $0 { position } else { nil } }
    }

    /// Whether `role` needs a static key pair.
    public func requiresLocalStatic(_ role: Role) -> Bool {
        preMessage(of: role).contains(.s) || messageCarryingStatic(of: role) != nil
    }

    /// Whether `role` has to know the other party's static key before the handshake.
    public func requiresRemoteStatic(_ role: Role) -> Bool {
        preMessage(of: role.peer).contains(.s)
    }

    /// Whether a finished handshake proves to the other party that `role` has its static private
    /// key.
    ///
    /// True if the handshake includes a Diffie-Hellman product of that key with the other party's
    /// ephemeral or static key. The static key counts because the responder of a one-way pattern
    /// has no ephemeral key. The proof covers only what the other party sends or reads
    /// *afterwards*: Noise §7.7.
    public func authenticates(_ role: Role) -> Bool {
        let tokens = messages.flatMap(\.tokens)
        return tokens.contains(role == .initiator ? .se : .es) || tokens.contains(.ss)
    }

    /// Whether the first `count` messages prove to the other party that `role` has its keys: its
    /// static private key, if this pattern uses one, and every pre-shared key.
    ///
    /// A key is proven by a message from `role` whose encryption depends on the key *and* on an
    /// ephemeral key of the other party. Such a message cannot be a replay. An attacker who has
    /// stolen the other party's private key cannot forge such a message either, but could forge a
    /// message whose encryption depends on `ss` alone. The payloads of messages that prove a static
    /// key in this way have source property 2 in Noise §7.7.
    ///
    /// If the result is false even after all messages of the handshake, the first transport message
    /// of `role` is the proof, except in one-way patterns. For a party with nothing to prove, the
    /// result is always true. A negative `count` counts as 0.
    public func isProven(_ role: Role, after count: Int) -> Bool {
        let product: Token = role == .initiator ? .se : .es
        // True from the start if there is no static key to prove.
        var isStaticMixed = !requiresLocalStatic(role)
        var peerHasSentEphemeral = preMessage(of: role.peer).contains(.e)
        var missingPSKs = pskCount
        if isStaticMixed && missingPSKs == 0 { return true }
        for message in messages.prefix(max(0, count)) {
            for token in message.tokens {
                if token == product { isStaticMixed = true }
                if token == .psk { missingPSKs -= 1 }
            }
            if message.sender != role {
                if message.tokens.contains(.e) { peerHasSentEphemeral = true }
            } else if isStaticMixed, peerHasSentEphemeral, missingPSKs == 0 {
                return true
            }
        }
        return false
    }

    /// The index of the message that carries the static public key of `role`; nil if there is none.
    public func messageCarryingStatic(of role: Role) -> Int? {
        messages.firstIndex { $0.sender == role && $0.tokens.contains(.s) }
    }

    /// How the other party gets the static public key of `role`.
    public func staticKeyExposure(of role: Role) -> StaticKeyExposure {
        guard let index = messageCarryingStatic(of: role) else {
            return preMessage(of: role).contains(.s) ? .known : .unused
        }
        var tokensBefore = messages[..<index].flatMap(\.tokens)
        tokensBefore += messages[index].tokens.prefix { $0 != .s }
        guard tokensBefore.contains(where: \.setsKey) else { return .clear(message: index) }
        // The product of the sender's ephemeral and the reader's static key.
        let readerProduct: Token = role == .initiator ? .es : .se
        let isProtected =
            tokensBefore.contains(.psk) || tokensBefore.contains(readerProduct)
            || tokensBefore.contains(.ss)
        return isProtected ? .protected(message: index) : .anyPeer(message: index)
    }

    /// The length of message `index` with an empty payload, in bytes.
    ///
    /// - Parameters:
    ///   - index: the message's index, from 0.
    ///   - keyLength: DHLEN in bytes.
    public func overhead(ofMessage index: Int, keyLength: Int) -> Int {
        // In a psk handshake, ephemeral keys are mixed into the key as well (Noise §9.2).
        let hasPSK = pskCount > 0
        func setsKey(_ token: Token) -> Bool { token.setsKey || (hasPSK && token == .e) }
        var hasKey =
            initiatorPreMessage.contains(where: setsKey)
            || responderPreMessage.contains(where: setsKey)
            || messages[..<index].contains { $0.tokens.contains(where: setsKey) }
        var length = 0
        for token in messages[index].tokens {
            if token == .e { length += keyLength }
            if token == .s { length += keyLength + (hasKey ? AEADAlgorithm.tagLength : 0) }
            if setsKey(token) { hasKey = true }
        }
        return length + (hasKey ? AEADAlgorithm.tagLength : 0)
    }
}

extension Token {
    /// Whether the token gives the handshake a key that only its parties know.
    var setsKey: Bool { dhKeys != nil || self == .psk }
}
