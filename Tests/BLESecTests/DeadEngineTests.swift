import BLESecChannelCore
import BLESecPrimitives
import Testing

@testable import BLESec

@Suite("An engine that was misused or has failed")
struct DeadEngineTests {
    static let offers = [CertificateFixture.noise, CertificateFixture.tls]

    enum Attack: CaseIterable { case replayed, skipped, reflected, changed }

    @Test(
        "sealing before the handshake is over makes the engine fail, and writes nothing",
        arguments: offers)
    func sealingTooEarly(offer: String) throws {
        var pair = try EnginePair.awaitingTrustDecision(offer)
        let text = [UInt8]("do not show this".utf8)
        let written = [UInt8](capacity: 100) { output in
            #expect(throws: ChannelError(.internal, "")) {
                try pair.dialer.seal(text.span, text.span, into: &output)
            }
        }
        #expect(written.isEmpty)
        Self.expectFailed(&pair.dialer)
    }

    @Test(
        "an engine fails for good after a record is replayed, skipped, reflected or changed",
        arguments: offers, Attack.allCases)
    func attackedRecord(offer: String, attack: Attack) throws {
        var pair = try EnginePair.established(offer)
        let first = try pair.dialer.sealed(0, [1])
        let second = try pair.dialer.sealed(0, [1])
        if attack == .replayed { #expect(try pair.acceptor.opened(first) == [0, 1]) }
        #expect(throws: ChannelError(.authenticationFailed, "")) {
            switch attack {
            case .replayed: _ = try pair.acceptor.opened(first)
            // The second record arrives without the first.
            case .skipped: _ = try pair.acceptor.opened(second)
            case .reflected: _ = try pair.dialer.opened(first)
            case .changed:
                _ = try pair.acceptor.opened(first.dropLast() + [first[first.count - 1] ^ 1])
            }
        }
        if attack == .reflected {
            Self.expectFailed(&pair.dialer)
        } else {
            Self.expectFailed(&pair.acceptor)
        }
    }

    @Test("a Noise record shorter than a tag makes the engine fail", arguments: 0..<16)
    func shortRecord(length: Int) throws {
        var pair = try EnginePair.established(CertificateFixture.noise)
        #expect(throws: ChannelError(.protocolViolation, "")) {
            try pair.acceptor.opened([0, UInt8(length)] + Array(repeating: 0, count: length))
        }
        Self.expectFailed(&pair.acceptor)
    }

    @Test("sealing a record above the maximum length makes a TLS engine fail")
    func longRecord() throws {
        var pair = try EnginePair.established(CertificateFixture.tls)
        #expect(throws: ChannelError(.internal, "")) {
            try pair.dialer.sealed(0, [UInt8](repeating: 0, count: 65_519))
        }
        Self.expectFailed(&pair.dialer)
    }

    @Test("a Noise handshake message that does not authenticate makes the engine fail")
    func changedHandshake() throws {
        var pair = try EnginePair(CertificateFixture.noise)
        try pair.dialerSends()
        var message = try #require(try pair.acceptor.nextHandshake())
        message[message.count - 1] ^= 0x80
        #expect(throws: ChannelError(.authenticationFailed, "")) {
            try pair.dialer.receiveHandshake(message.span)
        }
        Self.expectFailed(&pair.dialer)
    }

    @Test(
        "bytes that cannot begin a TLS record make the engine fail, without waiting for more bytes",
        arguments: [
            [0x42], [0x16, 3, 3, 0x41, 1], [0x16, 2, 1, 0, 0], [0x80, 0x2E, 1], [0x18, 3, 3, 0, 1],
        ] as [[UInt8]])
    func invalidRecordStart(bytes: [UInt8]) throws {
        var pair = try EnginePair(CertificateFixture.tls)
        #expect(throws: ChannelError(.protocolViolation, "")) {
            try pair.acceptor.receiveHandshake(bytes.span)
        }
        Self.expectFailed(&pair.acceptor)
    }

    @Test(
        "after a failed TLS handshake the engine returns one alert, drops input and cannot seal")
    func failing() throws {
        var pair = try EnginePair(CertificateFixture.tls)
        // A handshake record with a message of an unknown type.
        #expect(try pair.acceptor.receiveHandshake([22, 3, 3, 0, 4, 99, 0, 0, 0].span) == 9)
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
        #expect(throws: ChannelError.self) { try pair.acceptor.sealed(0, [1]) }
        Self.expectFailed(&pair.acceptor)
    }

    @Test("admitting a peer when no decision is pending makes the engine fail", arguments: offers)
    func admittingTooEarly(offer: String) throws {
        var pair = try EnginePair(offer)
        #expect(throws: ChannelError(.internal, "")) { try pair.dialer.admit() }
        Self.expectFailed(&pair.dialer)
    }

    @Test(
        "bytes that arrive while a dialer's trust decision is pending make its engine fail",
        arguments: offers)
    func bytesDuringDecision(offer: String) throws {
        var pair = try EnginePair.awaitingTrustDecision(offer)
        #expect(throws: ChannelError(.internal, "")) {
            try pair.dialer.receiveHandshake([23, 3, 3, 0, 1, 0].span)
        }
        Self.expectFailed(&pair.dialer)
    }

    @Test("rekeying before the handshake is over makes the engine fail", arguments: offers)
    func rekeyingTooEarly(offer: String) throws {
        var pair = try EnginePair(offer)
        #expect(throws: ChannelError(.internal, "")) { try pair.dialer.rekeySending() }
        Self.expectFailed(&pair.dialer)
        #expect(throws: ChannelError(.internal, "")) { try pair.acceptor.rekeyReceiving() }
        Self.expectFailed(&pair.acceptor)
    }

    @Test(
        "calling rekeyReceiving makes a TLS engine fail: in TLS only the peer changes the receiving key"
    )
    func rekeyReceiving() throws {
        var pair = try EnginePair.established(CertificateFixture.tls)
        #expect(throws: ChannelError(.internal, "")) { try pair.dialer.rekeyReceiving() }
        Self.expectFailed(&pair.dialer)
    }

    @Test("TLS has no fallback, and calling fallBack makes the engine fail")
    func fallback() throws {
        var pair = try EnginePair(CertificateFixture.tls)
        let configuration = try PinnedPeers().configuration(.dialer)
        let plan = try #require(
            try OfferPlans(configuration, for: .dialer).fallback(
                CertificateFixture.noise, from: "Noise_IK_25519_ChaChaPoly_SHA256"))
        #expect(throws: ChannelError.self) { try pair.dialer.fallBack(to: plan, prologue: []) }
        Self.expectFailed(&pair.dialer)
    }

    @Test(
        "exporting a key of an invalid length throws, and the engine stays usable",
        arguments: offers)
    func export(offer: String) throws {
        var pair = try EnginePair.established(offer)
        for count in [0, -1, 8_161] {
            #expect(throws: ChannelError(.configuration, "")) {
                _ = try pair.dialer.export(label: "a", context: [], count: count)
            }
        }
        #expect(try pair.acceptor.opened(pair.dialer.sealed(0, [1])) == [0, 1])
    }

    @Test("Engine.none behaves like an engine that has failed")
    func none() {
        var engine = Engine.none
        Self.expectFailed(&engine)
    }

    /// Expects that the engine has failed, and that its calls throw `closed`. `fallBack` is not
    /// called, since it needs a plan.
    static func expectFailed(_ engine: inout Engine) {
        #expect(engine.phase == .failed)
        #expect(engine.handshakeHash.isEmpty)
        #expect(engine.refuse() == .silent)
        #expect(throws: closed) { try engine.receiveHandshake([22].span) }
        #expect(throws: closed) { _ = try engine.nextHandshake() }
        #expect(throws: closed) { try engine.admit() }
        #expect(throws: closed) { _ = try engine.sealed(0, [1]) }
        #expect(throws: closed) { _ = try engine.opened([0, 16] + Array(repeating: 0, count: 16)) }
        #expect(throws: closed) { _ = try engine.opened([23, 3, 3, 0, 1, 0]) }
        #expect(throws: closed) { try engine.rekeySending() }
        #expect(throws: closed) { try engine.rekeyReceiving() }
        #expect(throws: closed) { _ = try engine.export(label: "x", context: [], count: 32) }
    }

    private static let closed = ChannelError(.closed, "")
}

