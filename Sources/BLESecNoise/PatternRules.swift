/// The validity rules of Noise §7.3 and §9.3.
extension HandshakePattern {
    /// Checks each step of the pattern, and throws the first broken rule.
    func checkRules() throws(PatternError) {
        guard !messages.isEmpty else { throw .noMessages }
        let length = name.utf8.count
        guard length <= Self.maximumNameLength else { throw .nameTooLong(length) }
        var state = RuleCheckState()
        for role in Role.allCases {
            let tokens = preMessage(of: role)
            guard [[], [.e], [.s], [.e, .s]].contains(tokens) else { throw .badPreMessage(role) }
            for token in tokens { try state.send(token, by: role) }
        }
        for message in messages {
            for token in message.tokens { try state.perform(token, by: message.sender) }
            try state.checkEncryption(by: message.sender)
        }
        try state.checkEncryption(by: .initiator)
        if !isOneWay { try state.checkEncryption(by: .responder) }
        guard state.hasSecret else { throw .noSecret }
    }
}

/// The state of the rule check after some steps of a pattern; Noise §7.3.
private struct RuleCheckState {
    /// The keys that each party has sent, also in a pre-message.
    private var sentKeys: [Role: Set<Token>] = [.initiator: [], .responder: []]
    /// The products and psks that were mixed into the key.
    private var mixedTokens: Set<Token> = []

    /// Whether a secret that only the parties know was mixed into the key.
    var hasSecret: Bool { !mixedTokens.isEmpty }

    /// Records that `role` has sent the key `token`.
    mutating func send(_ token: Token, by role: Role) throws(PatternError) {
        guard sentKeys[role, default: []].insert(token).inserted else {
            throw .keySentTwice(token, role)
        }
    }

    /// Checks and records a token in a message of `sender`.
    mutating func perform(_ token: Token, by sender: Role) throws(PatternError) {
        switch token {
        case .e: try send(token, by: sender)
        case .s:
            try checkEncryption(by: sender)
            try send(token, by: sender)
        case .psk: mixedTokens.insert(token)
        case .ee, .es, .se, .ss:
            guard let keys = token.dhKeys,
                sentKeys[.initiator, default: []].contains(keys.initiator),
                sentKeys[.responder, default: []].contains(keys.responder)
            else { throw .keyMissing(for: token) }
            guard mixedTokens.insert(token).inserted else { throw .repeatedProduct(token) }
        }
    }

    /// Throws if the steps so far do not allow `role` to encrypt data. After a product with its
    /// static key, a party also needs the same product with its ephemeral key.
    func checkEncryption(by role: Role) throws(PatternError) {
        if mixedTokens.contains(.psk), !sentKeys[role, default: []].contains(.e) {
            throw .pskWithoutEphemeral(role)
        }
        let pairs: [(after: Token, needs: Token)] =
            role == .initiator ? [(.se, .ee), (.ss, .es)] : [(.es, .ee), (.ss, .se)]
        for pair in pairs
        where mixedTokens.contains(pair.after) && !mixedTokens.contains(pair.needs) {
            throw .encryptsWithoutEphemeral(role, after: pair.after, needs: pair.needs)
        }
    }
}
