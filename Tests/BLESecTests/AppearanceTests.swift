import BLESecChannelCore
import BLESecCredentials
import BLESecTLSEngine
import TestSupport
import Testing

@testable import BLESec

/// What the peer, and an eavesdropper, can learn from a failed handshake: SECURITY.md, "What a
/// failure shows".
@Suite("What a failure shows")
struct AppearanceTests {
    static let xx = "Noise_XX_25519_ChaChaPoly_SHA256"
    static let ik = "Noise_IK_25519_ChaChaPoly_SHA256"

    /// The lengths of the messages that a side has sent, flight by flight.
    static func flights(_ pair: MachinePair, _ role: ChannelRole) -> [Int] {
        pair.sent[role, default: []].map(\.count)
    }

    /// Why a policy refuses the peer.
    enum Reason: CaseIterable, Sendable {
        case unknownKey, nobody, denied, noWindow, brokenStore, person

        func policy(about key: Fingerprint) throws -> TrustPolicy {
            let pinned = TrustPolicy.pinned([PeerKey(fingerprint: key)])
            switch self {
            case .unknownKey:
                let other = try IdentityKey.generate().fingerprint
                return .pinned([PeerKey(fingerprint: other)])
            case .nobody:
                return .pinned([PeerKey(fingerprint: Fingerprint(subjectPublicKeyInfo: []))])
            case .denied: return pinned.denying(DenyList([key]))
            case .noWindow: return .enrolled(KnownPeersFile("/nonexistent/known_peers"))
            case .brokenStore: return .enrolled(KnownPeersFile("/dev/null"))
            case .person: return .asking { _ in .refuse("no") }
            }
        }
    }

    /// A finished pair in which the policy of one side refuses the peer.
    static func refused(
        by role: ChannelRole, _ reason: Reason, mode: ChannelConfiguration.Mode = .negotiated
    ) throws -> MachinePair {
        let friends = try PinnedPeers()
        var configurations = try friends.configurations(xx)
        (configurations.dialer.mode, configurations.acceptor.mode) = (mode, mode)
        if role == .dialer {
            configurations.dialer.trust = try reason.policy(about: friends.acceptor.fingerprint)
        } else {
            configurations.acceptor.trust = try reason.policy(about: friends.dialer.fingerprint)
        }
        let pair = try MachinePair(
            dialer: configurations.dialer, acceptor: configurations.acceptor)
        pair.run()
        if reason == .person {
            if role == .dialer {
                pair.dialer.didDecide(.refuse("no"), now: pair.now)
            } else {
                pair.acceptor.didDecide(.refuse("no"), now: pair.now)
            }
            pair.run()
        }
        return pair
    }

