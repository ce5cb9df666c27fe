import Noise
import NoiseVectors
import Primitives
import Testing

/// What happens to messages on the way, for every pattern.
@Suite struct TamperingTests {
    /// Each pattern as it is, with a psk at its beginning, and as a fallback where it can be one.
    static let patterns: [HandshakePattern] = HandshakePattern.all.flatMap { pattern in
        [pattern] + [PatternModifier.psk(0), .fallback].compactMap { try? pattern.applying($0) }
    }

    @Test(
        "a flipped bit fails at the next authenticated point, wherever it is",
        arguments: patterns)
    func flips(_ pattern: HandshakePattern) throws {
        let run = try Run(pattern)
        for index in pattern.messages.indices {
            for position in stride(from: 0, to: run.lengths[index], by: run.step) {
                let bit = UInt8(1) << UInt8((position + index) % 8)
                try run.expectFailure(at: index) { $0[position] ^= bit }
            }
        }
    }

    @Test("a truncated message fails at the next authenticated point", arguments: patterns)
    func truncation(_ pattern: HandshakePattern) throws {
        let run = try Run(pattern)
        for index in pattern.messages.indices {
            for count in stride(from: 0, to: run.lengths[index], by: run.step) {
                try run.expectFailure(at: index) { $0.removeLast($0.count - count) }
            }
        }
    }

    @Test("a message with a byte more fails at the next authenticated point", arguments: patterns)
    func extension_(_ pattern: HandshakePattern) throws {
        let run = try Run(pattern)
        for index in pattern.messages.indices {
            try run.expectFailure(at: index) { $0.append(0) }
        }
    }

    @Test("a message in the place of another fails", arguments: patterns)
    func repetition(_ pattern: HandshakePattern) throws {
        let run = try Run(pattern)
        for index in pattern.messages.indices where index >= 2 {
            var earlier: [UInt8] = []
            try run.expectFailure(at: index, seen: { if $0 == index - 2 { earlier = $1 } }) {
                $0 = earlier
            }
        }
    }

    @Test("random bytes in the place of a message never trap", arguments: patterns)
    func garbage(_ pattern: HandshakePattern) throws {
        var generator = SeededGenerator(seed: 11)
        let run = try Run(pattern)
        for index in pattern.messages.indices {
            for count in [0, 1, 31, 32, 48, 96, 200, 65_535, 65_536] {
                let bytes = generator.bytes(count)
                try run.expectFailure(at: index) { $0 = bytes }
            }
        }
    }
}

/// One protocol between two parties, run again and again with a change on the way.
private struct Run {
    let name: ProtocolName
    let parties: Parties
    let payload: [UInt8] = [1, 2, 3]

    /// Every byte of a pattern's own messages; of a modified pattern's, which have the same parts,
    /// some in each.
    let step: Int

    init(_ pattern: HandshakePattern) throws {
        name = ProtocolName(pattern: pattern)
        step = pattern.modifiers.isEmpty ? 1 : 5
        parties = try Parties(.x25519)
    }

    /// The length of each message.
    var lengths: [Int] {
        name.pattern.messages.indices.map {
            payload.count + name.pattern.overhead(ofMessage: $0, keyLength: 32)
        }
    }

    /// Whether the payload of message `index` has a tag.
    private func isAuthenticated(_ index: Int) -> Bool {
        let tokens = name.pattern.messages[index].tokens
        let keys = tokens.count { $0 == .e || $0 == .s } * 32
        return name.pattern.overhead(ofMessage: index, keyLength: 32) > keys
    }

    /// The change to message `index` has to be noticed when the first authenticated message from
    /// there on is read, or before: a key in clear or a length can be impossible by itself.
    func expectFailure(
        at index: Int, seen: (Int, [UInt8]) -> Void = { _, _ in },
        changing: (inout [UInt8]) -> Void, sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let last = name.pattern.messages.indices.first { $0 >= index && isAuthenticated($0) }
        let deadline = try #require(last, "every handshake ends with a tag")
        let ephemeral = try DHKeyPair.generate(.x25519)
        let isFallback = name.pattern.isFallback
        var initiator = try parties.handshake(
            name, .initiator, carried: isFallback ? .local(ephemeral) : nil)
        var responder = try parties.handshake(
            name, .responder, carried: isFallback ? .remote(ephemeral.publicKey) : nil)
        for step in 0...deadline {
            let isInitiators = initiator.isMyTurn
            var message =
                isInitiators ? try initiator.write(payload) : try responder.write(payload)
            seen(step, message)
            if step == index { changing(&message) }
            do {
                _ = isInitiators ? try responder.read(message) : try initiator.read(message)
            } catch {
                let isEarly = step < index
                #expect(
                    !isEarly, "\(name): failed before the change", sourceLocation: sourceLocation)
                let isFailed = isInitiators ? responder.isFailed : initiator.isFailed
                #expect(isFailed, sourceLocation: sourceLocation)
                return
            }
        }
        Issue.record("\(name): message \(index) was changed, and nobody noticed")
    }
}

extension Parties {
    /// As the other one, for a fallback in which the initiator's static is a pre-message too.
    func handshake(
        _ name: ProtocolName, _ role: Role, carried: CarriedEphemeral?
    ) throws -> HandshakeState {
        try handshake(name, role, prologue: [], psks: nil, carried: carried)
    }
}
