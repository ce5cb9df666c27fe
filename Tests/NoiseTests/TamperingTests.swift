import BLESecNoise
import BLESecNoiseVectors
import BLESecPrimitives
import Testing

/// Changes to messages between writer and reader, for every pattern, with keys from the run's seed.
@Suite struct TamperingTests {
    /// Every pattern in up to three forms: plain, with `psk0`, and with `fallback`. Forms that are
    /// not defined are left out.
    static let patterns: [HandshakePattern] = HandshakePattern.all.flatMap { pattern in
        [pattern] + [PatternModifier.psk(0), .fallback].compactMap { try? pattern.applying($0) }
    }

    private func exchange(_ pattern: HandshakePattern) throws -> Exchange {
        try Exchange(pattern, suite: (.x25519, .chaChaPoly, .sha256))
    }

    @Test(
        "an inverted bit is detected in its message, or at the latest in the next authenticated message",
        arguments: patterns)
    func flips(_ pattern: HandshakePattern) throws {
        let exchange = try exchange(pattern)
        var generator = PropertySeed.generator(pattern.name + " bits")
        for index in pattern.messages.indices {
            for position in 0..<exchange.messageLengths[index] {
                let bit = UInt8(1) << UInt8.random(in: 0..<8, using: &generator)
                try exchange.expectFailure(from: index) { $0[position] ^= bit }
            }
        }
    }

    @Test(
        "a truncation is detected in its message, or at the latest in the next authenticated message",
        arguments: patterns)
    func truncation(_ pattern: HandshakePattern) throws {
        let exchange = try exchange(pattern)
        for index in pattern.messages.indices {
            for count in stride(from: 0, to: exchange.messageLengths[index], by: 3) {
                try exchange.expectFailure(from: index) { $0.removeLast($0.count - count) }
            }
        }
    }

    @Test(
        "an appended byte is detected in its message, or at the latest in the next authenticated message",
        arguments: patterns)
    func appendedByte(_ pattern: HandshakePattern) throws {
        let exchange = try exchange(pattern)
        for index in pattern.messages.indices {
            try exchange.expectFailure(from: index) { $0.append(0) }
        }
    }

    @Test(
        "an earlier message of the same side, sent again in place of a later one, is detected",
        arguments: patterns)
    func replayed(_ pattern: HandshakePattern) throws {
        let exchange = try exchange(pattern)
        // The sides alternate, so message `index - 2` is of the same side as message `index`.
        for index in pattern.messages.indices where index >= 2 {
            var earlier: [UInt8] = []
            try exchange.expectFailure(
                from: index, changing: { $0 = earlier },
                seen: { if $0 == index - 2 { earlier = $1 } })
        }
    }

    @Test(
        "random bytes in place of a message are detected, and never trap the reader",
        arguments: patterns)
    func randomBytes(_ pattern: HandshakePattern) throws {
        let exchange = try exchange(pattern)
        var generator = PropertySeed.generator(pattern.name + " garbage")
        for index in pattern.messages.indices {
            for count in [0, 1, 31, 32, 48, 96, 200, 65_535, 65_536] {
                let bytes = generator.bytes(count)
                try exchange.expectFailure(from: index) { $0 = bytes }
            }
        }
    }
}
