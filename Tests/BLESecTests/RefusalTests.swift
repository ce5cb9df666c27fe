import BLESecChannelCore
import BLESecCredentials
import BLESecTLSEngine
import TestSupport
import Testing

@testable import BLESec

/// A certificate or a behaviour for which a peer is refused.
struct Refusable: Sendable, CustomTestStringConvertible {
    typealias Manner = MaliciousTLSPeer.Manner

    let testDescription: String
    /// Words of the reason in the victim's own error.
    let reason: String
    let code: ChannelError.Code
    /// The peer's roles in which the case is tried.
    var roles = [ChannelRole.dialer, .acceptor]
    /// Makes the peer's certificate and behaviour, and changes the victim's configuration.
    let prepare: @Sendable (Scenery) throws -> Manner

    init(
        _ name: String, _ reason: String, _ code: ChannelError.Code = .untrusted,
        roles: [ChannelRole] = [.dialer, .acceptor],
        _ prepare: @escaping @Sendable (Scenery) throws -> Manner
    ) {
        testDescription = name
        self.reason = reason
        self.code = code
        self.roles = roles
        self.prepare = prepare
    }

    /// An authority with its folder, and the victim's configuration.
    final class Scenery {
        let authority: TestAuthority
        var options = TLSOptions()
        var revoked: (any RevocationSource)?
        var policy = TrustPolicy.authority()
        /// The authorities that the victim accepts, if not only ``authority``.
        var authorities: CertificateAuthorities?

        init() throws {
            authority = try TestAuthority()
            try authority.issueDevice("victim")
        }

        /// Issues the peer's certificate, with these lines of extensions.
        func issued(_ extensions: String, newKey: [String] = ["ed25519"]) throws -> Manner {
            try authority.issue("rogue", extensions, newKey: newKey)
            return Manner(certificate: "rogue")
        }

        /// Issues a valid certificate to the peer.
        func good() throws -> Manner { try issued(TestAuthority.deviceExtensions("rogue")) }

