/// A change to a pattern's messages or pre-messages; Noise §8.1.
public enum PatternModifier: Sendable, Hashable {
    /// `pskN`: a `psk` token at the beginning of message 0 (N = 0) or at the end of message N − 1;
    /// Noise §9.4.
    case psk(Int)
    /// `fallback`: the initiator's first message becomes a pre-message, since the responder has it
    /// already; Noise §10.2.
    case fallback

    /// The modifier's form in a name.
    public var name: String {
        switch self {
        case .psk(let position): "psk\(position)"
        case .fallback: "fallback"
        }
    }

    /// Reads a modifier; nil if no modifier has this name, or if the number has a leading zero, as in
    /// `psk01`.
    public init?(_ name: some StringProtocol) {
        if name == "fallback" {
            self = .fallback
        } else if name.hasPrefix("psk"), let position = UInt8(name.dropFirst(3)),
            name.dropFirst(3) == "\(position)"
        {
            self = .psk(Int(position))
        } else {
            return nil
        }
    }
}

extension HandshakePattern {
    /// The pattern with `modifier` applied after its other modifiers.
    ///
    /// - Throws: `PatternError`, which names the rule that the result breaks.
    public func applying(_ modifier: PatternModifier) throws(PatternError) -> HandshakePattern {
        var pattern = try transformed(by: modifier)
        if let last = modifiers.last, modifier.name < last.name, try lastCommutes(with: modifier) {
            throw .modifiersNotSorted(last.name, modifier.name)
        }
        // An array of one pattern, since a struct cannot contain itself.
        if modifiers.isEmpty { pattern.unmodified = [self] }
        pattern.modifiers.append(modifier)
        try pattern.checkRules()
        return pattern
    }

    private func transformed(by modifier: PatternModifier) throws(PatternError) -> Self {
        guard !modifiers.contains(modifier) else { throw .repeatedModifier(modifier.name) }
        var pattern = self
        switch modifier {
        case .psk(0): pattern.messages[0].tokens.insert(.psk, at: 0)
        case .psk(let position):
            guard position > 0, position <= messages.count else {
                throw .noSuchMessage(modifier: modifier.name, messages: messages.count)
            }
            pattern.messages[position - 1].tokens.append(.psk)
        case .fallback:
            let first = messages[0]
            guard first.sender == .initiator, messages.count > 1,
                [[.e], [.s], [.e, .s]].contains(first.tokens)
            else { throw .noFallback(pattern: name) }
            // `e` comes before `s`, the only order that Noise §7.1 allows.
            pattern.initiatorPreMessage = [.e, .s].filter {
                first.tokens.contains($0) || initiatorPreMessage.contains($0)
            }
            pattern.messages.removeFirst()
        }
        return pattern
    }

    /// Whether the last modifier and `next` give the same pattern in either order. If so, a name
    /// must have them in alphabetical order (Noise §8.1).
    private func lastCommutes(with next: PatternModifier) throws(PatternError) -> Bool {
        guard var swapped = unmodified.first, let last = modifiers.last else { return true }
        do {
            for modifier in modifiers.dropLast() + [next, last] {
                swapped = try swapped.transformed(by: modifier)
            }
        } catch {
            return false
        }
        let inOrder = try transformed(by: next)
        return swapped.messages == inOrder.messages
            && swapped.initiatorPreMessage == inOrder.initiatorPreMessage
    }
}