/// The engines of a dialer and an acceptor, without channels. The pair carries the handshake bytes
/// from one engine to the other.
private struct EnginePair: ~Copyable {
    var dialer: Engine
    var acceptor: Engine
    /// The handshake bytes that have arrived for the dialer, and that its engine has not consumed.
    private var dialerInbound: [UInt8] = []
    /// The handshake bytes that have arrived for the acceptor, and that its engine has not
    /// consumed.
    private var acceptorInbound: [UInt8] = []

    init(_ offer: String) throws {
        let fixture = try CertificateFixture.shared()
        let dialer = try OfferPlans(fixture.configuration(.dialer, [offer]), for: .dialer)
            .makeEngine(offer, prologue: [])
        let acceptor = try OfferPlans(fixture.configuration(.acceptor, [offer]), for: .acceptor)
            .makeEngine(offer, prologue: [])
        self.dialer = dialer
        self.acceptor = acceptor
    }

    /// A pair whose dialer has read the acceptor's claimed identity and waits for its trust
    /// decision.
    static func awaitingTrustDecision(_ offer: String) throws -> EnginePair {
        var pair = try EnginePair(offer)
        try pair.dialerSends()
        try pair.acceptorSends()
        guard case .awaitingTrustDecision = pair.dialer.phase else {
            throw ChannelError(.internal, "\(pair.dialer.phase)")
        }
        return pair
    }

