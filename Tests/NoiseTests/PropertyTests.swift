import BLESecNoise
import BLESecPrimitives
import Testing

@testable import BLESecNoiseVectors

/// Properties of every pattern, with a suite and keys that come from the run's seed.
@Suite struct PropertyTests {
    /// Each pattern, and its fallback if it has one, in every variant: unchanged, with one psk at
    /// each place, and with psks at all places.
    static let patterns: [HandshakePattern] = HandshakePattern.all.flatMap { pattern in
        ([pattern] + [try? pattern.applying(.fallback)].compactMap { $0 }).flatMap(variants)
    }

    private static func variants(of pattern: HandshakePattern) -> [HandshakePattern] {
        let places = (0...pattern.messages.count).map { PatternModifier.psk($0) }
        let all = places.reduce(Optional(pattern)) { try? $0?.applying($1) }
        return ([pattern, all] + places.map { try? pattern.applying($0) }).compactMap { $0 }
    }

    @Test("the patterns have as many variants as the rules of psks and fallbacks allow")
    func count() {
        #expect(Set(Self.patterns.map(\.name)).count == Self.patterns.count)
        // Each base has `messages.count + 3` variants: itself, one with all psks, and one for each
        // of the `messages.count + 1` places of a psk.
        let bases =
            HandshakePattern.all + HandshakePattern.all.compactMap { try? $0.applying(.fallback) }
        // 28 of the 38 patterns have a fallback.
        #expect(bases.count == 38 + 28)
        #expect(Self.patterns.count == bases.reduce(0) { $0 + $1.messages.count + 3 })
    }

    @Test(
        "both sides agree on the handshake hash, on the static keys and on all session keys",
        arguments: patterns)
    func agreement(_ pattern: HandshakePattern) throws {
        let exchange = try Exchange(pattern)
        var handshake = VectorHandshake(
            initiator: try exchange.side(.initiator), responder: try exchange.side(.responder))
        for length in exchange.messageLengths {
            let message = try handshake.write(exchange.payload)
            #expect(message.count == length, exchange.note)
            #expect(try handshake.read(message) == exchange.payload, exchange.note)
        }
        var session = try handshake.split()
        let initiatorHash = session.initiator.handshakeHash
        let responderHash = session.responder.handshakeHash
        #expect(initiatorHash == responderHash, exchange.note)
        for role in Role.allCases {
            let known =
                role == .initiator ? session.responder.remoteStatic : session.initiator.remoteStatic
            let expected = pattern.requiresLocalStatic(role) ? exchange.publicKey(of: role) : nil
            #expect(known == expected, exchange.note)
        }
        try Self.expectSameKeys(&session, exchange.note)
    }

    private static func expectSameKeys(_ session: inout VectorTransport, _ note: Comment) throws {
        let label: [UInt8] = [1]
        let key = session.initiator.additionalKeys.key(label: label.span)
        let isSame = key.isEqual(to: session.responder.additionalKeys.key(label: label.span))
        #expect(isSame, note)
        let isOneWay = session.initiator.isOneWay
        for _ in 0..<2 {
            #expect(
                try session.responder.decrypt(session.initiator.encrypt([7])) == [7], note)
            if isOneWay {
                #expect(throws: NoiseError.oneWay, note) { try session.responder.encrypt([8]) }
            } else {
                #expect(
                    try session.initiator.decrypt(session.responder.encrypt([8])) == [8], note)
            }
            try session.initiator.rekeySend()
            try session.responder.rekeyReceive()
            try session.responder.rekeySend()
            try session.initiator.rekeyReceive()
        }
    }

    @Test(
        "different prologues are detected, at the latest by the first authenticated message",
        arguments: patterns)
    func prologue(_ pattern: HandshakePattern) throws {
        let exchange = try Exchange(pattern)
        for role in Role.allCases { try exchange.expectFailure(from: 0, .prologue, of: role) }
    }

    @Test(
        "different psks are detected, at the latest by the message with the psk's token",
        arguments: patterns)
    func psk(_ pattern: HandshakePattern) throws {
        let exchange = try Exchange(pattern)
        var psk = 0
        for (index, message) in pattern.messages.enumerated() {
            for _ in 0..<message.tokens.count(where: { $0 == .psk }) {
                for role in Role.allCases {
                    try exchange.expectFailure(from: index, .psk(psk), of: role)
                }
                psk += 1
            }
        }
        #expect(psk == pattern.pskCount)
    }

    @Test(
        "a wrong expected static key is detected, at the latest by the first authenticated message",
        arguments: patterns)
    func remoteStatic(_ pattern: HandshakePattern) throws {
        let exchange = try Exchange(pattern)
        for role in Role.allCases where pattern.requiresRemoteStatic(role) {
            try exchange.expectFailure(from: 0, .remoteStatic, of: role)
        }
    }
}
