import BLESecChannelCore
import BLESecLocking
import CBLESecOpenSSL
import TestSupport
import Testing

@testable import BLESecTLSEngine

@Suite("Resuming a TLS session")
struct ResumptionTests {
    /// Revocations that a test can change.
    final class Revocations: RevocationSource {
        let list: Locked<RevocationList>

        init(_ authority: TestAuthority) throws {
            list = Locked(try RevocationList(lists: [], authorities: authority.authorities()))
        }

        func current(at now: Int64) -> RevocationList { list.withLock { $0 } }
    }

    let authority: TestAuthority
    let revocations: Revocations
    // The certificates become valid when they are issued, slightly later than `now`. So the clock
    // is 60 seconds ahead.
    let clock = Locked(TestAuthority.now + 60)
    let dialer: TLSContext
    let acceptor: TLSContext

    init() throws {
        authority = try TestAuthority()
        revocations = try Revocations(authority)
        var options = TLSOptions()
        options.resumes = true
        options.clock = { [clock] in clock.withLock { $0 } }
        dialer = try authority.context("dialer", revoked: revocations, options: options)
        acceptor = try authority.context("acceptor", revoked: revocations, options: options)
    }

    /// Establishes a session, after which the dialer has a ticket to resume it.
    private func establish() throws -> EnginePair {
        var pair = try EnginePair(dialer, acceptor)
        try pair.shakeHands()
        try pair.readTickets()
        return pair
    }

