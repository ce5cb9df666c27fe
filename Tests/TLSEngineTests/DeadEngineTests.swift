import BLESecChannelCore
import BLESecTLSEngine
import TestSupport
import Testing

@Suite("A TLS engine that was misused or has failed")
struct DeadEngineTests {
    private static func fresh() throws -> EnginePair {
        let contexts = try EstablishedTests.contexts.get()
        return try EnginePair(contexts.dialer, contexts.acceptor)
    }

    @Test("sealing before the handshake is over throws and writes nothing")
    func sealingTooEarly() throws {
        var pair = try Self.fresh()
        try pair.step(.dialer)
        try pair.step(.acceptor)
        guard case .awaitingTrustDecision = pair.dialer.phase else {
            Issue.record("\(pair.dialer.phase)")
            return
        }
        let text = [UInt8]("do not show this".utf8)
        let written = [UInt8](capacity: 100) { output in
            #expect(throws: ChannelError(.internal, "")) {
                try pair.dialer.seal(0, text.span, into: &output)
            }
        }
        #expect(written.isEmpty)
        Self.expectDead(&pair.dialer)
    }

    @Test("bytes that come while a dialer's policy thinks kill the engine")
    func impatientPeer() throws {
        var pair = try Self.fresh()
        try pair.step(.dialer)
        try pair.step(.acceptor)
        #expect(throws: ChannelError(.internal, "")) {
            try pair.dialer.receiveHandshake([23, 3, 3, 0, 1, 0].span)
        }
        Self.expectDead(&pair.dialer)
    }

    @Test("admitting nobody kills the engine")
    func admittingNobody() throws {
        var pair = try Self.fresh()
        #expect(throws: ChannelError(.internal, "")) { try pair.dialer.admit() }
        Self.expectDead(&pair.dialer)
    }

    @Test("a record that does not authenticate kills the engine, and every call throws afterwards")
    func changedRecord() throws {
        var pair = try EstablishedTests.pair()
        var record = try pair.dialer.sealed(0, [1, 2, 3])
        record[7] ^= 1
        #expect(throws: ChannelError(.authenticationFailed, "")) {
            _ = try pair.acceptor.opened(record)
        }
        Self.expectDead(&pair.acceptor)
    }

    @Test("changing the key for what is received is the peer's matter alone")
    func rekeyReceiving() throws {
        var pair = try EstablishedTests.pair()
        #expect(throws: ChannelError(.internal, "")) { try pair.dialer.rekeyReceiving() }
        Self.expectDead(&pair.dialer)
    }

    @Test(
        "bytes that are no TLS record kill the engine at once, whatever would follow",
        arguments: [
            [0x42], [0x16, 3, 3, 0x41, 1], [0x16, 2, 1, 0, 0], [0x80, 0x2E, 1], [0x18, 3, 3, 0, 1],
        ] as [[UInt8]])
    func noRecord(bytes: [UInt8]) throws {
        var pair = try Self.fresh()
        #expect(throws: ChannelError(.protocolViolation, "")) {
            try pair.acceptor.receiveHandshake(bytes.span)
        }
        Self.expectDead(&pair.acceptor)
    }

    @Test("a handshake that fails leaves one alert for the peer, and nothing else works any more")
    func failing() throws {
        var pair = try Self.fresh()
        // A handshake record with a message that nobody knows.
        #expect(
            try pair.acceptor.receiveHandshake([22, 3, 3, 0, 4, 99, 0, 0, 0].span) == 9)
        guard case .failing(let error) = pair.acceptor.phase else {
            Issue.record("\(pair.acceptor.phase)")
            return
        }
        #expect(error == ChannelError(.protocolViolation, ""))
        #expect(error.underlying != nil)
        let alert = try #require(try pair.acceptor.nextHandshake())
        #expect(alert.count == 7 && alert[0] == 21)
        #expect(try pair.acceptor.nextHandshake() == nil)
        #expect(try pair.acceptor.receiveHandshake([1, 2, 3].span) == 3)
        #expect(pair.acceptor.refuse() == .silent)
        #expect(throws: ChannelError.self) { _ = try pair.acceptor.sealed(0, [1]) }
        Self.expectDead(&pair.acceptor)
    }

    static func expectDead(_ engine: inout TLSEngine) {
        #expect(engine.phase == .failed)
        #expect(engine.handshakeHash.isEmpty)
        #expect(engine.refuse() == .silent)
        #expect(throws: ChannelError.self) { try engine.receiveHandshake([22].span) }
        #expect(throws: ChannelError.self) { _ = try engine.nextHandshake() }
        #expect(throws: ChannelError.self) { try engine.admit() }
        #expect(throws: ChannelError.self) { _ = try engine.sealed(0, [1]) }
        #expect(throws: ChannelError.self) { _ = try engine.opened([23, 3, 3, 0, 1, 0]) }
        #expect(throws: ChannelError.self) { try engine.rekeySending() }
        #expect(throws: ChannelError.self) { try engine.rekeyReceiving() }
        #expect(throws: ChannelError.self) {
            _ = try engine.export(label: "x", context: [], count: 32)
        }
    }
}