    /// A pair after the handshake, in which each engine has admitted its peer.
    static func established(_ offer: String) throws -> EnginePair {
        var pair = try awaitingTrustDecision(offer)
        for _ in 0..<4 {
            try admit(&pair.dialer)
            try pair.dialerSends()
            try admit(&pair.acceptor)
            try pair.acceptorSends()
        }
        return pair
    }

    mutating func dialerSends() throws {
        try Self.sendHandshake(from: &dialer, to: &acceptor, &acceptorInbound)
    }

    mutating func acceptorSends() throws {
        try Self.sendHandshake(from: &acceptor, to: &dialer, &dialerInbound)
    }

    private static func admit(_ engine: inout Engine) throws {
        if case .awaitingTrustDecision = engine.phase { try engine.admit() }
    }

    private static func sendHandshake(
        from writer: inout Engine, to reader: inout Engine, _ inbound: inout [UInt8]
    ) throws {
        inbound += try writer.nextHandshake() ?? []
        guard !inbound.isEmpty, case .handshaking = reader.phase else { return }
        inbound.removeFirst(try reader.receiveHandshake(inbound.span))
    }
}

extension Engine {
    /// Seals a record, and returns it as an array.
    fileprivate mutating func sealed(_ type: UInt8, _ payload: [UInt8]) throws -> [UInt8] {
        let head = [type]
        return try [UInt8](capacity: sealedLength(payload.count + 1)) {
            output throws(ChannelError) in
            try seal(head.span, payload.span, into: &output)
        }
    }

    /// Opens a record, and returns its type followed by its payload; `nil` if it has no plaintext.
    fileprivate mutating func opened(_ record: [UInt8]) throws -> [UInt8]? {
        var record = record
        var span = record.mutableSpan
        guard let plaintext = try open(&span)?.plaintext else { return nil }
        return Array(record[plaintext])
    }
}
