import BLESecChannelCore
import BLESecCredentials
import BLESecTLSEngine
import TestSupport
import Testing

@testable import BLESec

/// A certificate or a behaviour for which a peer is refused.
struct Refusable: Sendable, CustomTestStringConvertible {
    typealias Behaviour = MaliciousTLSPeer.Behaviour

    let testDescription: String
    /// Words that the reason in the victim's own error contains.
    let reason: String
    let code: ChannelError.Code
    /// The peer's roles in which the case is tried.
    var roles = [ChannelRole.dialer, .acceptor]
    /// Makes the peer's certificate and behaviour, and changes the victim's configuration.
    let prepare: @Sendable (Setup) throws -> Behaviour

    init(
        _ name: String, _ reason: String, _ code: ChannelError.Code = .untrusted,
        roles: [ChannelRole] = [.dialer, .acceptor],
        _ prepare: @escaping @Sendable (Setup) throws -> Behaviour
    ) {
        testDescription = name
        self.reason = reason
        self.code = code
        self.roles = roles
        self.prepare = prepare
    }

    /// An authority with its folder, and the victim's configuration.
    final class Setup {
        let authority: TestAuthority
        var options = TLSOptions()
        var revocations: (any RevocationSource)?
        var policy = TrustPolicy.authority()
        /// The authorities that the victim accepts; nil if it accepts only ``authority``.
        var authorities: CertificateAuthorities?

        init() throws {
            authority = try TestAuthority()
            try authority.issueDevice("victim")
        }

        /// Issues the peer's certificate with `extensions`, lines of OpenSSL's configuration, and
        /// returns the behaviour of a peer that uses it.
        func issue(_ extensions: String, newKey: [String] = ["ed25519"]) throws -> Behaviour {
            try authority.issue("rogue", extensions, newKey: newKey)
            return Behaviour(certificate: "rogue")
        }

        /// Issues a valid certificate for the peer; returns the behaviour of a peer that uses it.
        func issueValid() throws -> Behaviour {
            try issue(TestAuthority.deviceExtensions("rogue"))
        }

        /// Lets the victim accept these authorities, whose certificates are in the folder.
        func accept(_ names: [String]) throws -> CertificateAuthorities {
            let folder = authority.folder
            let certificates = names.flatMap { folder.read("\($0).pem") ?? [] }
            let accepted = try CertificateFile.authorities(
                folder.write("accepted.pem", certificates))
            authorities = accepted
            return accepted
        }

        func configuration() throws -> ChannelConfiguration {
            var configuration = ChannelConfiguration(identity: nil, trust: policy)
            configuration.protocols = [TLSContext.protocolName]
            configuration.tls = try TLSContext(
                identity: authority.identity("victim"),
                authorities: authorities ?? authority.authorities(), revoked: revocations,
                options: options)
            return configuration
        }
    }
}

extension Refusable {
    private static let usage = "extendedKeyUsage=clientAuth,serverAuth\n"
    private static let uri = "subjectAltName=URI:blesec://devices/rogue\n"

