import BLESecChannelCore
import BLESecNoise
import BLESecTesting
import Testing

@testable import BLESec

/// An attacker changes, withholds, repeats and reorders the bytes of a whole channel. At least one
/// side always fails, and no side reports anything false.
@Suite("Tampering")
struct TamperingTests {
    /// Names of protocols, and of special cases that ``AttackScenario/init(_:)`` describes. The first
    /// four are the names of Noise protocols.
    static let scenarios = [
        "Noise_XX_25519_ChaChaPoly_SHA256", "Noise_IK_25519_AESGCM_SHA256",
        "Noise_KK_25519_ChaChaPoly_BLAKE2s", "Noise_NNpsk0_25519_ChaChaPoly_SHA512",
        "fallback", "switch", "TLS1.3", "TLS1.3 to Noise", "Noise to TLS1.3",
    ]
    static let roles = [ChannelRole.dialer, .acceptor]
    /// The sum of the deadlines of all phases before data: 5 + 10 + 10 seconds.
    static let handshakeLimit = Duration.seconds(25)

    @Test("a channel without an attacker completes on both sides", arguments: scenarios)
    func untouched(name: String) throws {
        let scenario = try AttackScenario(name)
        #expect(scenario.reference.bothComplete)
        for role in Self.roles {
            #expect(scenario.reference[role].received == AttackRun.messages[role.peer])
        }
        scenario.reference.expectTrueReports("untouched")
    }

    @Test("a change of any byte that has a meaning is noticed", arguments: scenarios, roles)
    func flips(name: String, sender: ChannelRole) throws {
        let scenario = try AttackScenario(name)
        var random = SeededGenerator(seed: 0xB1E5EC)
        let ignored = scenario.ignoredPosition(sender)
        for position in 0..<scenario.length(sender) where position != ignored {
            // A TLS handshake is long and slow to run, so only the first mask is tried.
            let masks = [UInt8.random(in: 1...255, using: &random), 1 << (position % 8)]
            for mask in scenario.framing == .tls ? masks.prefix(1) : masks[...] {
                let run = try scenario.run { role, offset, bytes in
                    var bytes = bytes
                    if role == sender, bytes.indices.contains(position - offset) {
                        bytes[position - offset] ^= mask
                    }
                    return bytes
                }
                scenario.expectNoticed(
                    run, from: sender, at: position, "\(sender) byte \(position) ^ \(mask)")
            }
        }
    }

    @Test("silence after any number of bytes is noticed", arguments: scenarios, roles)
    func silence(name: String, sender: ChannelRole) throws {
        let scenario = try AttackScenario(name)
        for length in 0..<scenario.length(sender) {
            let run = try scenario.run { role, offset, bytes in
                role == sender ? Array(bytes.prefix(max(0, length - offset))) : bytes
            }
            scenario.expectNoticed(run, from: sender, at: length, "\(sender) silent at \(length)")
        }
    }

    @Test("a link that ends after any number of bytes is noticed", arguments: scenarios, roles)
    func cut(name: String, sender: ChannelRole) throws {
        let scenario = try AttackScenario(name)
        for length in 0..<scenario.length(sender) {
            var isCut = false
            let run = try scenario.run { role, offset, bytes in
                guard role == sender, offset + bytes.count > length else { return bytes }
                // The first call that reaches the cut still delivers the bytes before the cut.
                if isCut { return nil }
                isCut = true
                return Array(bytes.prefix(max(0, length - offset)))
            } endsWhen: {
                isCut
            }
            scenario.expectNoticed(run, from: sender, at: length, "\(sender) cut at \(length)")
        }
    }

    @Test("a piece that arrives twice is noticed", arguments: scenarios, roles)
    func duplicates(name: String, sender: ChannelRole) throws {
        let scenario = try AttackScenario(name)
        for (index, piece) in scenario.sentPieces(sender).pieces.enumerated() {
            let run = try scenario.run { role, offset, bytes in
                guard role == sender, piece.lowerBound >= offset,
                    piece.upperBound <= offset + bytes.count
                else { return bytes }
                let end = piece.upperBound - offset
                return Array(bytes[..<end] + bytes[piece.lowerBound - offset..<end] + bytes[end...])
            }
            scenario.expectNoticed(
                run, from: sender, at: piece.upperBound, "\(sender) piece \(index) twice")
        }
    }

    @Test("two neighbouring pieces in the wrong order are noticed", arguments: scenarios, roles)
    func swaps(name: String, sender: ChannelRole) throws {
        let scenario = try AttackScenario(name)
        let pieces = scenario.sentPieces(sender).pieces
        for (index, (first, second)) in zip(pieces, pieces.dropFirst()).enumerated() {
            // The first piece arrives directly after the second, or never if the second does not
            // come.
            var withheld: [UInt8] = []
            let run = try scenario.run { role, offset, bytes in
                guard role == sender else { return bytes }
                var arriving: [UInt8] = []
                for (position, byte) in bytes.enumerated() {
                    if first.contains(offset + position) {
                        withheld.append(byte)
                    } else {
                        arriving.append(byte)
                    }
                    if offset + position == second.upperBound - 1 { arriving += withheld }
                }
                return arriving
            }
            scenario.expectNoticed(
                run, from: sender, at: first.lowerBound, "\(sender) pieces \(index) swapped")
        }
    }
}

