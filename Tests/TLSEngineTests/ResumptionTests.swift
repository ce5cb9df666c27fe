import BLESecChannelCore
import BLESecLocking
import BLESecTLSEngine
import TestSupport
import Testing

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
        dialer = try authority.device("dialer", revoked: revocations, options: options)
        acceptor = try authority.device("acceptor", revoked: revocations, options: options)
    }

    /// Runs a session, after which the dialer has a ticket to resume it.
    private func first() throws -> EnginePair {
        var pair = try EnginePair(dialer, acceptor)
        try pair.shakeHands()
        try pair.readTickets()
        return pair
    }

    @Test("a resumed handshake is shorter, and both sides know each other as before")
    func resumes() throws {
        let first = try first()
        var second = try EnginePair(dialer, acceptor)
        try second.shakeHands()
        #expect(second.dialer.established == first.dialer.established)
        #expect(second.acceptor.established == first.acceptor.established)
        #expect(second.dialer.established != nil && second.acceptor.established != nil)
        #expect(second.dialer.handshakeHash != first.dialer.handshakeHash)
        // Neither certificate was sent.
        #expect(second.sent.values.reduce(0, +) < first.sent.values.reduce(0, +) - 500)
        // A ticket is used once, and this session has brought a new ticket.
        try second.readTickets()
        var third = try EnginePair(dialer, acceptor)
        try third.shakeHands()
        #expect(third.sent == second.sent)
        #expect(try third.acceptor.opened(third.dialer.sealed(0, [1])) == [[0, 1]])
    }

    @Test("a policy is asked for each session, and each side refuses with a record")
    func asksAgain() throws {
        _ = try first()
        var pair = try EnginePair(dialer, acceptor)
        let hello = try #require(try pair.dialer.nextHandshake())
        try pair.acceptor.receiveHandshake(hello.span)
        let answer = try #require(try pair.acceptor.nextHandshake())
        try pair.dialer.receiveHandshake(answer.span)
        guard case .awaitingTrustDecision(let acceptors) = pair.dialer.phase else {
            Issue.record("the dialer does not judge")
            return
        }
        #expect(
            acceptors
                == ClaimedIdentity(
                    .certificate(
                        subjectPublicKeyInfo: acceptor.identity.subjectPublicKeyInfo,
                        uri: "blesec://devices/acceptor")))
        #expect(pair.dialer.refuse() == .byRecord)
        try pair.dialer.admit()
        let last = try #require(try pair.dialer.nextHandshake())
        try pair.acceptor.receiveHandshake(last.span)
        guard case .awaitingTrustDecision = pair.acceptor.phase else {
            Issue.record("the acceptor does not judge")
            return
        }
        #expect(pair.acceptor.refuse() == .byRecord)
        try pair.acceptor.admit()
        // A peer that is refused gets no ticket.
        #expect(try pair.acceptor.nextHandshake() == nil)
    }

    @Test(
        "a session whose peer is now revoked needs a full handshake, which is refused",
        arguments: [ChannelRole.dialer, .acceptor])
    func revoked(role: ChannelRole) throws {
        _ = try first()
        let revoked = role == .dialer ? dialer : acceptor
        let list = try RevocationList(
            lists: [], keys: [revoked.identity.fingerprint], authorities: authority.authorities())
        revocations.list.withLock { $0 = list }
        var pair = try EnginePair(dialer, acceptor)
        try? pair.shakeHands()
        let phase = role == .dialer ? pair.acceptor.phase : pair.dialer.phase
        guard case .failing(let error) = phase else {
            Issue.record("\(phase)")
            return
        }
        #expect(error == ChannelError(.untrusted, "") && error.reason.contains("is revoked"))
    }

    @Test("a session whose peer's certificate has expired is not resumed")
    func expired() throws {
        _ = try first()
        clock.withLock { $0 += 60 * 86_400 }
        var pair = try EnginePair(dialer, acceptor)
        try? pair.shakeHands()
        #expect(pair.dialer.established == nil && pair.acceptor.established == nil)
    }

    @Test(
        "a replayed first flight with a ticket leads to a full handshake, and authenticates no peer"
    )
    func replayed() throws {
        _ = try first()
        var pair = try EnginePair(dialer, acceptor)
        let hello = try #require(try pair.dialer.nextHandshake())
        try pair.acceptor.receiveHandshake(hello.span)
        let short = try #require(try pair.acceptor.nextHandshake())
        var other = try TLSEngine(acceptor, role: .acceptor, isNegotiated: true)
        try other.receiveHandshake(hello.span)
        let long = try #require(try other.nextHandshake())
        #expect(long.count > short.count + 200)
        #expect(other.phase == .handshaking)
        try pair.dialer.receiveHandshake(short.span)
        if case .awaitingTrustDecision = pair.dialer.phase { try pair.dialer.admit() }
        let last = try #require(try pair.dialer.nextHandshake())
        try other.receiveHandshake(last.span)
        guard case .failing(let error) = other.phase else {
            Issue.record("\(other.phase)")
            return
        }
        #expect(error == ChannelError(.authenticationFailed, ""))
    }

    @Test("a session is resumed only if both sides allow it")
    func optIn() throws {
        var options = TLSOptions()
        options.clock = { TestAuthority.now }
        let plain = try TLSContext(
            identity: authority.identity("acceptor"), authorities: authority.authorities(),
            options: options)
        for _ in 0..<2 {
            var pair = try EnginePair(dialer, plain)
            try pair.shakeHands()
            #expect(pair.dialer.established != nil && pair.acceptor.established != nil)
            #expect(pair.sent.values.reduce(0, +) > 1_000)
            #expect(try pair.readTickets() == 0)
        }
    }
}

extension EnginePair {
    /// Lets the dialer read what an acceptor sends after its handshake, and returns the number of
    /// bytes.
    @discardableResult
    mutating func readTickets() throws -> Int {
        var bytes = unread(from: .acceptor)
        let count = bytes.count
        guard try dialer.opened(&bytes).isEmpty, bytes.isEmpty else {
            throw ChannelError(.internal, "there is more than tickets")
        }
        return count
    }
}