    /// Bad certificates. Each test name continues "a certificate …".
    static let certificates = [
        Self("of another authority", "leads to no authority") { setup in
            let other = try TestAuthority("other", in: setup.authority.folder)
            try other.issueDevice("rogue")
            return Behaviour(certificate: "rogue")
        },
        Self("of another authority that has the same name", "not its issuer's") { setup in
            let other = try TestAuthority()
            try other.issueDevice("rogue")
            for file in ["rogue.pem", "rogue.key"] {
                setup.authority.folder.write(file, other.folder.read(file) ?? [])
            }
            return Behaviour(certificate: "rogue")
        },
        Self("of another authority, whose certificate is sent too", "leads to no authority") {
            setup in
            let other = try TestAuthority("other", in: setup.authority.folder)
            try other.issueDevice("rogue")
            return Behaviour(certificate: "rogue", chain: ["other"])
        },
        Self("self-signed", "signed with its own key") { setup in
            try setup.authority.selfSign("rogue", "basicConstraints=CA:FALSE\n" + uri + usage)
            return Behaviour(certificate: "rogue")
        },
        Self("expired", "has expired") { setup in
            setup.options.clock = { TestAuthority.now + 60 * 86_400 }
            return try setup.issueValid()
        },
        Self("not yet valid", "not valid yet") { setup in
            setup.options.clock = { TestAuthority.now - 86_400 }
            return try setup.issueValid()
        },
        Self("of a dialer, for serverAuth", "in its extended key usage", roles: [.dialer]) {
            setup in
            try setup.issue(TestAuthority.deviceExtensions("rogue", usage: "serverAuth"))
        },
        Self("of an acceptor, for clientAuth", "in its extended key usage", roles: [.acceptor]) {
            try $0.issue(TestAuthority.deviceExtensions("rogue", usage: "clientAuth"))
        },
        Self("without an extended key usage", "in its extended key usage") { setup in
            try setup.issue(uri)
        },
        Self("with a relative place of a revocation list", "relative to its issuer's name") {
            setup in
            try setup.issue(
                TestAuthority.deviceExtensions("rogue")
                    + "crlDistributionPoints=point\n[point]\nrelativename=name\n[name]\nCN=x\n")
        },
        Self(
            "sent with an unneeded one that has a malformed place of a revocation list",
            "relative to its issuer's name or unreadably"
        ) { setup in
            try setup.authority.issue(
                "unneeded",
                TestAuthority.deviceExtensions("unneeded") + "2.5.29.31=DER:0500\n")
            var behaviour = try setup.issueValid()
            behaviour.chain = ["unneeded"]
            return behaviour
        },
        Self("for signing code", "in its extended key usage") { setup in
            try setup.issue(TestAuthority.deviceExtensions("rogue", usage: "codeSigning"))
        },
        Self("whose key usage is key agreement alone", "may not be used to sign") { setup in
            try setup.issue(
                uri + usage + "keyUsage=keyAgreement\n",
                newKey: ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
        },
        Self("that is the authority's own", "is an authority's") { setup in
            Behaviour(certificate: "ca")
        },
        Self("that is an intermediate authority's", "is an authority's") { setup in
            try setup.issue(uri + usage + "basicConstraints=CA:TRUE\n")
        },
        Self("with a longer path than its authority permits", "longer path") { setup in
            let root = try TestAuthority(
                "ca", in: setup.authority.folder, constraints: "CA:TRUE,pathlen:0")
            try root.issueDevice("victim")
            let middle = try TestAuthority("middle", under: root)
            try middle.issueDevice("rogue")
            return Behaviour(certificate: "rogue", chain: ["middle"])
        },
        Self("issued by a device", "may not issue it") { setup in
            let middle = try TestAuthority(
                "middle", under: setup.authority,
                extensions: TestAuthority.deviceExtensions("middle"))
            try middle.issueDevice("rogue")
            return Behaviour(certificate: "rogue", chain: ["middle"])
        },
        Self("whose intermediate is not sent", "leads to no authority") { setup in
            let middle = try TestAuthority("middle", under: setup.authority)
            try middle.issueDevice("rogue")
            return Behaviour(certificate: "rogue")
        },
        Self("revoked by its serial number", "is revoked") { setup in
            let behaviour = try setup.issueValid()
            setup.revocations = try RevocationList(
                lists: [setup.authority.revocationList(["rogue"])],
                authorities: setup.authority.authorities())
            return behaviour
        },
        Self("whose intermediate is revoked", "is revoked") { setup in
            let middle = try TestAuthority("middle", under: setup.authority)
            try middle.issueDevice("rogue")
            setup.revocations = try RevocationList(
                lists: [setup.authority.revocationList(["middle"])],
                authorities: setup.authority.authorities())
            return Behaviour(certificate: "rogue", chain: ["middle"])
        },
        Self("revoked by its key", "is revoked") { setup in
            let behaviour = try setup.issueValid()
            setup.revocations = try RevocationList(
                lists: [], keys: [setup.authority.identity("rogue").fingerprint],
                authorities: setup.authority.authorities())
            return behaviour
        },
        Self("whose revocation list is missing", "no list", .noSuchFile) { setup in
            struct Lost: RevocationSource {
                func current(at now: Int64) throws(ChannelError) -> RevocationList {
                    throw ChannelError(.noSuchFile, "no list")
                }
            }
            setup.revocations = Lost()
            return try setup.issueValid()
        },
        Self("with a common name alone", "names no URI") { setup in try setup.issue(usage) },
        Self("with a host name alone", "names no URI") { setup in
            try setup.issue(usage + "subjectAltName=DNS:rogue.example\n")
        },
        Self("with two URIs", "names several URIs") { setup in
            try setup.issue(usage + "subjectAltName=URI:blesec://a,URI:blesec://b\n")
        },
        Self("with the same URI twice", "names several URIs") { setup in
            try setup.issue(usage + "subjectAltName=URI:blesec://a,URI:blesec://a\n")
        },
        Self("with a malformed URI", "malformed list of names") { setup in
            try setup.issue(usage + "subjectAltName=@it\n[it]\nURI=a b\n")
        },
        Self("with a changed signature", "not its issuer's") { setup in
            var behaviour = try setup.issueValid()
            try setup.authority.run([
                "x509", "-in", setup.authority.folder.file("rogue.pem"), "-outform", "DER", "-out",
                setup.authority.folder.file("rogue.der"),
            ])
            var leaf = setup.authority.folder.read("rogue.der") ?? []
            leaf[leaf.count - 1] ^= 1
            behaviour.leaf = leaf
            return behaviour
        },
        Self("revoked by its intermediate, which is an authority of the victim too", "is revoked") {
            setup in
            let middle = try TestAuthority("middle", under: setup.authority)
            try middle.issueDevice("rogue")
            let authorities = try setup.accept(["ca", "middle"])
            setup.revocations = try RevocationList(
                lists: [middle.revocationList(["rogue"])], authorities: authorities)
            return Behaviour(certificate: "rogue", chain: ["middle"])
        },
        Self("whose intermediate, an authority of the victim too, is revoked", "is revoked") {
            setup in
            let middle = try TestAuthority("middle", under: setup.authority)
            try middle.issueDevice("rogue")
            let authorities = try setup.accept(["ca", "middle"])
            setup.revocations = try RevocationList(
                lists: [setup.authority.revocationList(["middle"]), middle.revocationList([])],
                authorities: authorities)
            return Behaviour(certificate: "rogue", chain: ["middle"])
        },
        Self("below three authorities of the victim, the second of them revoked", "is revoked") {
            setup in
            let middle = try TestAuthority("middle", under: setup.authority)
            let lowest = try TestAuthority("lowest", under: middle)
            try lowest.issueDevice("rogue")
            let authorities = try setup.accept(["lowest", "middle", "ca"])
            setup.revocations = try RevocationList(
                lists: [setup.authority.revocationList(["middle"])], authorities: authorities)
            return Behaviour(certificate: "rogue", chain: ["lowest", "middle"])
        },
        Self("with a revoked key in another encoding, a compressed point", "unusual encoding") {
            setup in
            let device = TestAuthority.deviceExtensions("rogue")
            try setup.authority.issue("rogue", device, pointForm: "uncompressed")
            setup.revocations = try RevocationList(
                lists: [], keys: [setup.authority.identity("rogue").fingerprint],
                authorities: setup.authority.authorities())
            try setup.authority.issue("rogue", device, pointForm: "compressed")
            return Behaviour(certificate: "rogue")
        },
        Self("with a hybrid point", "unusual encoding") { setup in
            try setup.authority.issue(
                "rogue", TestAuthority.deviceExtensions("rogue"), pointForm: "hybrid")
            return Behaviour(certificate: "rogue")
        },
        Self("whose curve has explicit parameters", "unusual encoding") { setup in
            try setup.issue(
                TestAuthority.deviceExtensions("rogue"),
                newKey: [
                    "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-pkeyopt",
                    "ec_param_enc:explicit",
                ])
        },
        Self("whose intermediate has a compressed point", "unusual encoding") { setup in
            try setup.authority.issue(
                "middle", TestAuthority.authorityExtensions("CA:TRUE"), pointForm: "compressed")
            let middle = TestAuthority("middle", in: setup.authority)
            try middle.issueDevice("rogue")
            return Behaviour(certificate: "rogue", chain: ["middle"])
        },
        Self("sent with an unneeded certificate that has a compressed point", "unusual encoding") {
            setup in
            // The reason shows that OpenSSL has not decoded the key of the unneeded certificate.
            try setup.authority.issue(
                "unneeded", TestAuthority.deviceExtensions("unneeded"), pointForm: "compressed")
            var behaviour = try setup.issueValid()
            behaviour.chain = ["unneeded"]
            return behaviour
        },
        Self("with a key that is too short", "too weak") { setup in
            try setup.issue(TestAuthority.deviceExtensions("rogue"), newKey: ["rsa:1024"])
        },
        Self("with a key that has too long an exponent", "unusually large") { setup in
            try setup.issue(
                TestAuthority.deviceExtensions("rogue"),
                newKey: ["rsa:2048", "-pkeyopt", "rsa_keygen_pubexp:4294967311"])
        },
    ]
}

/// Peers that are refused. Only the victim's own error says what is wrong with a certificate: the
/// alert for the peer is always the same.
@Suite("Refusals")
struct RefusalTests {
    @Test(
        "the victim's error tells why a certificate is bad; its alert to the peer is always the same",
        arguments: Refusable.certificates)
    func certificate(_ refusable: Refusable) throws {
        let setup = try Refusable.Setup()
        let behaviour = try refusable.prepare(setup)
        let configuration = try setup.configuration()
        for role in refusable.roles {
            let peer = try MaliciousTLSPeer(
                role, behaviour, in: setup.authority.folder, victim: configuration)
            try peer.run()
            #expect(peer.alert == 40, "\(role)")
            #expect(peer.types.isEmpty)
            // The victim's last record is the alert. An acceptor sends it after its own flight, and
            // a dialer in place of its flight.
            let last = try #require(peer.records.last)
            #expect(LinkedOpenSSL.isAlert(last, 40, by: role.peer), "\(role)")
            #expect(peer.reportedIdentity == nil)
            let failure = try #require(peer.endLinkReturningVictimFailure())
            #expect(failure.code == refusable.code, "\(role): \(failure.reason)")
            #expect(failure.reason.contains(refusable.reason), "\(role): \(failure.reason)")
        }
    }