    @Test("a resumed handshake is shorter, and both sides know each other as before")
    func resumes() throws {
        let first = try establish()
        var second = try EnginePair(dialer, acceptor)
        try second.shakeHands()
        #expect(second.dialer.established == first.dialer.established)
        #expect(second.acceptor.established == first.acceptor.established)
        #expect(second.dialer.established != nil && second.acceptor.established != nil)
        #expect(second.dialer.handshakeHash != first.dialer.handshakeHash)
        // Neither certificate was sent.
        #expect(
            second.sentCounts.values.reduce(0, +) < first.sentCounts.values.reduce(0, +) - 500)
        // The second session has used up the first one's ticket, and has brought a new one.
        try second.readTickets()
        var third = try EnginePair(dialer, acceptor)
        try third.shakeHands()
        #expect(third.sentCounts == second.sentCounts)
        #expect(try third.acceptor.opened(third.dialer.sealed(0, [1])) == [[0, 1]])
    }

    @Test("both sides ask their policies in a resumed session too, and refuse with a record")
    func asksAgain() throws {
        _ = try establish()
        var pair = try EnginePair(dialer, acceptor)
        let hello = try #require(try pair.dialer.nextHandshake())
        try pair.acceptor.receiveHandshake(hello.span)
        let answer = try #require(try pair.acceptor.nextHandshake())
        try pair.dialer.receiveHandshake(answer.span)
        guard case .awaitingTrustDecision(let claimed) = pair.dialer.phase else {
            Issue.record("the dialer does not wait for a trust decision")
            return
        }
        #expect(
            claimed
                == ClaimedIdentity(
                    .certificate(
                        subjectPublicKeyInfo: acceptor.identity.subjectPublicKeyInfo,
                        uri: "blesec://devices/acceptor")))
        // A side that refuses with a record completes its handshake first, so that it can seal the
        // record.
        #expect(pair.dialer.refuse() == .byRecord)
        try pair.dialer.admit()
        let last = try #require(try pair.dialer.nextHandshake())
        try pair.acceptor.receiveHandshake(last.span)
        guard case .awaitingTrustDecision = pair.acceptor.phase else {
            Issue.record("the acceptor does not wait for a trust decision")
            return
        }
        #expect(pair.acceptor.refuse() == .byRecord)
        try pair.acceptor.admit()
        // No ticket follows: the refused peer must not be able to resume the session.
        #expect(try pair.acceptor.nextHandshake() == nil)
    }

    @Test(
        "a session whose peer is now revoked needs a full handshake, which is refused",
        arguments: [ChannelRole.dialer, .acceptor])
    func revoked(revokedRole: ChannelRole) throws {
        _ = try establish()
        let revoked = revokedRole == .dialer ? dialer : acceptor
        let list = try RevocationList(
            lists: [], keys: [revoked.identity.fingerprint], authorities: authority.authorities())
        revocations.list.withLock { $0 = list }
        var pair = try EnginePair(dialer, acceptor)
        try? pair.shakeHands()
        let phase = revokedRole == .dialer ? pair.acceptor.phase : pair.dialer.phase
        guard case .failing(let error) = phase else {
            Issue.record("\(phase)")
            return
        }
        #expect(error == ChannelError(.untrusted, "") && error.reason.contains("is revoked"))
    }

    @Test(
        "a session is resumed for two hours; later, and after the clock was set back, it is not",
        arguments: [(7_200, true), (7_201, false), (-1, false)] as [(Int64, Bool)])
    func age(seconds: Int64, isResumed: Bool) throws {
        let first = try establish()
        clock.withLock { $0 += seconds }
        var second = try EnginePair(dialer, acceptor)
        try second.shakeHands()
        #expect(second.dialer.established != nil && second.acceptor.established != nil)
        let difference =
            first.sentCounts.values.reduce(0, +) - second.sentCounts.values.reduce(0, +)
        #expect((difference > 500) == isResumed, "\(difference)")
    }

    @Test(
        "a dialer keeps no session whose ticket has more than 1,024 bytes",
        arguments: [false, true])
    func longTicket(isLong: Bool) throws {
        // Another acceptor's ticket may contain the whole session. Without SSL_OP_NO_TICKET, this
        // acceptor's tickets do, and with it what the program has added.
        unsafe SSL_CTX_clear_options(acceptor.pointer, 1 << 14)
        if isLong {
            unsafe SSL_CTX_set_session_ticket_cb(
                acceptor.pointer,
                { ssl, _ in
                    let filling = [UInt8](repeating: 0, count: 1_024)
                    return unsafe SSL_SESSION_set1_ticket_appdata(
                        SSL_get_session(ssl), filling, filling.count)
                }, nil, nil)
        }
        var pair = try EnginePair(dialer, acceptor)
        try pair.shakeHands()
        let ticketCount = try pair.readTickets()
        #expect(isLong ? ticketCount > 1_024 : (100...1_024).contains(ticketCount))
        let isKept = dialer.sessions?.takeDialed(now: clock.withLock { $0 }) != nil
        #expect(isKept == !isLong)
    }

    @Test("after both certificates have expired, the ticket of a session establishes nothing")
    func expired() throws {
        _ = try establish()
        clock.withLock { $0 += 60 * 86_400 }
        var pair = try EnginePair(dialer, acceptor)
        try? pair.shakeHands()
        #expect(pair.dialer.established == nil && pair.acceptor.established == nil)
    }

    @Test(
        "a replayed first flight with a ticket leads to a full handshake, and authenticates no peer"
    )
    func replayed() throws {
        _ = try establish()
        var pair = try EnginePair(dialer, acceptor)
        let hello = try #require(try pair.dialer.nextHandshake())
        try pair.acceptor.receiveHandshake(hello.span)
        let resumingFlight = try #require(try pair.acceptor.nextHandshake())
        var replayTarget = try TLSEngine(acceptor, role: .acceptor, isNegotiated: true)
        try replayTarget.receiveHandshake(hello.span)
        let fullFlight = try #require(try replayTarget.nextHandshake())
        #expect(fullFlight.count > resumingFlight.count + 200)
        #expect(replayTarget.phase == .handshaking)
        try pair.dialer.receiveHandshake(resumingFlight.span)
        if case .awaitingTrustDecision = pair.dialer.phase { try pair.dialer.admit() }
        let last = try #require(try pair.dialer.nextHandshake())
        try replayTarget.receiveHandshake(last.span)
        guard case .failing(let error) = replayTarget.phase else {
            Issue.record("\(replayTarget.phase)")
            return
        }
        #expect(error == ChannelError(.authenticationFailed, ""))
    }

    @Test("an acceptor that does not allow resumption sends no ticket; every handshake is full")
    func optIn() throws {
        var options = TLSOptions()
        options.clock = { TestAuthority.now }
        let withoutResumption = try TLSContext(
            identity: authority.identity("acceptor"), authorities: authority.authorities(),
            options: options)
        for _ in 0..<2 {
            var pair = try EnginePair(dialer, withoutResumption)
            try pair.shakeHands()
            #expect(pair.dialer.established != nil && pair.acceptor.established != nil)
            #expect(pair.sentCounts.values.reduce(0, +) > 1_000)
            #expect(try pair.readTickets() == 0)
        }
    }
}

extension EnginePair {
    /// Lets the dialer read what the acceptor has sent after the handshake, and returns the number
    /// of bytes.
    @discardableResult
    mutating func readTickets() throws -> Int {
        var bytes = unread(from: .acceptor)
        let count = bytes.count
        guard try dialer.opened(&bytes).isEmpty, bytes.isEmpty else {
            throw ChannelError(.internal, "the acceptor sent more than tickets")
        }
        return count
    }
}