        func configuration() throws -> ChannelConfiguration {
            var configuration = ChannelConfiguration(identity: nil, trust: policy)
            configuration.protocols = [TLSContext.protocolName]
            configuration.tls = try TLSContext(
                identity: authority.identity("victim"),
                authorities: authorities ?? authority.authorities(), revoked: revoked,
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
        Self("of another authority", "leads to no authority") { it in
            let other = try TestAuthority("other", in: it.authority.folder)
            try other.issueDevice("rogue")
            return Manner(certificate: "rogue")
        },
        Self("of another authority that has the same name", "not its issuer's") { it in
            let other = try TestAuthority()
            try other.issueDevice("rogue")
            for file in ["rogue.pem", "rogue.key"] {
                it.authority.folder.write(file, other.folder.read(file) ?? [])
            }
            return Manner(certificate: "rogue")
        },
        Self("of another authority, whose certificate is sent too", "leads to no authority") { it in
            let other = try TestAuthority("other", in: it.authority.folder)
            try other.issueDevice("rogue")
            return Manner(certificate: "rogue", chain: ["other"])
        },
        Self("self-signed", "signed with its own key") { it in
            try it.authority.selfSign("rogue", "basicConstraints=CA:FALSE\n" + uri + usage)
            return Manner(certificate: "rogue")
        },
        Self("expired", "has expired") { it in
            it.options.clock = { TestAuthority.now + 60 * 86_400 }
            return try it.good()
        },
        Self("not yet valid", "not valid yet") { it in
            it.options.clock = { TestAuthority.now - 86_400 }
            return try it.good()
        },
        Self("of a dialer, for serverAuth", "in its extended key usage", roles: [.dialer]) { it in
            try it.issued(TestAuthority.deviceExtensions("rogue", usage: "serverAuth"))
        },
        Self("of an acceptor, for clientAuth", "in its extended key usage", roles: [.acceptor]) {
            try $0.issued(TestAuthority.deviceExtensions("rogue", usage: "clientAuth"))
        },
        Self("without an extended key usage", "in its extended key usage") { it in
            try it.issued(uri)
        },
        Self("for signing code", "in its extended key usage") { it in
            try it.issued(TestAuthority.deviceExtensions("rogue", usage: "codeSigning"))
        },
        Self("whose key usage is key agreement alone", "may not be used to sign") { it in
            try it.issued(
                uri + usage + "keyUsage=keyAgreement\n",
                newKey: ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
        },
        Self("that is the authority's own", "is an authority's") { it in
            Manner(certificate: "ca")
        },
        Self("that is an intermediate authority's", "is an authority's") { it in
            try it.issued(uri + usage + "basicConstraints=CA:TRUE\n")
        },
        Self("with a longer path than its authority permits", "longer path") { it in
            let root = try TestAuthority(
                "ca", in: it.authority.folder, constraints: "CA:TRUE,pathlen:0")
            try root.issueDevice("victim")
            let middle = try TestAuthority("middle", under: root)
            try middle.issueDevice("rogue")
            return Manner(certificate: "rogue", chain: ["middle"])
        },
        Self("issued by a device", "may not issue it") { it in
            let middle = try TestAuthority(
                "middle", under: it.authority, extensions: TestAuthority.deviceExtensions("middle"))
            try middle.issueDevice("rogue")
            return Manner(certificate: "rogue", chain: ["middle"])
        },
        Self("whose intermediate is not sent", "leads to no authority") { it in
            let middle = try TestAuthority("middle", under: it.authority)
            try middle.issueDevice("rogue")
            return Manner(certificate: "rogue")
        },
        Self("revoked by its serial number", "is revoked") { it in
            let manner = try it.good()
            it.revoked = try RevocationList(
                lists: [it.authority.revocationList(["rogue"])],
                authorities: it.authority.authorities())
            return manner
        },
        Self("whose intermediate is revoked", "is revoked") { it in
            let middle = try TestAuthority("middle", under: it.authority)
            try middle.issueDevice("rogue")
            it.revoked = try RevocationList(
                lists: [it.authority.revocationList(["middle"])],
                authorities: it.authority.authorities())
            return Manner(certificate: "rogue", chain: ["middle"])
        },
        Self("revoked by its key", "is revoked") { it in
            let manner = try it.good()
            it.revoked = try RevocationList(
                lists: [], keys: [it.authority.identity("rogue").fingerprint],
                authorities: it.authority.authorities())
            return manner
        },
        Self("whose revocation list is missing", "no list", .noSuchFile) { it in
            struct Lost: RevocationSource {
                func current(at now: Int64) throws(ChannelError) -> RevocationList {
                    throw ChannelError(.noSuchFile, "no list")
                }
            }
            it.revoked = Lost()
            return try it.good()
        },
        Self("with a common name alone", "names no URI") { it in try it.issued(usage) },
        Self("with a host name alone", "names no URI") { it in
            try it.issued(usage + "subjectAltName=DNS:rogue.example\n")
        },
        Self("with two URIs", "names several URIs") { it in
            try it.issued(usage + "subjectAltName=URI:blesec://a,URI:blesec://b\n")
        },
        Self("with the same URI twice", "names several URIs") { it in
            try it.issued(usage + "subjectAltName=URI:blesec://a,URI:blesec://a\n")
        },
        Self("with a malformed URI", "malformed list of names") { it in
            try it.issued(usage + "subjectAltName=@it\n[it]\nURI=a b\n")
        },
        Self("with a changed signature", "not its issuer's") { it in
            var manner = try it.good()
            try it.authority.run([
                "x509", "-in", it.authority.folder.file("rogue.pem"), "-outform", "DER", "-out",
                it.authority.folder.file("rogue.der"),
            ])
            var leaf = it.authority.folder.read("rogue.der") ?? []
            leaf[leaf.count - 1] ^= 1
            manner.leaf = leaf
            return manner
        },
        Self("revoked by its intermediate, which is an authority of the victim too", "is revoked") {
            it in
            let middle = try TestAuthority("middle", under: it.authority)
            try middle.issueDevice("rogue")
            let folder = it.authority.folder
            let both = ["ca.pem", "middle.pem"].flatMap { folder.read($0) ?? [] }
            let authorities = try CertificateFile.authorities(folder.write("both.pem", both))
            it.authorities = authorities
            it.revoked = try RevocationList(
                lists: [middle.revocationList(["rogue"])], authorities: authorities)
            return Manner(certificate: "rogue", chain: ["middle"])
        },
        Self("whose revoked key has another encoding, a compressed point", "unusual encoding") {
            it in
            let device = TestAuthority.deviceExtensions("rogue")
            try it.authority.issue("rogue", device, pointForm: "uncompressed")
            it.revoked = try RevocationList(
                lists: [], keys: [it.authority.identity("rogue").fingerprint],
                authorities: it.authority.authorities())
            try it.authority.issue("rogue", device, pointForm: "compressed")
            return Manner(certificate: "rogue")
        },
        Self("with a hybrid point", "unusual encoding") { it in
            try it.authority.issue(
                "rogue", TestAuthority.deviceExtensions("rogue"), pointForm: "hybrid")
            return Manner(certificate: "rogue")
        },
        Self("whose curve has explicit parameters", "unusual encoding") { it in
            try it.issued(
                TestAuthority.deviceExtensions("rogue"),
                newKey: [
                    "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-pkeyopt",
                    "ec_param_enc:explicit",
                ])
        },
        Self("whose intermediate has a compressed point", "unusual encoding") { it in
            try it.authority.issue(
                "middle", TestAuthority.authorityExtensions("CA:TRUE"), pointForm: "compressed")
            let middle = TestAuthority("middle", in: it.authority)
            try middle.issueDevice("rogue")
            return Manner(certificate: "rogue", chain: ["middle"])
        },
        Self("with a key that is too short", "too weak") { it in
            try it.issued(TestAuthority.deviceExtensions("rogue"), newKey: ["rsa:1024"])
        },
    ]
}

/// Peers that are refused. What is wrong with a certificate is only in the victim's own error: the
/// alert for the peer is always the same.
@Suite("Refusals")
struct RefusalTests {
    @Test(
        "the victim's error tells why a certificate is bad; the peer's alert is always the same",
        arguments: Refusable.certificates)
    func certificate(_ refusable: Refusable) throws {
        let scenery = try Refusable.Scenery()
        let manner = try refusable.prepare(scenery)
        let configuration = try scenery.configuration()
        for role in refusable.roles {
            let peer = try MaliciousTLSPeer(
                role, manner, in: scenery.authority.folder, victim: configuration)
            try peer.run()
            #expect(peer.alert == 40, "\(role)")
            #expect(peer.types.isEmpty)
            // The victim's last record is the alert. An acceptor sends it after its own flight, and a
            // dialer in place of its flight.
            let last = try #require(peer.records.last)
            #expect(LinkedOpenSSL.isAlert(last, 40, by: role.peer), "\(role)")
            #expect(peer.identity == nil)
            let failure = try #require(peer.failure)
            #expect(failure.code == refusable.code, "\(role): \(failure.reason)")
            #expect(failure.reason.contains(refusable.reason), "\(role): \(failure.reason)")
        }
    }

    /// Behaviours that are refused, each with the number of its alert.
    static let manners: [(Refusable, Int32)] = [
        (
            Refusable("no certificate", "is missing", roles: [.dialer]) { _ in
                MaliciousTLSPeer.Manner(certificate: nil)
            }, 116
        ),
        (
            Refusable("TLS 1.2", "does not speak TLS 1.3", .noCommonProtocol, roles: [.dialer]) {
                it in
                var manner = try it.good()
                manner.newestVersion = 0x0303
                return manner
            }, 70
        ),
        (
            Refusable("no ALPN name", "not for blesec/1", .noCommonProtocol, roles: [.dialer]) {
                it in
                var manner = try it.good()
                manner.namesApplication = false
                return manner
            }, 120
        ),
        (
            Refusable("another group", "share no TLS", .noCommonProtocol, roles: [.dialer]) {
                it in
                var manner = try it.good()
                manner.groups = "P-521"
                return manner
            }, 40
        ),
        (oversizedChain(.dialer), LinkedOpenSSL.acceptorsAlertForOversizedChain),
        (oversizedChain(.acceptor), 47),
    ]

    static func oversizedChain(_ role: ChannelRole) -> Refusable {
        Refusable("an oversized chain of a \(role)", "too long", .limitExceeded, roles: [role]) {
            it in
            var manner = try it.good()
            manner.chain = Array(repeating: "ca", count: 60)
            return manner
        }
    }

    @Test(
        "a peer whose TLS does not follow the profile is refused, with the alert for its fault",
        arguments: manners)
    func manner(_ refusable: Refusable, alert: Int32) throws {
        let scenery = try Refusable.Scenery()
        let manner = try refusable.prepare(scenery)
        let configuration = try scenery.configuration()
        for role in refusable.roles {
            let peer = try MaliciousTLSPeer(
                role, manner, in: scenery.authority.folder, victim: configuration)
            try peer.run()
            #expect(peer.alert == alert, "\(role)")
            let failure = try #require(peer.failure)
            #expect(failure.code == refusable.code, "\(role): \(failure.reason)")
            #expect(failure.reason.contains(refusable.reason), "\(role): \(failure.reason)")
        }
    }

    @Test("a policy refuses an acceptor with handshake_failure, and a dialer with reject")
    func policy() throws {
        for role in [ChannelRole.dialer, .acceptor] {
            let scenery = try Refusable.Scenery()
            scenery.policy = .authority(uris: ["blesec://devices/someone"])
            let peer = try MaliciousTLSPeer(
                role, scenery.good(), in: scenery.authority.folder,
                victim: scenery.configuration())
            try peer.run()
            #expect(peer.alert == (role == .acceptor ? 40 : nil))
            #expect(peer.types == (role == .dialer ? [.reject] : []))
            #expect(peer.failure?.code == .untrusted)
        }
    }

    @Test(
        "a denied key in another encoding is refused, even without an authority",
        arguments: ["compressed", "hybrid", "explicit"])
    func deniedKey(form: String) throws {
        let scenery = try Refusable.Scenery()
        let device = TestAuthority.deviceExtensions("rogue")
        func issue(_ form: String) throws {
            guard form == "explicit" else {
                return try scenery.authority.issue("rogue", device, pointForm: form)
            }
            try scenery.authority.issue(
                "rogue", device,
                newKey: [
                    "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-pkeyopt",
                    "ec_param_enc:explicit",
                ])
        }
        try issue("uncompressed")
        let denied = DenyList([try scenery.authority.identity("rogue").fingerprint])
        var configuration = ChannelConfiguration(
            identity: nil, trust: TrustPolicy.anyone.denying(denied))
        configuration.protocols = [TLSContext.protocolName]
        configuration.tls = try TLSContext(identity: scenery.authority.identity("victim"))
        for (form, reason) in [("uncompressed", "on the deny list"), (form, "unusual encoding")] {
            try issue(form)
            for role in [ChannelRole.dialer, .acceptor] {
                let peer = try MaliciousTLSPeer(
                    role, MaliciousTLSPeer.Manner(certificate: "rogue"),
                    in: scenery.authority.folder,
                    victim: configuration)
                try peer.run()
                #expect(!peer.isReady)
                let failure = try #require(peer.failure)
                #expect(failure.reason.contains(reason), "\(role): \(failure.reason)")
            }
        }
    }

    @Test(
        "a peer with a certificate from an intermediate is accepted if it sends that one's certificate too"
    )
    func intermediate() throws {
        for role in [ChannelRole.dialer, .acceptor] {
            let scenery = try Refusable.Scenery()
            let middle = try TestAuthority("middle", under: scenery.authority)
            try middle.issueDevice("rogue")
            let peer = try MaliciousTLSPeer(
                role, MaliciousTLSPeer.Manner(certificate: "rogue", chain: ["middle"]),
                in: scenery.authority.folder, victim: scenery.configuration())
            try peer.run()
            #expect(peer.isDone && peer.types == [.ready])
        }
    }

    @Test("a link that ends within or after any flight of the peer never leads to ready")
    func truncated() throws {
        for role in [ChannelRole.dialer, .acceptor] {
            let scenery = try Refusable.Scenery()
            let manner = try scenery.good()
            let configuration = try scenery.configuration()
            let whole = try MaliciousTLSPeer(
                role, manner, in: scenery.authority.folder, victim: configuration)
            try whole.run()
            #expect(whole.isDone && !whole.isReady)
            for (flight, bytes) in whole.flights.enumerated() {
                for length in [0, 1, 5, bytes.count / 2, bytes.count - 1] {
                    let peer = try MaliciousTLSPeer(
                        role, manner, in: scenery.authority.folder, victim: configuration)
                    peer.tamper = { [unowned peer] in
                        Array(peer.flights.count == flight ? $0.prefix(length) : $0[...])
                    }
                    try peer.run(flights: flight + 1)
                    // Two bytes before a dialer's first flight give its length. Here they give the
                    // length of the shortened flight, so the acceptor waits for no more bytes, and
                    // finds a malformed ClientHello.
                    let code: ChannelError.Code =
                        role == .dialer && flight == 0 ? .protocolViolation : .truncated
                    #expect(peer.failure?.code == code, "\(role) \(flight) \(length)")
                }
            }
        }
    }

    /// `place` 0 is before each flight of the peer, 1 after each flight, 2 after the handshake.
    @Test("a stray HelloRequest ends the handshake or the channel", arguments: 0..<3)
    func helloRequest(place: Int) throws {
        let request: [UInt8] = [22, 3, 3, 0, 4, 0, 0, 0, 0]
        for role in [ChannelRole.dialer, .acceptor] {
            let scenery = try Refusable.Scenery()
            let peer = try MaliciousTLSPeer(
                role, scenery.good(), in: scenery.authority.folder,
                victim: scenery.configuration())
            switch place {
            case 0: peer.tamper = { request + $0 }
            case 1: peer.tamper = { $0 + request }
            default: break
            }
            try peer.run()
            if place == 2 { peer.deliver(request) }
            #expect(!peer.isReady)
            let failure = try #require(peer.failure)
            #expect(
                [.protocolViolation, .authenticationFailed].contains(failure.code),
                "\(role): \(failure)")
        }
    }

    @Test("a replayed ClientHello authenticates no peer")
    func replayedHello() throws {
        let scenery = try Refusable.Scenery()
        let configuration = try scenery.configuration()
        let first = try MaliciousTLSPeer(
            .dialer, scenery.good(), in: scenery.authority.folder, victim: configuration)
        try first.run()
        let hello = try #require(first.flights.first)
        let replaying = try MaliciousTLSPeer(
            .dialer, scenery.good(), in: scenery.authority.folder, victim: configuration)
        replaying.deliver(
            try Hello(offers: [CertificateFixture.tls]).encoded + MaliciousNoisePeer.framed(hello))
        #expect(replaying.identity == nil && replaying.phase == .handshaking)
        replaying.deliver(first.flights.dropFirst().flatMap(\.self))
        #expect(replaying.failure?.code == .authenticationFailed)
    }
}
