import BLESecChannelCore
import BLESecPrimitives
import Testing

@testable import BLESec

/// Attackers that change the hello or the answer, and pairs of sides whose offers, contexts or
/// modes differ.
@Suite("Negotiation under attack")
struct NegotiationTests {
    static let xx = "Noise_XX_25519_ChaChaPoly_SHA256"
    static let aes = "Noise_XX_25519_AESGCM_SHA256"
    static let ik = "Noise_IK_25519_ChaChaPoly_SHA256"
    static let kk = "Noise_KK_25519_AESGCM_SHA256"
    static let tls = CertificateFixture.tls

    /// Runs a channel in which `change` replaces the first flight of `sender`: a dialer's hello and
    /// early message, or an acceptor's answer and what follows it. Expects that neither side
    /// becomes ready, and that both fail within 25 seconds.
    static func expectNeverReady(
        offers: [String], changingFlightOf sender: ChannelRole,
        _ change: @escaping ([UInt8]) throws -> [UInt8]
    ) throws {
        let run = try AttackRun(
            CertificateFixture.shared().configurations(dialer: offers, acceptor: offers)
        ) { role, offset, bytes in
            role == sender && offset == 0 ? Self.changed(bytes, change) : bytes
        }
        #expect(!run.dialer.wasReady && !run.acceptor.wasReady)
        #expect(run.dialer.failure != nil && run.acceptor.failure != nil)
        #expect(run.elapsed <= .seconds(25))
    }

    private static func changed(
        _ bytes: [UInt8], _ change: ([UInt8]) throws -> [UInt8]
    ) -> [UInt8] {
        do {
            return try change(bytes)
        } catch {
            Issue.record(error)
            return bytes
        }
    }

    /// Replaces the hello at the beginning of `bytes`, and keeps the bytes after it.
    static func replacingHello(
        of bytes: [UInt8], offers: [String], _ extensions: [HelloExtension] = []
    ) throws -> [UInt8] {
        let old = try #require(try Hello(prefixOf: bytes.span))
        return try Hello(offers: offers, extensions: extensions).encoded
            + bytes[old.encoded.count...]
    }

    @Test("a hello without its best offer never leads to ready")
    func removedOffer() throws {
        try Self.expectNeverReady(offers: [Self.xx, Self.aes], changingFlightOf: .dialer) {
            try Self.replacingHello(of: $0, offers: [Self.aes])
        }
        try Self.expectNeverReady(offers: [Self.ik, Self.xx], changingFlightOf: .dialer) {
            try Self.replacingHello(of: $0, offers: [Self.xx])
        }
        for offers in [[Self.tls, Self.xx], [Self.xx, Self.tls]] {
            try Self.expectNeverReady(offers: offers, changingFlightOf: .dialer) {
                try Self.replacingHello(of: $0, offers: [offers[1]])
            }
        }
    }

    @Test("a hello with an offer removed, added or moved never leads to ready")
    func changedOffers() throws {
        let offers = [Self.xx, Self.aes]
        for changed in [[Self.xx], [Self.xx, Self.aes, Self.kk], [Self.aes, Self.xx]] {
            try Self.expectNeverReady(offers: offers, changingFlightOf: .dialer) {
                try Self.replacingHello(of: $0, offers: changed)
            }
        }
    }

    @Test("a hello with an inserted extension never leads to ready")
    func addedExtension() throws {
        try Self.expectNeverReady(offers: [Self.xx], changingFlightOf: .dialer) {
            try Self.replacingHello(
                of: $0, offers: [Self.xx], [HelloExtension(type: 200, value: [1])])
        }
    }

    @Test(
        "an answer with an inserted extension never leads to ready, though only the record `ready` binds the answer",
        arguments: [xx, ik, kk, tls])
    func extendedAnswer(offer: String) throws {
        try Self.expectNeverReady(offers: [offer], changingFlightOf: .acceptor) { bytes in
            // The extension has type 200 and no value. Byte 5 is the low byte of the answer's length.
            var bytes = bytes
            bytes[5] += 2
            bytes.insert(contentsOf: [200, 0], at: 8)
            return bytes
        }
    }

    @Test(
        "an answer with a changed status or index never leads to ready",
        arguments: [Answer.Status.accept, .fallback, .switch, .refused, .busy], 0..<3)
    func changedAnswer(status: Answer.Status, index: Int) throws {
        for offers in [
            [Self.xx, Self.aes, Self.kk], [Self.ik, Self.xx, Self.kk],
            [Self.tls, Self.xx, Self.kk],
        ]
        where status != .accept || index > 0 {
            try Self.expectNeverReady(offers: offers, changingFlightOf: .acceptor) { bytes in
                var bytes = bytes
                bytes[6] = status.rawValue
                bytes[7] = UInt8(index)
                return bytes
            }
        }
    }

    @Test(
        "an answer with an index beyond the hello's offers ends the dial with protocolViolation",
        arguments: [2, 15, 16, 255])
    func unoffered(index: UInt8) throws {
        for status in [Answer.Status.fallback, .switch] {
            let pair = try PinnedPeers().pair([Self.xx, Self.aes])
            pair.deliver(Hello.magic + [0, 2, status.rawValue, index], to: .dialer)
            let error = pair.dialer.outcome?.error
            #expect(error?.code == .protocolViolation)
            // The error for a fallback that no offer permits has the same code, but another reason.
            #expect(error?.reason.hasSuffix("its index \(index) does not fit its status") == true)
        }
    }