/// The configurations of two peers that trust each other, and the run of their channel without an
/// attacker.
struct AttackScenario {
    let name: String
    let reference: AttackRun
    let configurations: (dialer: ChannelConfiguration, acceptor: ChannelConfiguration)

    init(
        _ name: String,
        _ configurations: (dialer: ChannelConfiguration, acceptor: ChannelConfiguration)
    ) throws {
        self.name = name
        self.configurations = configurations
        reference = try AttackRun(configurations)
    }

    /// The scenario for a protocol's name, or for a special case of ``TamperingTests/scenarios``.
    init(_ name: String) throws {
        let pinned = try PinnedPeers()
        switch name {
        case "fallback":
            // The dialer sends IK to an old key of the acceptor, and also accepts the acceptor's
            // current key.
            let offers = ["Noise_IK_25519_ChaChaPoly_SHA256", "Noise_XX_25519_ChaChaPoly_SHA256"]
            var dialer = try pinned.configuration(.dialer, offers)
            dialer.trust = .pinned([
                try PeerKey(publicKey: IdentityKey.generate().publicKey),
                PeerKey(fingerprint: pinned.acceptor.fingerprint),
            ])
            try self.init(name, (dialer, pinned.configuration(.acceptor, offers)))
        case CertificateFixture.tls:
            try self.init(name, CertificateFixture.shared().configurations())
        case "TLS1.3 to Noise":
            try self.init(
                name,
                CertificateFixture.shared().configurations(
                    dialer: [CertificateFixture.tls, CertificateFixture.noise],
                    acceptor: [CertificateFixture.noise]))
        case "Noise to TLS1.3":
            try self.init(
                name,
                CertificateFixture.shared().configurations(
                    dialer: [CertificateFixture.noise, CertificateFixture.tls],
                    acceptor: [CertificateFixture.tls]))
        case "switch":
            // The acceptor accepts only the dialer's second offer.
            let offers = ["Noise_IK_25519_ChaChaPoly_SHA256", "Noise_KK_25519_AESGCM_SHA256"]
            try self.init(
                name,
                (
                    pinned.configuration(.dialer, offers),
                    pinned.configuration(.acceptor, [offers[1]])
                ))
        default:
            let pinned = try PinnedPeers(hash: ProtocolName(name).hash)
            try self.init(name, pinned.configurations(name))
        }
    }

    func length(_ role: ChannelRole) -> Int { reference.sent[role, default: []].count }

    func sentPieces(_ role: ChannelRole) -> SentPieces {
        SentPieces(of: reference.sent[role, default: []], framing: framing, role: role)
    }

    var framing: SentPieces.Framing { name.hasSuffix(CertificateFixture.tls) ? .tls : .noise }

    /// The position of the one byte whose change nobody notices; `nil` if `role` does not send such
    /// a byte. Only the dialer of "Noise to TLS1.3" sends such a byte, because its ClientHello comes
    /// after the acceptor's answer. The byte is the second byte of the legacy version in the header
    /// of the ClientHello's TLS record. TLS ignores this byte (RFC 8446 §5.1).
    func ignoredPosition(_ role: ChannelRole) -> Int? {
        guard name == "Noise to TLS1.3", role == .dialer else { return nil }
        return sentPieces(role).pieces[2].lowerBound + 2
    }

    func run(
        _ attack: @escaping (ChannelRole, Int, [UInt8]) -> [UInt8]?,
        endsWhen: @escaping () -> Bool = { false }
    ) throws -> AttackRun {
        try AttackRun(configurations, attack: attack, endsWhen: endsWhen)
    }

    /// Records an issue unless a side failed and neither side reported anything false.
    ///
    /// `position` is where the attack on the bytes of `sender` begins. If it is before the end of
    /// the sender's `ready`, the sender's peer must not have become ready, and the run must have
    /// ended within ``TamperingTests/handshakeLimit``.
    func expectNoticed(
        _ run: AttackRun, from sender: ChannelRole, at position: Int,
        _ comment: @autoclosure () -> Comment
    ) {
        run.expectTrueReports(comment())
        #expect(!run.bothComplete, comment())
        guard let provingByteCount = sentPieces(sender).provingByteCount else {
            Issue.record("the \(sender) sends no ready")
            return
        }
        if position < provingByteCount {
            #expect(!run[sender.peer].wasReady, comment())
            #expect(run.elapsed <= TamperingTests.handshakeLimit, comment())
        }
    }
}
