import BLESecChannelCore
import BLESecCredentials
import BLESecTLSEngine
import TestSupport
import Testing

@testable import BLESec

/// What the peer, and an eavesdropper, can learn from a failed handshake: see SECURITY.md, "What a
/// failure shows".
@Suite("What a failure shows")
struct AppearanceTests {
    static let xx = "Noise_XX_25519_ChaChaPoly_SHA256"
    static let ik = "Noise_IK_25519_ChaChaPoly_SHA256"

    /// The length in bytes of each flight that `role` has sent. Each flight is one SDU.
    static func flightLengths(_ pair: MachinePair, _ role: ChannelRole) -> [Int] {
        pair.sent[role, default: []].map(\.count)
    }

    /// Why a policy refuses the peer.
    enum Reason: CaseIterable, Sendable {
        case otherKeyPinned, impossibleKeyPinned, denied, notEnrolled, brokenStore, refusedByPerson

        func policy(refusing key: Fingerprint) throws -> TrustPolicy {
            let pinned = TrustPolicy.pinned([PeerKey(fingerprint: key)])
            switch self {
            case .otherKeyPinned:
                let other = try IdentityKey.generate().fingerprint
                return .pinned([PeerKey(fingerprint: other)])
            case .impossibleKeyPinned:
                // No key has the hash of an empty array as its fingerprint.
                return .pinned([PeerKey(fingerprint: Fingerprint(subjectPublicKeyInfo: []))])
            case .denied: return pinned.denying(DenyList([key]))
            case .notEnrolled: return .enrolled(KnownPeersFile("/nonexistent/known_peers"))
            case .brokenStore: return .enrolled(KnownPeersFile("/dev/null"))
            case .refusedByPerson: return .asking { _ in .refuse("no") }
            }
        }
    }

    /// A pair of machines in which the policy of `role` has refused the peer for `reason`.
    static func refused(
        by role: ChannelRole, _ reason: Reason, mode: ChannelConfiguration.Mode = .negotiated
    ) throws -> MachinePair {
        let pinned = try PinnedPeers()
        var configurations = try pinned.configurations(xx)
        (configurations.dialer.mode, configurations.acceptor.mode) = (mode, mode)
        if role == .dialer {
            configurations.dialer.trust = try reason.policy(refusing: pinned.acceptor.fingerprint)
        } else {
            configurations.acceptor.trust = try reason.policy(refusing: pinned.dialer.fingerprint)
        }
        let pair = try MachinePair(dialer: configurations.dialer, acceptor: configurations.acceptor)
        pair.run()
        if reason == .refusedByPerson {
            if role == .dialer {
                pair.dialer.didDecide(ChannelError(.untrusted, "no"), now: pair.now)
            } else {
                pair.acceptor.didDecide(ChannelError(.untrusted, "no"), now: pair.now)
            }
            pair.run()
        }
        return pair
    }