    /// Behaviours that are refused, each with the number of its alert: 40 is handshake_failure, 47
    /// illegal_parameter, 50 decode_error, 70 protocol_version, 116 certificate_required, and 120
    /// no_application_protocol.
    static let behaviours: [(Refusable, Int32)] = [
        (
            Refusable("no certificate", "is missing", roles: [.dialer]) { _ in
                MaliciousTLSPeer.Behaviour(certificate: nil)
            }, 116
        ),
        (
            Refusable("TLS 1.2", "does not speak TLS 1.3", .noCommonProtocol, roles: [.dialer]) {
                setup in
                var behaviour = try setup.issueValid()
                behaviour.newestVersion = 0x0303
                return behaviour
            }, 70
        ),
        (
            Refusable("no ALPN name", "not for blesec/1", .noCommonProtocol, roles: [.dialer]) {
                setup in
                var behaviour = try setup.issueValid()
                behaviour.sendsALPN = false
                return behaviour
            }, 120
        ),
        (
            Refusable("another group", "share no TLS", .noCommonProtocol, roles: [.dialer]) {
                setup in
                var behaviour = try setup.issueValid()
                behaviour.groups = "P-521"
                return behaviour
            }, 40
        ),
        // One record contains the whole of the shorter chain, but not of the longer one.
        (oversizedChain(.dialer, 20), 47),
        (oversizedChain(.dialer, 60), 47),
        (oversizedChain(.acceptor, 20), 47),
        (chainOfTooMany(.dialer), 50),
        (chainOfTooMany(.acceptor), 50),
    ]