    @Test("a dial that is answered `refused` or `busy` ends with the answer's own error")
    func turnedAway() throws {
        for (status, code) in [
            (Answer.Status.refused, ChannelError.Code.noCommonProtocol), (.busy, .busy),
        ] {
            let pair = try PinnedPeers().pair([Self.xx, Self.aes])
            _ = pair.take(.dialer)
            pair.deliver(Answer(status).encoded, to: .dialer)
            #expect(pair.dialer.outcome?.code == code)
        }
    }

    @Test("a listener without room turns a dialer away before any handshake")
    func noRoom() throws {
        let pair = try PinnedPeers().pair()
        let first = pair.take(.dialer)
        pair.deliver(Array(first.prefix(20)), to: .acceptor)
        pair.acceptor.turnAway(ChannelError(.busy, "no room"), now: pair.now)
        pair.run()
        #expect(pair.dialer.outcome?.code == .busy)
        pair.passTime(.seconds(2))
        #expect(pair.acceptor.outcome?.code == .busy)
    }

    @Test("without a common protocol the acceptor tells the dialer, and closes two seconds later")
    func nothingInCommon() throws {
        let pinned = try PinnedPeers()
        let pair = try MachinePair(
            dialer: pinned.configuration(.dialer, [Self.kk]),
            acceptor: pinned.configuration(.acceptor, [Self.aes]))
        pair.run()
        #expect(pair.dialer.outcome?.code == .noCommonProtocol)
        #expect(pair.acceptor.outcome == nil)
        pair.passTime(.seconds(2))
        #expect(pair.acceptor.outcome?.code == .noCommonProtocol)
    }

    @Test("an acceptor can switch to each offer after the first", arguments: 1..<4)
    func switches(index: Int) throws {
        let pinned = try PinnedPeers()
        let offers = [
            Self.xx, Self.kk, "Noise_IK_25519_AESGCM_SHA256",
            "Noise_KK_25519_ChaChaPoly_SHA256",
        ]
        let pair = try MachinePair(
            dialer: pinned.configuration(.dialer, offers),
            acceptor: pinned.configuration(.acceptor, [offers[index]]))
        pair.run()
        #expect(pair.dialer.isReady && pair.acceptor.isReady)
        #expect(pair.dialer.protocolName == offers[index])
        #expect(pair.acceptor.protocolName == offers[index])
    }

    @Test(
        "the handshake after a switch binds the first message of the offer that was not accepted")
    func switchBindsEarly() throws {
        let pinned = try PinnedPeers()
        let run = try AttackRun(
            (
                pinned.configuration(.dialer, [Self.ik, Self.kk]),
                pinned.configuration(.acceptor, [Self.kk])
            )
        ) { role, offset, bytes in
            guard role == .dialer, offset == 0 else { return bytes }
            // Zeros replace the last 10 bytes of the early message. The acceptor does not read the
            // message, but binds it into the handshake.
            return bytes.dropLast(10) + Array(repeating: 0, count: 10)
        }
        #expect(!run.dialer.wasReady && !run.acceptor.wasReady)
    }

    @Test("two sides with different contexts never become ready")
    func context() throws {
        let pinned = try PinnedPeers()
        var dialer = try pinned.configuration(.dialer)
        dialer.context = [1]
        let run = try AttackRun((dialer, pinned.configuration(.acceptor)))
        #expect(!run.dialer.wasReady && !run.acceptor.wasReady)
    }

    @Test(
        "a negotiated side and a direct side never become ready with each other",
        arguments: [ChannelRole.dialer, .acceptor], [xx, ik, kk])
    func mixedModes(directSide: ChannelRole, offer: String) throws {
        let pinned = try PinnedPeers()
        var dialer = try pinned.configuration(.dialer, [offer])
        var acceptor = try pinned.configuration(.acceptor, [offer])
        if directSide == .dialer { dialer.mode = .direct } else { acceptor.mode = .direct }
        let run = try AttackRun((dialer, acceptor))
        #expect(!run.dialer.wasReady && !run.acceptor.wasReady)
    }

    @Test(
        "a hello that is inserted before a direct dialer's first message never leads to ready",
        arguments: [xx, ik])
    func helloBeforeDirect(offer: String) throws {
        let pinned = try PinnedPeers()
        var dialer = try pinned.configuration(.dialer, [offer])
        dialer.mode = .direct
        let hello = try Hello(offers: [offer]).encoded
        let run = try AttackRun((dialer, pinned.configuration(.acceptor, [offer]))) {
            role, offset, bytes in
            if role == .dialer, offset == 0 { return hello + bytes }
            // The acceptor's answer, 8 bytes, is not delivered to the dialer.
            if role == .acceptor, offset == 0 { return Array(bytes.dropFirst(8)) }
            return bytes
        }
        #expect(!run.dialer.wasReady && !run.acceptor.wasReady)
    }
}