    @Test(
        "a Noise acceptor's refusal is as long as a ready record, and looks the same whatever the reason"
    )
    func acceptorRefuses() throws {
        let accepted = try PinnedPeers().pair([Self.xx])
        accepted.run()
        #expect(accepted.isReady)
        for reason in Reason.allCases {
            let pair = try Self.refused(by: .acceptor, reason)
            for role in [ChannelRole.dialer, .acceptor] {
                #expect(
                    Self.flightLengths(pair, role) == Self.flightLengths(accepted, role),
                    "\(reason) \(role)")
            }
            guard case .failed(let error) = pair.dialer.outcome else {
                Issue.record("\(reason): the dialer has not failed")
                continue
            }
            #expect(error.code == .refused, "\(reason)")
            #expect(error.reason == "the peer refuses this identity", "\(reason)")
        }
    }

    @Test("a dialer that does not accept the acceptor closes the link without another byte")
    func dialerRefuses() throws {
        for reason in Reason.allCases {
            let pair = try Self.refused(by: .dialer, reason)
            #expect(pair.dialer.outcome?.code == .untrusted, "\(reason)")
            #expect(Self.flightLengths(pair, .dialer).count == 1, "\(reason)")
        }
        // The changed byte of the acceptor's handshake message is, in this order, in the payload's
        // tag, in the static key's tag, in the encrypted static key and in the ephemeral key.
        for distanceFromEnd in [1, 17, 40, 90] {
            let pair = try PinnedPeers().pair([Self.xx])
            pair.tamper = { role, bytes in
                var bytes = bytes
                if role == .acceptor { bytes[bytes.count - distanceFromEnd] ^= 1 }
                return bytes
            }
            pair.run()
            #expect(pair.dialer.outcome?.code == .authenticationFailed, "\(distanceFromEnd)")
            #expect(Self.flightLengths(pair, .dialer).count == 1, "\(distanceFromEnd)")
        }
    }

    @Test(
        "an IK dialer, whose handshake message is sent already, refuses with a record as long as a ready record"
    )
    func dialerOfIK() throws {
        let pinned = try PinnedPeers()
        var dialer = try pinned.configuration(.dialer, [Self.ik])
        dialer.trust = dialer.trust.denying(DenyList([pinned.acceptor.fingerprint]))
        let refused = try MachinePair(
            dialer: dialer, acceptor: pinned.configuration(.acceptor, [Self.ik]))
        let accepted = try pinned.pair([Self.ik])
        for pair in [refused, accepted] { pair.run() }
        #expect(refused.acceptor.outcome?.code == .refused)
        #expect(Self.flightLengths(refused, .dialer) == Self.flightLengths(accepted, .dialer))
        refused.dialer.linkEnded(nil, now: refused.now)
        #expect(refused.dialer.outcome?.code == .untrusted)
    }

    @Test("after a failed handshake an acceptor sends no record, unlike after a refusal")
    func acceptorFails() throws {
        for distanceFromEnd in [52, 60, 80, 110] {
            let pair = try PinnedPeers().pair([Self.xx])
            pair.tamper = { [unowned pair] role, bytes in
                var bytes = bytes
                // The dialer's second flight is its last handshake message and then its `ready`,
                // a record of 51 bytes. The changed byte is in the handshake message.
                if role == .dialer, pair.sent[.dialer]?.count == 2 {
                    bytes[bytes.count - distanceFromEnd] ^= 1
                }
                return bytes
            }
            pair.run()
            #expect(pair.acceptor.outcome?.code == .authenticationFailed, "\(distanceFromEnd)")
            #expect(Self.flightLengths(pair, .acceptor).count == 1, "\(distanceFromEnd)")
        }
    }

    @Test("an acceptor that fails before its answer closes the link without sending a byte")
    func noAnswer() throws {
        let hello = try Hello(offers: [Self.xx]).encoded
        var otherMagic = hello
        otherMagic[0] ^= 1
        for bytes in [
            otherMagic, [0xFF],
            // A hello and the length of its early message: once 0, once more than is allowed.
            hello + [0, 0], hello + [0xFF, 0xFF],
            // An early message of XX with 31 of the ephemeral key's 32 bytes.
            hello + [0, 31] + [UInt8](repeating: 9, count: 31),
        ] {
            let pair = try PinnedPeers().pair([Self.xx])
            pair.deliver(bytes, to: .acceptor)
            #expect(pair.acceptor.outcome != nil)
            #expect(pair.take(.acceptor).isEmpty)
        }
        // An IK dialer that pins another key than the acceptor's: the acceptor cannot read the
        // dialer's early message.
        let pinned = try PinnedPeers()
        var dialer = try pinned.configuration(.dialer, [Self.ik])
        dialer.trust = .pinned([try PeerKey(publicKey: IdentityKey.generate().publicKey)])
        let pair = try MachinePair(
            dialer: dialer, acceptor: pinned.configuration(.acceptor, [Self.ik]))
        pair.run()
        #expect(pair.acceptor.outcome?.code == .authenticationFailed)
        #expect(Self.flightLengths(pair, .acceptor).isEmpty)
    }

    @Test("in direct mode with Noise a refusal and a failure look the same: the link ends")
    func direct() throws {
        for reason in Reason.allCases {
            let pair = try Self.refused(by: .acceptor, reason, mode: .direct)
            #expect(pair.acceptor.outcome?.code == .untrusted, "\(reason)")
            #expect(Self.flightLengths(pair, .acceptor).count == 1, "\(reason)")
        }
        var configurations = try PinnedPeers().configurations(Self.xx)
        (configurations.dialer.mode, configurations.acceptor.mode) = (.direct, .direct)
        let pair = try MachinePair(dialer: configurations.dialer, acceptor: configurations.acceptor)
        pair.step(.dialer)
        pair.step(.acceptor)
        var lastMessage = pair.take(.dialer)
        // After two bytes of length come the dialer's static key and its tag, 48 bytes together.
        // The last of the 48 bytes is changed.
        lastMessage[2 + 47] ^= 1
        pair.deliver(lastMessage, to: .acceptor)
        #expect(pair.acceptor.outcome?.code == .authenticationFailed)
        #expect(Self.flightLengths(pair, .acceptor).count == 1)
    }

    @Test("a record that does not authenticate ends a Noise channel, and nothing is sent")
    func record() throws {
        let pair = try PinnedPeers().pair([Self.xx])
        pair.run()
        let lengthsBefore = Self.flightLengths(pair, .acceptor)
        _ = try pair.dialer.queue([1, 2, 3])
        var bytes = pair.take(.dialer)
        bytes[bytes.count - 1] ^= 1
        pair.deliver(bytes, to: .acceptor)
        #expect(pair.acceptor.outcome?.code == .authenticationFailed)
        pair.run()
        #expect(Self.flightLengths(pair, .acceptor) == lengthsBefore)
    }

    // MARK: - TLS

    /// Replaces the private key in a key file, and leaves the public key as it is. Whoever uses the
    /// file has the certificate, but not the certificate's private key.
    static func forgeKey(_ name: String, _ setup: Refusable.Setup) throws {
        let folder = setup.authority.folder
        func der(_ name: String) throws -> [UInt8] {
            try setup.authority.run([
                "ec", "-in", folder.file("\(name).key"), "-outform", "DER", "-out",
                folder.file("\(name).key.der"),
            ])
            return try #require(folder.read("\(name).key.der"))
        }
        try setup.authority.run([
            "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", folder.file("wrong.key"),
        ])
        var key = try der(name)
        // RFC 5915: the 32 bytes of the private key begin at offset 7, after the header of the
        // sequence, the version, and the header of the private key.
        key.replaceSubrange(7..<39, with: try der("wrong")[7..<39])
        folder.write("\(name).key.der", key)
        try setup.authority.run([
            "ec", "-inform", "DER", "-in", folder.file("\(name).key.der"), "-out",
            folder.file("\(name).key"),
        ])
    }

    @Test("a TLS acceptor answers a malformed ClientHello with accept, and then an alert in clear")
    func malformedHello() throws {
        let hello = try Hello(offers: [CertificateFixture.tls]).encoded
        func answer(to early: [UInt8]) throws -> [UInt8] {
            let pair = try CertificateFixture.shared().pair()
            pair.deliver(hello + MaliciousNoisePeer.framed(early), to: .acceptor)
            let bytes = pair.take(.acceptor)
            #expect(pair.take(.acceptor).isEmpty && !pair.acceptor.isReady)
            // The dialer closes the link.
            pair.acceptor.linkEnded(nil, now: pair.now)
            #expect(pair.acceptor.outcome?.code == .protocolViolation)
            return bytes
        }
        // One TLS record with a ClientHello of 4 bytes, which are too few; 50 is decode_error.
        let alert: [UInt8] = [21, 3, 3, 0, 2, 2, 50]
        #expect(
            try answer(to: [22, 3, 1, 0, 8, 1, 0, 0, 4, 3, 3, 9, 9])
                == Answer(.accept).encoded + alert)
        // Bytes that are no complete TLS record get no answer.
        #expect(try answer(to: [0xAA, 3, 1, 0, 1, 1]).isEmpty)
        #expect(try answer(to: [22, 3, 1, 0, 8, 1]).isEmpty)
    }

    @Test("a peer that has a certificate but not its key is refused with the alert decrypt_error")
    func stolenCertificate() throws {
        for role in [ChannelRole.dialer, .acceptor] {
            let setup = try Refusable.Setup()
            let behaviour = try setup.issue(
                TestAuthority.deviceExtensions("rogue"),
                newKey: ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            let honest = try MaliciousTLSPeer(
                role, behaviour, in: setup.authority.folder, victim: setup.configuration())
            try honest.run()
            // The control: with the certificate's own key the handshake succeeds.
            #expect(honest.isHandshakeDone && honest.types == [.ready])
            try Self.forgeKey("rogue", setup)
            let peer = try MaliciousTLSPeer(
                role, behaviour, in: setup.authority.folder, victim: setup.configuration())
            try peer.run()
            // 51 is decrypt_error; a bad certificate gets handshake_failure (40).
            #expect(peer.alert == 51, "\(role)")
            #expect(peer.types.isEmpty && !peer.isVictimReady)
            #expect(peer.reportedIdentity == nil)
            #expect(peer.endLinkReturningVictimFailure()?.code == .authenticationFailed, "\(role)")
            let last = try #require(peer.records.last)
            #expect(LinkedOpenSSL.isAlert(last, 51, by: role.peer), "\(role)")
        }
    }

    @Test(
        "an acceptor that shows the dialer's own certificate, without its key, gets the same alert")
    func ownCertificateWithoutKey() throws {
        let setup = try Refusable.Setup()
        let behaviour = try setup.issue(
            TestAuthority.deviceExtensions("rogue"),
            newKey: ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
        var configuration = try setup.configuration()
        configuration.tls = try TLSContext(
            identity: setup.authority.identity("rogue"), authorities: setup.authority.authorities())
        try Self.forgeKey("rogue", setup)
        let peer = try MaliciousTLSPeer(
            .acceptor, behaviour, in: setup.authority.folder, victim: configuration)
        try peer.run()
        #expect(peer.alert == 51)
        #expect(peer.endLinkReturningVictimFailure()?.code == .authenticationFailed)
    }

    @Test(
        "the certificate alerts of a side have equal lengths; an acceptor's are sealed; a dialer's are sealed with OpenSSL 3.5, but in clear with 3.0"
    )
    func alerts() throws {
        let withoutCertificate = try MaliciousTLSPeer(
            .dialer, MaliciousTLSPeer.Behaviour(certificate: nil),
            in: Refusable.Setup().authority.folder,
            victim: Refusable.Setup().configuration())
        try withoutCertificate.run()
        // 116 is certificate_required.
        #expect(withoutCertificate.alert == 116)
        let last = try #require(withoutCertificate.records.last)
        #expect(LinkedOpenSSL.isAlert(last, 116, by: .acceptor))
        for role in [ChannelRole.dialer, .acceptor] {
            // One entry for each different appearance of a refusal: the types of all records, and
            // the length of the alert. The lengths of other records depend on the certificate.
            var appearances: Set<[Int]> = []
            func refuse(_ behaviour: MaliciousTLSPeer.Behaviour, _ setup: Refusable.Setup) throws {
                let peer = try MaliciousTLSPeer(
                    role, behaviour, in: setup.authority.folder, victim: setup.configuration())
                try peer.run()
                let last = try #require(peer.records.last)
                #expect(LinkedOpenSSL.isAlert(last, 40, by: role.peer), "\(role)")
                appearances.insert(peer.records.map { Int($0[0]) } + [last.count])
            }
            for refusable in Refusable.certificates.prefix(5) {
                let setup = try Refusable.Setup()
                try refuse(refusable.prepare(setup), setup)
            }
            // A dialer's policy refuses with an alert too. If the malicious peer, whose role is
            // `role`, is the acceptor, the dialer is its victim.
            let setup = try Refusable.Setup()
            setup.policy = .authority(uris: ["blesec://devices/someone"])
            if role == .acceptor { try refuse(setup.issueValid(), setup) }
            #expect(appearances.count == 1, "\(role): \(appearances)")
        }
    }

    @Test("an alert that an attacker inserts makes a handshake or a channel fail, and does no more")
    func forgedAlert() throws {
        let alert: [UInt8] = [21, 3, 3, 0, 2, 2, 40]
        let fixture = try CertificateFixture.shared()
        let duringHandshake = try fixture.pair()
        duringHandshake.step(.dialer)
        duringHandshake.step(.acceptor)
        duringHandshake.deliver(alert, to: .acceptor)
        #expect(duringHandshake.acceptor.outcome != nil && !duringHandshake.acceptor.isReady)
        #expect(duringHandshake.acceptor.peer == nil)
        let ready = try fixture.pair()
        ready.run()
        #expect(ready.isReady)
        ready.deliver(alert, to: .acceptor)
        guard case .failed = ready.acceptor.outcome else {
            Issue.record("the channel has not ended, or has ended with success")
            return
        }
    }

    @Test(
        "in direct mode with TLS, an acceptor refuses by ending the link; a refusing dialer and a side that gets a bad certificate send an alert"
    )
    func directTLS() throws {
        let fixture = try CertificateFixture.shared()
        func pair(
            changing role: ChannelRole = .acceptor,
            _ change: (inout ChannelConfiguration) throws -> Void
        ) throws -> MachinePair {
            var configurations = try fixture.configurations()
            (configurations.dialer.mode, configurations.acceptor.mode) = (.direct, .direct)
            if role == .dialer {
                try change(&configurations.dialer)
            } else {
                try change(&configurations.acceptor)
            }
            let pair = try MachinePair(
                dialer: configurations.dialer, acceptor: configurations.acceptor)
            pair.run()
            return pair
        }
        let refused = try pair {
            $0.certificateTrust = .authority(uris: ["blesec://devices/nobody"])
        }
        #expect(refused.acceptor.outcome?.code == .untrusted)
        #expect(Self.flightLengths(refused, .acceptor).count == 1)
        let refusedByDialer = try pair(changing: .dialer) {
            $0.certificateTrust = .authority(uris: ["blesec://devices/nobody"])
        }
        let flights = refusedByDialer.sent[.dialer, default: []]
        #expect(flights.count == 2)
        #expect(flights.last.map { LinkedOpenSSL.isAlert($0, 40, by: .dialer) } == true)
        #expect(!refusedByDialer.isReady)
        let otherAuthority = try TestAuthority()
        let badCertificate = try pair {
            $0.tls = try TLSContext(
                identity: fixture.acceptor.identity, authorities: otherAuthority.authorities())
        }
        #expect(Self.flightLengths(badCertificate, .acceptor).count == 2)
        #expect(Self.flightLengths(badCertificate, .acceptor).last == TLSEngine.overhead + 2)
    }
}