    @Test("a Noise acceptor refuses every peer with the same record, which is as long as a ready")
    func acceptorRefuses() throws {
        let accepted = try PinnedPeers().pair([Self.xx])
        accepted.run()
        #expect(accepted.isReady)
        for reason in Reason.allCases {
            let pair = try Self.refused(by: .acceptor, reason)
            for role in [ChannelRole.dialer, .acceptor] {
                #expect(
                    Self.flights(pair, role) == Self.flights(accepted, role), "\(reason) \(role)")
            }
            guard case .failed(let error) = pair.dialer.outcome else {
                Issue.record("\(reason): the dialer is not refused")
                continue
            }
            #expect(error.code == .refused, "\(reason)")
            #expect(error.reason == "the peer refuses this identity", "\(reason)")
        }
    }

    @Test("a dialer that does not accept the acceptor closes the link without another byte")
    func dialerGoes() throws {
        for reason in Reason.allCases {
            let pair = try Self.refused(by: .dialer, reason)
            #expect(pair.dialer.outcome?.code == .untrusted, "\(reason)")
            #expect(Self.flights(pair, .dialer).count == 1, "\(reason)")
        }
        for back in [1, 17, 40, 90] {
            let pair = try PinnedPeers().pair([Self.xx])
            pair.tamper = { role, bytes in
                var bytes = bytes
                if role == .acceptor { bytes[bytes.count - back] ^= 1 }
                return bytes
            }
            pair.run()
            #expect(pair.dialer.outcome?.code == .authenticationFailed, "\(back)")
            #expect(Self.flights(pair, .dialer).count == 1, "\(back)")
        }
    }

    @Test("an IK dialer has sent its last message, and refuses with the same record")
    func dialerOfIK() throws {
        let friends = try PinnedPeers()
        var dialer = try friends.configuration(.dialer, [Self.ik])
        dialer.trust = dialer.trust.denying(DenyList([friends.acceptor.fingerprint]))
        let pair = try MachinePair(
            dialer: dialer, acceptor: friends.configuration(.acceptor, [Self.ik]))
        let accepted = try friends.pair([Self.ik])
        for pair in [pair, accepted] { pair.run() }
        #expect(pair.acceptor.outcome?.code == .refused)
        #expect(Self.flights(pair, .dialer) == Self.flights(accepted, .dialer))
        pair.dialer.linkEnded(nil, now: pair.now)
        #expect(pair.dialer.outcome?.code == .untrusted)
    }

    @Test("after a failed handshake an acceptor sends no record, unlike after a refusal")
    func acceptorGoes() throws {
        for back in [52, 60, 80, 110] {
            let pair = try PinnedPeers().pair([Self.xx])
            pair.tamper = { [unowned pair] role, bytes in
                var bytes = bytes
                // The last handshake message comes before the record with `ready`.
                if role == .dialer, pair.sent[.dialer]?.count == 2 {
                    bytes[bytes.count - back] ^= 1
                }
                return bytes
            }
            pair.run()
            #expect(pair.acceptor.outcome?.code == .authenticationFailed, "\(back)")
            #expect(Self.flights(pair, .acceptor).count == 1, "\(back)")
        }
    }

    @Test("an acceptor that fails before its answer closes the link without sending a byte")
    func noAnswer() throws {
        let hello = try Hello(offers: [Self.xx]).encoded
        var changed = hello
        changed[0] ^= 1
        for bytes in [
            changed, [0xFF], hello + [0, 0], hello + [0xFF, 0xFF],
            // A first message of XX whose ephemeral is incomplete.
            hello + [0, 31] + [UInt8](repeating: 9, count: 31),
        ] {
            let pair = try PinnedPeers().pair([Self.xx])
            pair.deliver(bytes, to: .acceptor)
            #expect(pair.acceptor.outcome != nil)
            #expect(pair.take(.acceptor).isEmpty)
        }
        let friends = try PinnedPeers()
        var dialer = try friends.configuration(.dialer, [Self.ik])
        dialer.trust = .pinned([try PeerKey(publicKey: IdentityKey.generate().publicKey)])
        let pair = try MachinePair(
            dialer: dialer, acceptor: friends.configuration(.acceptor, [Self.ik]))
        pair.run()
        #expect(pair.acceptor.outcome?.code == .authenticationFailed)
        #expect(Self.flights(pair, .acceptor).isEmpty)
    }

    @Test("in direct mode with Noise a refusal and a failure look the same: the link ends")
    func direct() throws {
        for reason in Reason.allCases {
            let pair = try Self.refused(by: .acceptor, reason, mode: .direct)
            #expect(pair.acceptor.outcome?.code == .untrusted, "\(reason)")
            #expect(Self.flights(pair, .acceptor).count == 1, "\(reason)")
        }
        var configurations = try PinnedPeers().configurations(Self.xx)
        (configurations.dialer.mode, configurations.acceptor.mode) = (.direct, .direct)
        let pair = try MachinePair(
            dialer: configurations.dialer, acceptor: configurations.acceptor)
        pair.step(.dialer)
        pair.step(.acceptor)
        var last = pair.take(.dialer)
        // Bytes after the last handshake message do not matter here.
        last[2 + 47] ^= 1
        pair.deliver(last, to: .acceptor)
        #expect(pair.acceptor.outcome?.code == .authenticationFailed)
        #expect(Self.flights(pair, .acceptor).count == 1)
    }

    @Test("a record that does not authenticate ends a Noise channel, and nothing is sent")
    func record() throws {
        let pair = try PinnedPeers().pair([Self.xx])
        pair.run()
        let before = Self.flights(pair, .acceptor)
        _ = try pair.dialer.queue([1, 2, 3])
        var bytes = pair.take(.dialer)
        bytes[bytes.count - 1] ^= 1
        pair.deliver(bytes, to: .acceptor)
        #expect(pair.acceptor.outcome?.code == .authenticationFailed)
        pair.run()
        #expect(Self.flights(pair, .acceptor) == before)
    }

    // MARK: - TLS

    /// Writes a private key with the public key of another key pair: its holder has the
    /// certificate, but not the certificate's key.
    static func forgeKey(_ name: String, _ scenery: Refusable.Scenery) throws {
        let folder = scenery.authority.folder
        func der(_ name: String) throws -> [UInt8] {
            try scenery.authority.run([
                "ec", "-in", folder.file("\(name).key"), "-outform", "DER", "-out",
                folder.file("\(name).key.der"),
            ])
            return try #require(folder.read("\(name).key.der"))
        }
        try scenery.authority.run([
            "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", folder.file("wrong.key"),
        ])
        var key = try der(name)
        // RFC 5915: a sequence, the version, and 32 bytes of private key behind their header.
        key.replaceSubrange(7..<39, with: try der("wrong")[7..<39])
        folder.write("\(name).key.der", key)
        try scenery.authority.run([
            "ec", "-inform", "DER", "-in", folder.file("\(name).key.der"), "-out",
            folder.file("\(name).key"),
        ])
    }

    @Test("a peer that has a certificate but not its key is refused with a different alert")
    func stolenCertificate() throws {
        for role in [ChannelRole.dialer, .acceptor] {
            let scenery = try Refusable.Scenery()
            let manner = try scenery.issued(
                TestAuthority.device("rogue"),
                newKey: ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            let honest = try MaliciousTLSPeer(
                role, manner, in: scenery.authority.folder, victim: scenery.configuration())
            try honest.run()
            #expect(honest.isDone && honest.types == [.ready])
            try Self.forgeKey("rogue", scenery)
            let rogue = try MaliciousTLSPeer(
                role, manner, in: scenery.authority.folder, victim: scenery.configuration())
            try rogue.run()
            // decrypt_error, which is not the alert for a bad certificate.
            #expect(rogue.alert == 51, "\(role)")
            #expect(rogue.types.isEmpty && !rogue.isReady)
            #expect(rogue.identity == nil)
            #expect(rogue.failure?.code == .authenticationFailed, "\(role)")
            let last = try #require(rogue.records.last)
            if role == .dialer {
                #expect(last.count == TLSEngine.overhead + 2)
            } else {
                #expect(last == [21, 3, 3, 0, 2, 2, 51])
            }
        }
    }

    @Test(
        "an acceptor's certificate alerts are sealed and of equal length; a dialer's are in clear"
    )
    func alerts() throws {
        let missing = try MaliciousTLSPeer(
            .dialer, MaliciousTLSPeer.Manner(certificate: nil),
            in: Refusable.Scenery().authority.folder,
            victim: Refusable.Scenery().configuration())
        try missing.run()
        #expect(missing.alert == 116)
        #expect(missing.records.last?.count == TLSEngine.overhead + 2)
        for refusable in Refusable.certificates.prefix(2) {
            for role in [ChannelRole.dialer, .acceptor] {
                let scenery = try Refusable.Scenery()
                let rogue = try MaliciousTLSPeer(
                    role, refusable.prepare(scenery), in: scenery.authority.folder,
                    victim: scenery.configuration())
                try rogue.run()
                let last = try #require(rogue.records.last)
                if role == .dialer {
                    // Sealed as application data.
                    #expect(last[0] == 23 && last.count == TLSEngine.overhead + 2)
                } else {
                    #expect(last == [21, 3, 3, 0, 2, 2, 40])
                }
            }
        }
    }

    @Test("an alert that an attacker inserts ends a handshake or a channel as a cut link does")
    func forgedAlert() throws {
        let alert: [UInt8] = [21, 3, 3, 0, 2, 2, 40]
        let company = try CertificateFixture.shared()
        let early = try company.pair()
        early.step(.dialer)
        early.step(.acceptor)
        early.deliver(alert, to: .acceptor)
        #expect(early.acceptor.outcome != nil && !early.acceptor.isReady)
        #expect(early.acceptor.peer == nil)
        let ready = try company.pair()
        ready.run()
        #expect(ready.isReady)
        ready.deliver(alert, to: .acceptor)
        guard case .failed = ready.acceptor.outcome else {
            Issue.record("the channel goes on, or has ended as it should")
            return
        }
    }

    @Test(
        "in direct mode with TLS a policy's refusal ends the link; a bad certificate gets an alert"
    )
    func directTLS() throws {
        let company = try CertificateFixture.shared()
        func pair(_ change: (inout ChannelConfiguration) throws -> Void) throws -> MachinePair {
            var configurations = try company.configurations()
            (configurations.dialer.mode, configurations.acceptor.mode) = (.direct, .direct)
            try change(&configurations.acceptor)
            let pair = try MachinePair(
                dialer: configurations.dialer, acceptor: configurations.acceptor)
            pair.run()
            return pair
        }
        let refused = try pair {
            $0.certificateTrust = .authority(uris: ["blesec://devices/nobody"])
        }
        #expect(refused.acceptor.outcome?.code == .untrusted)
        #expect(Self.flights(refused, .acceptor).count == 1)
        let stranger = try TestAuthority()
        let bad = try pair {
            $0.tls = try TLSContext(
                identity: company.acceptor.identity, authorities: stranger.authorities())
        }
        #expect(Self.flights(bad, .acceptor).count == 2)
        #expect(Self.flights(bad, .acceptor).last == TLSEngine.overhead + 2)
    }
}