    static func oversizedChain(_ role: ChannelRole, _ count: Int) -> Refusable {
        Refusable(
            "a chain of \(count) certificates of a \(role)", "too long", .limitExceeded,
            roles: [role]
        ) { setup in
            var behaviour = try setup.issueValid()
            behaviour.chain = Array(repeating: "ca", count: count)
            return behaviour
        }
    }

    /// A chain of nine certificates, which is short enough.
    static func chainOfTooMany(_ role: ChannelRole) -> Refusable {
        Refusable(
            "nine certificates of a \(role)", "too many certificates", .limitExceeded,
            roles: [role]
        ) { setup in
            var behaviour = try setup.issueValid()
            behaviour.chain = Array(repeating: "ca", count: 8)
            return behaviour
        }
    }

    @Test(
        "a peer whose TLS does not follow the profile is refused, with the alert for its fault",
        arguments: behaviours)
    func behaviour(_ refusable: Refusable, alert: Int32) throws {
        let setup = try Refusable.Setup()
        let behaviour = try refusable.prepare(setup)
        let configuration = try setup.configuration()
        for role in refusable.roles {
            let peer = try MaliciousTLSPeer(
                role, behaviour, in: setup.authority.folder, victim: configuration)
            try peer.run()
            #expect(peer.alert == alert, "\(role)")
            let failure = try #require(peer.endLinkReturningVictimFailure())
            #expect(failure.code == refusable.code, "\(role): \(failure.reason)")
            #expect(failure.reason.contains(refusable.reason), "\(role): \(failure.reason)")
        }
    }

