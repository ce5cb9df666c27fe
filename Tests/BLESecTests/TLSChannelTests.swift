import BLESecChannelCore
import BLESecLocking
import BLESecPrimitives
import BLESecTLSEngine
import TestSupport
import Testing

@testable import BLESec

/// Channels over TLS, and one negotiation for both engines.
@Suite("Channels over TLS")
struct TLSChannelTests {
    static let tls = CertificateFixture.tls
    static let noise = CertificateFixture.noise
    static let roles = [ChannelRole.dialer, .acceptor]

    @Test("both sides become ready, report each other's URI, and carry messages both ways")
    func ready() throws {
        let fixture = try CertificateFixture.shared()
        let run = try AttackRun(fixture.configurations())
        #expect(run.bothComplete)
        for role in Self.roles { #expect(run[role].received == AttackRun.messages[role.peer]) }
        let pair = try fixture.pair()
        pair.run()
        #expect(
            pair.acceptor.peer
                == .certificate(
                    subjectPublicKeyInfo: fixture.dialer.identity.subjectPublicKeyInfo,
                    uri: "blesec://devices/dialer"))
        #expect(
            pair.dialer.peer
                == .certificate(
                    subjectPublicKeyInfo: fixture.acceptor.identity.subjectPublicKeyInfo,
                    uri: "blesec://devices/acceptor"))
        #expect(pair.dialer.handshakeHash.count == 32)
        #expect(pair.dialer.handshakeHash == pair.acceptor.handshakeHash)
        let key = try pair.dialer.export(label: "a", context: [1], count: 32)
        #expect(try pair.acceptor.export(label: "a", context: [1], count: 32).isEqual(to: key))
    }

    @Test("a channel works when its bytes arrive in small pieces", arguments: [1, 5, 100])
    func pieces(piece: Int) throws {
        let pair = try CertificateFixture.shared().pair()
        pair.run(piece: piece)
        #expect(pair.isReady)
        _ = try pair.dialer.queue([UInt8](repeating: 7, count: 40_000))
        pair.run(piece: piece)
        #expect(pair.acceptor.takeMessage(now: pair.now)?.count == 40_000)
    }

    @Test(
        "the protocol is the first offer that the acceptor supports, for either engine",
        arguments: [
            ([tls, noise], [tls, noise], tls), ([noise, tls], [tls, noise], noise),
            ([tls, noise], [noise], noise), ([noise, tls], [tls], tls),
            ([tls, noise], [noise, tls], tls), ([noise], [tls, noise], noise),
        ])
    func offers(dialer: [String], acceptor: [String], expected: String) throws {
        let pair = try CertificateFixture.shared().pair(dialer: dialer, acceptor: acceptor)
        pair.run()
        #expect(pair.isReady)
        #expect(pair.dialer.protocolName == expected && pair.acceptor.protocolName == expected)
        switch pair.dialer.peer {
        case .certificate: #expect(expected == Self.tls)
        case .publicKey: #expect(expected == Self.noise)
        default: Issue.record("the dialer reports no certificate and no key")
        }
    }

    @Test(
        "without a common protocol both sides fail with noCommonProtocol", arguments: [true, false])
    func nothingInCommon(dialerHasTLS: Bool) throws {
        let pair = try CertificateFixture.shared().pair(
            dialer: [dialerHasTLS ? Self.tls : Self.noise],
            acceptor: [dialerHasTLS ? Self.noise : Self.tls])
        pair.run()
        #expect(pair.dialer.outcome?.code == .noCommonProtocol)
        pair.passTime(.seconds(2))
        #expect(pair.acceptor.outcome?.code == .noCommonProtocol)
    }

    @Test("both sides change their sending keys after rekeyAfterBytes")
    func rekey() throws {
        let fixture = try CertificateFixture.shared()
        var configurations = try fixture.configurations()
        configurations.dialer.limits.rekeyAfterBytes = 1 << 20
        configurations.acceptor.limits.rekeyAfterBytes = 1 << 20
        let pair = try MachinePair(dialer: configurations.dialer, acceptor: configurations.acceptor)
        pair.run()
        let message = [UInt8](repeating: 9, count: 1_000)
        for _ in 0..<2_500 {
            _ = try pair.dialer.queue(message)
            _ = try pair.acceptor.queue(message)
            pair.run()
            #expect(pair.acceptor.takeMessage(now: pair.now) == message)
            #expect(pair.dialer.takeMessage(now: pair.now) == message)
        }
        for side in [pair.dialer.stage, pair.acceptor.stage] {
            #expect(try #require(side).records.sending.bytes < 1 << 20)
        }
    }

    @Test("a pinned key admits a peer whose certificate is signed by no authority")
    func pinned() throws {
        let authority = try TestAuthority()
        let dialerTLS = try authority.selfSignedContext("one")
        let acceptorTLS = try authority.selfSignedContext("other")
        var dialer = ChannelConfiguration(
            identity: nil, trust: .pinned([PeerKey(fingerprint: acceptorTLS.identity.fingerprint)]))
        var acceptor = ChannelConfiguration(
            identity: nil, trust: .pinned([PeerKey(fingerprint: dialerTLS.identity.fingerprint)]))
        (dialer.protocols, acceptor.protocols) = ([Self.tls], [Self.tls])
        (dialer.tls, acceptor.tls) = (dialerTLS, acceptorTLS)
        let pair = try MachinePair(dialer: dialer, acceptor: acceptor)
        pair.run()
        #expect(pair.isReady)
        #expect(
            pair.dialer.peer
                == .certificate(
                    subjectPublicKeyInfo: acceptorTLS.identity.subjectPublicKeyInfo, uri: nil))
    }

    @Test(
        "a side whose policy refuses fails with untrusted, and its peer with refused",
        arguments: roles)
    func policyRefuses(role: ChannelRole) throws {
        let fixture = try CertificateFixture.shared()
        for policy in [
            TrustPolicy.authority(uris: ["blesec://devices/someone"]),
            .pinned([PeerKey(fingerprint: fixture.pinned.dialer.fingerprint)]),
        ] {
            var configurations = try fixture.configurations()
            if role == .dialer {
                configurations.dialer.certificateTrust = policy
            } else {
                configurations.acceptor.certificateTrust = policy
            }
            let run = try AttackRun(configurations)
            #expect(run[role].failure == .untrusted)
            #expect(run[role.peer].failure == .refused)
            #expect(!run.dialer.wasReady && !run.acceptor.wasReady)
        }
    }

    @Test("a deny list overrides an authority", arguments: roles)
    func denied(role: ChannelRole) throws {
        let fixture = try CertificateFixture.shared()
        let peer = role == .dialer ? fixture.acceptor : fixture.dialer
        var configurations = try fixture.configurations()
        let list = DenyList([peer.identity.fingerprint])
        if role == .dialer {
            configurations.dialer.trust = configurations.dialer.trust.denying(list)
        } else {
            configurations.acceptor.trust = configurations.acceptor.trust.denying(list)
        }
        let run = try AttackRun(configurations)
        #expect(run[role].failure == .untrusted && run[role.peer].failure == .refused)
    }

    @Test("a peer is admitted only if its URI equals one of the permitted URIs")
    func permittedURIs() throws {
        let fixture = try CertificateFixture.shared()
        for (uris, isReady) in [
            (["blesec://devices/acceptor", "x:y"], true), (["blesec://devices/accepto"], false),
            (["blesec://devices/Acceptor"], false), (["blesec://devices/acceptor/"], false),
        ] {
            var configurations = try fixture.configurations()
            configurations.dialer.certificateTrust = .authority(uris: Set(uris))
            let pair = try MachinePair(
                dialer: configurations.dialer, acceptor: configurations.acceptor)
            pair.run()
            #expect(pair.isReady == isReady)
        }
    }

    @Test("a dialer that refuses sends an alert, and nothing of its own certificate")
    func dialerRefuses() throws {
        let fixture = try CertificateFixture.shared()
        var configurations = try fixture.configurations()
        configurations.dialer.certificateTrust = .authority(uris: ["blesec://devices/x"])
        let pair = try MachinePair(dialer: configurations.dialer, acceptor: configurations.acceptor)
        pair.run()
        let flights = try #require(pair.sent[.dialer])
        #expect(flights.count == 2)
        // A fatal handshake_failure.
        #expect(LinkedOpenSSL.isAlert(flights[1], 40, by: .dialer))
    }

    @Test(
        "a policy that asks a person suspends the handshake, and asks once", arguments: roles)
    func asking(role: ChannelRole) throws {
        for admits in [true, false] {
            var configurations = try CertificateFixture.shared().configurations()
            let policy = TrustPolicy.asking { _ in .admit }
            if role == .dialer {
                configurations.dialer.certificateTrust = policy
            } else {
                configurations.acceptor.certificateTrust = policy
            }
            let pair = try MachinePair(
                dialer: configurations.dialer, acceptor: configurations.acceptor)
            pair.run()
            let verdict: TrustPolicy.Verdict = admits ? .admit : .refuse("no")
            if role == .dialer {
                #expect(
                    pair.dialer.phase == .awaitingTrustDecision
                        && pair.dialer.takeTrustQuestion() != nil)
                #expect(pair.sent[.dialer]?.count == 1)
                pair.dialer.didDecide(verdict.refusal, now: pair.now)
            } else {
                #expect(
                    pair.acceptor.phase == .awaitingTrustDecision
                        && pair.acceptor.takeTrustQuestion() != nil)
                pair.acceptor.didDecide(verdict.refusal, now: pair.now)
            }
            pair.run()
            #expect(pair.isReady == admits)
            #expect(
                pair.dialer.takeTrustQuestion() == nil && pair.acceptor.takeTrustQuestion() == nil)
            guard !admits else { continue }
            let peerOutcome = role == .dialer ? pair.acceptor.outcome : pair.dialer.outcome
            #expect(peerOutcome?.code == .refused)
        }
    }

    @Test("a dialer and an acceptor with the same certificate never become ready")
    func ownCertificate() throws {
        let fixture = try CertificateFixture.shared()
        for sharesDials in [true, false] {
            var dialer = try fixture.configuration(.dialer)
            var acceptor = try fixture.configuration(.dialer)
            // Sides in two processes have separate sets of pending dials.
            if !sharesDials { (dialer.pendingDials, acceptor.pendingDials) = (.init(), .init()) }
            let run = try AttackRun((dialer, acceptor))
            let failures = [run.dialer.failure, run.acceptor.failure]
            #expect(failures.contains(.selfConnection))
            if sharesDials { #expect(failures == [.selfConnection, .selfConnection]) }
            #expect(!run.dialer.wasReady && !run.acceptor.wasReady)
        }
    }

    @Test("a configuration whose protocol, policy and certificate do not fit together is refused")
    func configurations() throws {
        let fixture = try CertificateFixture.shared()
        func expectRefused(
            _ protocols: [String] = [Self.tls],
            _ change: (inout ChannelConfiguration) throws -> Void
        ) throws {
            var configuration = try fixture.configuration(.dialer, protocols)
            try change(&configuration)
            #expect(throws: ChannelError(.configuration, "")) {
                try configuration.validate(for: .dialer)
            }
        }
        try expectRefused { $0.tls = nil }
        try expectRefused { $0.certificateTrust = .authority().denying(DenyList()) }
        try expectRefused {
            $0.certificateTrust = .pairing(
                .code(TrustPolicy.PairingCode()), store: TrustDecisionTests.MemoryStore(),
                name: "desk")
        }
        try expectRefused {
            $0.mode = .direct
            $0.prologue = [1]
        }
        try expectRefused([Self.noise]) { $0.trust = .authority() }
        let selfSigned = try fixture.authority.selfSignedContext("itself")
        try expectRefused { $0.tls = selfSigned }
        try fixture.authority.issue(
            "server", TestAuthority.deviceExtensions("server", usage: "serverAuth"))
        let server = try TLSContext(identity: fixture.authority.identity("server"))
        try expectRefused {
            $0.tls = server
            $0.certificateTrust = .anyone
        }
    }

    @Test("direct mode carries bytes both ways, and ends when both sides have sent their end")
    func direct() throws {
        var configurations = try CertificateFixture.shared().configurations()
        (configurations.dialer.mode, configurations.acceptor.mode) = (.direct, .direct)
        let pair = try MachinePair(dialer: configurations.dialer, acceptor: configurations.acceptor)
        pair.run()
        #expect(pair.isReady)
        let message = [UInt8](repeating: 3, count: 40_000)
        _ = try pair.dialer.queue(message)
        _ = try pair.acceptor.queue([1])
        pair.dialer.end()
        pair.run()
        var received: [UInt8] = []
        while let piece = pair.acceptor.takeMessage(now: pair.now) { received += piece }
        #expect(received == message)
        #expect(pair.dialer.takeMessage(now: pair.now) == [1])
        #expect(pair.acceptor.hasPeerEnded && !pair.dialer.hasPeerEnded)
        _ = try pair.acceptor.queue([2])
        pair.acceptor.end()
        pair.run()
        #expect(pair.dialer.takeMessage(now: pair.now) == [2])
        #expect(
            pair.dialer.permittedLinkShutdown(canHalfClose: true, now: pair.now)
                == .closeWhenDrained)
        pair.dialer.didCloseLink()
        pair.acceptor.linkEnded(nil, now: pair.now)
        #expect(pair.acceptor.outcome != nil && pair.acceptor.outcome?.code == nil)
        #expect(pair.dialer.outcome != nil && pair.dialer.outcome?.code == nil)
    }

    /// Two ready sides of a direct channel over TLS or Noise, three seconds after the handshake.
    /// The dialer has sent a message and its end.
    private static func pairWhoseDialerHasEnded(_ name: String) throws -> MachinePair {
        var configurations = try CertificateFixture.shared().configurations(
            dialer: [name], acceptor: [name])
        (configurations.dialer.mode, configurations.acceptor.mode) = (.direct, .direct)
        let pair = try MachinePair(dialer: configurations.dialer, acceptor: configurations.acceptor)
        pair.run()
        #expect(pair.isReady)
        pair.passTime(.seconds(3))
        _ = try pair.dialer.queue([1])
        pair.dialer.end()
        pair.run()
        #expect(pair.acceptor.takeMessage(now: pair.now) == [1])
        return pair
    }

    @Test("without half-close, a direct TLS dialer that has ended waits for the acceptor's end")
    func directWithoutHalfClose() throws {
        let pair = try Self.pairWhoseDialerHasEnded(Self.tls)
        func expectOpen() {
            #expect(
                pair.dialer.permittedLinkShutdown(canHalfClose: false, now: pair.now) == .stay)
        }
        expectOpen()
        pair.passTime(.seconds(3))
        expectOpen()
        _ = try pair.acceptor.queue([2])
        pair.run()
        #expect(pair.dialer.takeMessage(now: pair.now) == [2])
        pair.passTime(.seconds(3))
        expectOpen()
        pair.acceptor.end()
        pair.run()
        #expect(
            pair.dialer.permittedLinkShutdown(canHalfClose: false, now: pair.now)
                == .closeWhenDrained)
        pair.dialer.didCloseLink()
        #expect(pair.dialer.outcome != nil && pair.dialer.outcome?.code == nil)
    }

    @Test("a direct TLS dialer that never gets the acceptor's end fails: truncated or timedOut")
    func directWithoutPeersEnd() throws {
        let cutPair = try Self.pairWhoseDialerHasEnded(Self.tls)
        cutPair.dialer.linkEnded(nil, now: cutPair.now)
        #expect(cutPair.dialer.outcome?.code == .truncated)
        let silentPair = try Self.pairWhoseDialerHasEnded(Self.tls)
        silentPair.dialer.close(within: .seconds(5), now: silentPair.now)
        silentPair.passTime(.seconds(4))
        #expect(silentPair.dialer.outcome == nil)
        #expect(
            silentPair.dialer.permittedLinkShutdown(canHalfClose: false, now: silentPair.now)
                == .stay)
        silentPair.passTime(.seconds(1))
        #expect(silentPair.dialer.outcome?.code == .timedOut)
    }

    @Test(
        "without half-close, a direct Noise dialer waits one second after its own end or a later arrival"
    )
    func directNoiseWithoutHalfClose() throws {
        let pair = try Self.pairWhoseDialerHasEnded(Self.noise)
        func shutdown() -> LinkShutdown {
            pair.dialer.permittedLinkShutdown(canHalfClose: false, now: pair.now)
        }
        #expect(shutdown() == .stay)
        #expect(pair.dialer.nextTimeout(now: pair.now) == pair.now.after(.seconds(1)))
        pair.passTime(.milliseconds(999))
        #expect(shutdown() == .stay)
        // What arrives begins another second.
        _ = try pair.acceptor.queue([2])
        pair.run()
        #expect(pair.dialer.takeMessage(now: pair.now) == [2])
        pair.passTime(.milliseconds(999))
        #expect(shutdown() == .stay)
        pair.passTime(.milliseconds(1))
        #expect(shutdown() == .closeWhenDrained)
    }

    @Test("an open channel survives the revocation of its peer; the next channel is refused")
    func revokedWhileOpen() throws {
        final class Source: RevocationSource {
            let list = Locked<RevocationList?>(nil)
            let emptyList: RevocationList

            init(_ emptyList: RevocationList) { self.emptyList = emptyList }
            func current(at now: Int64) -> RevocationList { list.withLock { $0 } ?? emptyList }
        }
        let authority = try TestAuthority()
        for name in ["dialer", "acceptor"] { try authority.issueDevice(name) }
        let source = Source(try RevocationList(lists: [], authorities: authority.authorities()))
        func configuration(_ name: String) throws -> ChannelConfiguration {
            var configuration = ChannelConfiguration(identity: nil, trust: .authority())
            configuration.protocols = [Self.tls]
            configuration.tls = try TLSContext(
                identity: authority.identity(name), authorities: authority.authorities(),
                revoked: name == "acceptor" ? source : nil)
            return configuration
        }
        func pair() throws -> MachinePair {
            let pair = try MachinePair(
                dialer: configuration("dialer"), acceptor: configuration("acceptor"))
            pair.run()
            return pair
        }
        let openPair = try pair()
        #expect(openPair.isReady)
        let revoked = try RevocationList(
            lists: [authority.revocationList(["dialer"])], authorities: authority.authorities())
        source.list.withLock { $0 = revoked }
        _ = try openPair.dialer.queue([1])
        openPair.run()
        #expect(openPair.acceptor.nextMessage() == [1])
        let nextPair = try pair()
        #expect(!nextPair.isReady)
        nextPair.acceptor.linkEnded(nil, now: nextPair.now)
        #expect(nextPair.acceptor.outcome?.code == .untrusted)
    }

    @Test("an intermediate whose own revocation list has its serial number is not revoked")
    func serialOfIntermediate() throws {
        let authority = try TestAuthority()
        let middle = try TestAuthority("middle", under: authority)
        try middle.issueDevice("dialer")
        try authority.issueDevice("acceptor")
        let both = try ["ca.pem", "middle.pem"].flatMap { try #require(authority.folder.read($0)) }
        let authorities = try CertificateFile.authorities(authority.folder.write("both.pem", both))
        // The list has the intermediate's serial number, as if a device of the intermediate had
        // that number.
        let list = try RevocationList(
            lists: [middle.revocationList(["middle"])], authorities: authorities)
        func configuration(_ name: String) throws -> ChannelConfiguration {
            var configuration = ChannelConfiguration(identity: nil, trust: .authority())
            configuration.protocols = [Self.tls]
            configuration.tls = try TLSContext(
                identity: authority.identity(name), authorities: authorities, revoked: list)
            return configuration
        }
        let pair = try MachinePair(
            dialer: configuration("dialer"), acceptor: configuration("acceptor"))
        pair.run()
        #expect(pair.isReady)
    }

    @Test("a direct TLS stream that is cut ends with truncated")
    func directTruncated() throws {
        var configurations = try CertificateFixture.shared().configurations()
        (configurations.dialer.mode, configurations.acceptor.mode) = (.direct, .direct)
        let pair = try MachinePair(dialer: configurations.dialer, acceptor: configurations.acceptor)
        pair.run()
        _ = try pair.dialer.queue([1])
        pair.run()
        pair.acceptor.linkEnded(nil, now: pair.now)
        #expect(pair.acceptor.outcome?.code == .truncated)
    }

    @Test(
        "a negotiated and a direct side never become ready, even if an attacker forges the hello",
        arguments: roles, [true, false])
    func mixedModes(directSide: ChannelRole, isForged: Bool) throws {
        var configurations = try CertificateFixture.shared().configurations()
        if directSide == .dialer {
            configurations.dialer.mode = .direct
        } else {
            configurations.acceptor.mode = .direct
        }
        let hello = try Hello(
            offers: [Self.tls], extensions: ChannelFeatures.known.extensions
        ).encoded
        // Of the offered features, a negotiated acceptor has only `acknowledgesTaken`. Its answer
        // lists this feature.
        let answerLength = Answer(
            .accept, extensions: ChannelFeatures.acknowledgesTaken.extensions
        ).encoded.count
        let run = try AttackRun(configurations) { role, offset, bytes in
            guard isForged, offset == 0 else { return bytes }
            // The attacker adds a hello or an answer to what the direct side sends, and removes it
            // from what the negotiated side sends.
            switch (role, directSide) {
            case (.dialer, .dialer): return hello + MaliciousNoisePeer.framed(bytes)
            case (.dialer, .acceptor): return Array(bytes.dropFirst(hello.count + 2))
            case (.acceptor, .dialer): return Array(bytes.dropFirst(answerLength))
            case (.acceptor, .acceptor): return Answer(.accept).encoded + bytes
            }
        }
        #expect(!run.dialer.wasReady && !run.acceptor.wasReady)
        #expect(run.dialer.failure != nil && run.acceptor.failure != nil)
        if isForged { #expect(run[.acceptor].failure == .noCommonProtocol) }
    }
}
