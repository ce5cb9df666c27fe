import BLESecChannelCore
import BLESecNoiseEngine
import Testing

@Suite("An engine that was misused or has failed")
struct DeadEngineTests {
    static let offer = "Noise_XX_25519_ChaChaPoly_SHA256"

    @Test("sealing before the handshake is over throws and writes nothing")
    func sealingTooEarly() throws {
        var pair = try EnginePair(Self.offer)
        try pair.dialerSpeaks()
        let text = [UInt8]("do not show this".utf8)
        let written = [UInt8](capacity: 100) { output in
            #expect(throws: ChannelError(.internal, "")) {
                try pair.dialer.seal(0, text.span, into: &output)
            }
        }
        #expect(written.isEmpty)
        #expect(pair.dialer.phase == .failed)
    }

    @Test("a record that does not authenticate kills the engine, and every call throws afterwards")
    func changedRecord() throws {
        var pair = try EnginePair(Self.offer)
        try pair.shakeHands()
        var record = try pair.dialer.sealed(0, [1, 2, 3])
        record[4] ^= 1
        #expect(throws: ChannelError(.authenticationFailed, "")) {
            try pair.acceptor.opened(record)
        }
        Self.expectDead(&pair.acceptor)
    }

    @Test("a record shorter than its tag kills the engine as well", arguments: 0..<16)
    func shortRecord(length: Int) throws {
        var pair = try EnginePair(Self.offer)
        try pair.shakeHands()
        #expect(throws: ChannelError(.protocolViolation, "")) {
            try pair.acceptor.opened(
                [0, UInt8(length)] + Array(repeating: 0, count: length))
        }
        Self.expectDead(&pair.acceptor)
    }

    @Test("a handshake message that does not authenticate kills the engine")
    func changedHandshake() throws {
        var pair = try EnginePair(Self.offer)
        try pair.dialerSpeaks()
        var message = try #require(try pair.acceptor.nextHandshake())
        message[message.count - 1] ^= 0x80
        #expect(throws: ChannelError(.authenticationFailed, "")) {
            try pair.dialer.receiveHandshake(message.span)
        }
        Self.expectDead(&pair.dialer)
    }

    @Test("admitting nobody kills the engine")
    func admittingNobody() throws {
        var pair = try EnginePair(Self.offer)
        #expect(throws: ChannelError(.internal, "")) { try pair.dialer.admit() }
        Self.expectDead(&pair.dialer)
    }

    @Test("a message that comes before the peer is admitted kills the engine")
    func impatientPeer() throws {
        var pair = try EnginePair(Self.offer)
        try pair.dialerSpeaks()
        try pair.acceptorSpeaks()
        guard case .awaitingTrustDecision = pair.dialer.phase else {
            Issue.record("the dialer does not judge")
            return
        }
        #expect(throws: ChannelError(.internal, "")) {
            try pair.dialer.receiveHandshake([1, 2, 3].span)
        }
        Self.expectDead(&pair.dialer)
    }

    static func expectDead(_ engine: inout NoiseEngine) {
        #expect(engine.phase == .failed)
        #expect(engine.handshakeHash.isEmpty)
        #expect(engine.refuse() == .silent)
        #expect(throws: ChannelError.self) { try engine.receiveHandshake([1].span) }
        #expect(throws: ChannelError.self) { _ = try engine.nextHandshake() }
        #expect(throws: ChannelError.self) { try engine.admit() }
        #expect(throws: ChannelError.self) { _ = try engine.sealed(0, [1]) }
        #expect(throws: ChannelError.self) {
            _ = try engine.opened([0, 16] + Array(repeating: 0, count: 16))
        }
        #expect(throws: ChannelError.self) { try engine.rekeySending() }
        #expect(throws: ChannelError.self) { try engine.rekeyReceiving() }
        #expect(throws: ChannelError.self) {
            _ = try engine.export(label: "x", context: [], count: 32)
        }
    }
}