    @Test("a dialer whose key an acceptor does not ask for, or cannot verify, is never ready")
    func unaskedDialer() throws {
        for (requests, signatures, reason) in [
            (false, "", "does not request a certificate"),
            (true, "rsa_pss_rsae_sha256", "accepts no signature algorithm"),
        ] {
            let setup = try Refusable.Setup()
            var behaviour = try setup.issueValid()
            behaviour.requestsCertificate = requests
            behaviour.acceptedSignatures = signatures
            let peer = try MaliciousTLSPeer(
                .acceptor, behaviour, in: setup.authority.folder, victim: setup.configuration())
            try peer.run()
            #expect(!peer.isVictimReady && peer.types.isEmpty && !peer.isHandshakeDone)
            let failure = try #require(peer.endLinkReturningVictimFailure())
            #expect(failure.code == .noCommonProtocol && failure.reason.contains(reason))
        }
    }

    @Test("a policy refuses an acceptor with handshake_failure, and a dialer with reject")
    func policy() throws {
        for role in [ChannelRole.dialer, .acceptor] {
            let setup = try Refusable.Setup()
            setup.policy = .authority(uris: ["blesec://devices/someone"])
            let peer = try MaliciousTLSPeer(
                role, setup.issueValid(), in: setup.authority.folder,
                victim: setup.configuration())
            try peer.run()
            #expect(peer.alert == (role == .acceptor ? 40 : nil))
            #expect(peer.types == (role == .dialer ? [.reject] : []))
            #expect(peer.endLinkReturningVictimFailure()?.code == .untrusted)
        }
    }

    @Test(
        "a denied key in another encoding is refused, even without an authority",
        arguments: ["compressed", "hybrid", "explicit"])
    func deniedKey(form: String) throws {
        let setup = try Refusable.Setup()
        let device = TestAuthority.deviceExtensions("rogue")
        func issue(_ form: String) throws {
            guard form == "explicit" else {
                return try setup.authority.issue("rogue", device, pointForm: form)
            }
            try setup.authority.issue(
                "rogue", device, pointForm: "uncompressed", curveForm: form)
        }
        try issue("uncompressed")
        let denied = DenyList([try setup.authority.identity("rogue").fingerprint])
        var configuration = ChannelConfiguration(
            identity: nil, trust: TrustPolicy.anyone.denying(denied))
        configuration.protocols = [TLSContext.protocolName]
        configuration.tls = try TLSContext(identity: setup.authority.identity("victim"))
        for (encoding, reason) in [
            ("uncompressed", "on the deny list"), (form, "unusual encoding"),
        ] {
            try issue(encoding)
            for role in [ChannelRole.dialer, .acceptor] {
                let peer = try MaliciousTLSPeer(
                    role, MaliciousTLSPeer.Behaviour(certificate: "rogue"),
                    in: setup.authority.folder,
                    victim: configuration)
                try peer.run()
                #expect(!peer.isVictimReady)
                let failure = try #require(peer.endLinkReturningVictimFailure())
                #expect(failure.reason.contains(reason), "\(role): \(failure.reason)")
            }
        }
    }

    /// Besides 65537, the exponents are the greatest prime of 32 bits and the least prime of 33 bits.
    @Test(
        "an RSA key that is too short or too large is refused, even if anyone is trusted without an authority",
        arguments: [
            ("1024", "65537", false), ("2048", "65537", true), ("4104", "65537", false),
            ("2048", "4294967291", true), ("2048", "4294967311", false),
        ])
    func keyStrength(bits: String, exponent: String, isAccepted: Bool) throws {
        let setup = try Refusable.Setup()
        let behaviour = try setup.issue(
            TestAuthority.deviceExtensions("rogue"),
            newKey: ["rsa:\(bits)", "-pkeyopt", "rsa_keygen_pubexp:\(exponent)"])
        var configuration = ChannelConfiguration(identity: nil, trust: TrustPolicy.anyone)
        configuration.protocols = [TLSContext.protocolName]
        configuration.tls = try TLSContext(identity: setup.authority.identity("victim"))
        for role in [ChannelRole.dialer, .acceptor] {
            let peer = try MaliciousTLSPeer(
                role, behaviour, in: setup.authority.folder, victim: configuration)
            try peer.run()
            guard !isAccepted else {
                #expect(peer.isHandshakeDone && peer.types == [.ready], "\(role)")
                continue
            }
            #expect(peer.alert == 40, "\(role)")
            #expect(peer.types.isEmpty && peer.reportedIdentity == nil, "\(role)")
            let failure = try #require(peer.endLinkReturningVictimFailure())
            #expect(failure.code == .untrusted, "\(role): \(failure.reason)")
            #expect(failure.reason.contains("too weak"), "\(role): \(failure.reason)")
        }
    }

    @Test(
        "a peer with a certificate from an intermediate is accepted if it sends the intermediate's certificate too"
    )
    func intermediate() throws {
        for role in [ChannelRole.dialer, .acceptor] {
            let setup = try Refusable.Setup()
            let middle = try TestAuthority("middle", under: setup.authority)
            try middle.issueDevice("rogue")
            let peer = try MaliciousTLSPeer(
                role, MaliciousTLSPeer.Behaviour(certificate: "rogue", chain: ["middle"]),
                in: setup.authority.folder, victim: setup.configuration())
            try peer.run()
            #expect(peer.isHandshakeDone && peer.types == [.ready])
        }
    }

    @Test(
        "a peer is accepted if its intermediate is the victim's authority too, and neither is revoked"
    )
    func acceptedIntermediate() throws {
        for role in [ChannelRole.dialer, .acceptor] {
            let setup = try Refusable.Setup()
            let middle = try TestAuthority("middle", under: setup.authority)
            try middle.issueDevice("rogue")
            try setup.authority.issueDevice("other")
            let authorities = try setup.accept(["ca", "middle"])
            setup.revocations = try RevocationList(
                lists: [setup.authority.revocationList(["other"]), middle.revocationList([])],
                authorities: authorities)
            let peer = try MaliciousTLSPeer(
                role, MaliciousTLSPeer.Behaviour(certificate: "rogue", chain: ["middle"]),
                in: setup.authority.folder, victim: setup.configuration())
            try peer.run()
            #expect(peer.isHandshakeDone && peer.types == [.ready])
        }
    }

    @Test("a link that ends within or after any flight of the peer never leads to ready")
    func truncated() throws {
        for role in [ChannelRole.dialer, .acceptor] {
            let setup = try Refusable.Setup()
            let behaviour = try setup.issueValid()
            let configuration = try setup.configuration()
            let untamperedPeer = try MaliciousTLSPeer(
                role, behaviour, in: setup.authority.folder, victim: configuration)
            try untamperedPeer.run()
            #expect(untamperedPeer.isHandshakeDone && !untamperedPeer.isVictimReady)
            for (flight, bytes) in untamperedPeer.flights.enumerated() {
                for length in [0, 1, 5, bytes.count / 2, bytes.count - 1] {
                    let peer = try MaliciousTLSPeer(
                        role, behaviour, in: setup.authority.folder, victim: configuration)
                    peer.tamper = { [unowned peer] in
                        Array(peer.flights.count == flight ? $0.prefix(length) : $0[...])
                    }
                    try peer.run(flights: flight + 1)
                    // Two bytes before a dialer's first flight give its length. Here they give the
                    // length of the shortened flight, so the acceptor waits for no more bytes, and
                    // finds a malformed ClientHello.
                    let code: ChannelError.Code =
                        role == .dialer && flight == 0 ? .protocolViolation : .truncated
                    #expect(
                        peer.endLinkReturningVictimFailure()?.code == code,
                        "\(role) \(flight) \(length)")
                    #expect(!peer.isVictimReady, "\(role) \(flight) \(length)")
                }
            }
        }
    }

    /// The request is inserted before each flight of the peer (`place` 0), after each flight (1),
    /// or after the handshake (2).
    @Test("a stray HelloRequest ends the handshake or the channel", arguments: 0..<3)
    func helloRequest(place: Int) throws {
        let request: [UInt8] = [22, 3, 3, 0, 4, 0, 0, 0, 0]
        for role in [ChannelRole.dialer, .acceptor] {
            let setup = try Refusable.Setup()
            let peer = try MaliciousTLSPeer(
                role, setup.issueValid(), in: setup.authority.folder,
                victim: setup.configuration())
            switch place {
            case 0: peer.tamper = { request + $0 }
            case 1: peer.tamper = { $0 + request }
            default: break
            }
            try peer.run()
            if place == 2 { peer.deliver(request) }
            #expect(!peer.isVictimReady)
            let failure = try #require(peer.endLinkReturningVictimFailure())
            #expect(
                [.protocolViolation, .authenticationFailed].contains(failure.code),
                "\(role): \(failure)")
        }
    }

    @Test("a replayed ClientHello authenticates no peer")
    func replayedHello() throws {
        let setup = try Refusable.Setup()
        let configuration = try setup.configuration()
        let first = try MaliciousTLSPeer(
            .dialer, setup.issueValid(), in: setup.authority.folder, victim: configuration)
        try first.run()
        let hello = try #require(first.flights.first)
        let replayer = try MaliciousTLSPeer(
            .dialer, setup.issueValid(), in: setup.authority.folder, victim: configuration)
        replayer.deliver(
            try Hello(offers: [CertificateFixture.tls]).encoded + MaliciousNoisePeer.framed(hello))
        #expect(replayer.reportedIdentity == nil && replayer.victimPhase == .handshaking)
        replayer.deliver(first.flights.dropFirst().flatMap(\.self))
        #expect(replayer.endLinkReturningVictimFailure()?.code == .authenticationFailed)
    }
}
