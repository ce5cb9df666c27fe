import BLESecChannelCore
import BLESecNoise
import BLESecPrimitives
import Testing

@testable import BLESec

/// Runs every interactive pattern against every attacker, in both roles and both modes. The tables
/// of the Noise specification say which peer has proven its identity; a test expects that a machine
/// reports this peer, and no other.
@Suite("Attackers")
struct AttackerTests {
    /// Every pattern of the tables: alone, with each psk modifier, and with its first and its last
    /// psk modifier together.
    private static var protocols: [SourceProperties] {
        SourceProperties.all.flatMap { pattern in
            let last = pattern.handshake.count
            return [pattern, pattern.withPSKs([0, last])]
                + (0...last).map { pattern.withPSKs([$0]) }
        }
    }

    @Test("a peer is reported if, and only if, it has proven its identity")
    func matrix() throws {
        let fixture = try AttackFixture()
        var tally = Tally()
        for properties in Self.protocols {
            for mode in [ChannelConfiguration.Mode.direct, .negotiated] {
                for role in [ChannelRole.dialer, .acceptor] {
                    guard !properties.isOneWay else {
                        try fixture.expectRefused(properties.protocolName, role, mode)
                        tally.refusedConfigurations += 1
                        continue
                    }
                    try fixture.run(Scenario(properties, role, mode), &tally)
                }
            }
        }
        // Fallbacks to XX. Both sides pin a key. So the first offer is always a pattern in which
        // the dialer proves its own key and already knows the acceptor's key.
        for firstOffer in SourceProperties.all
        where firstOffer.provesKey(.initiator) && firstOffer.name.filter(\.isLetter).last == "K" {
            try fixture.run(Scenario(fallingBackFrom: firstOffer, .dialer), &tally)
            // If any acceptor can read the first message, whatever its key is, then an honest
            // acceptor does not fall back, and only the attack on the dialer is possible.
            if Scenario.needsAcceptorKey(firstOffer) {
                try fixture.run(Scenario(fallingBackFrom: firstOffer, .acceptor), &tally)
            }
        }
        // A fallback cannot be offered by name.
        for pattern in SourceProperties.all where !pattern.isOneWay {
            let name = "Noise_\(pattern.name)fallback_25519_ChaChaPoly_SHA256"
            guard (try? ProtocolName(name)) != nil else { continue }
            for mode in [ChannelConfiguration.Mode.direct, .negotiated] {
                for role in [ChannelRole.dialer, .acceptor] {
                    try fixture.expectRefused(name, role, mode)
                    tally.refusedConfigurations += 1
                }
            }
        }
        print("attackers: \(tally)")
        #expect(tally.unexpected == 0)
        #expect(tally.count == 8_956, "docs/noise.md names this number of cases")
    }

    @Test("after each message, a party counts as proven if, and only if, the tables say so")
    func provenMessageByMessage() throws {
        for properties in Self.protocols where !properties.isOneWay {
            let pattern = try ProtocolName(properties.protocolName).pattern
            for role in Role.allCases {
                for count in 0...pattern.messages.count {
                    #expect(
                        pattern.isProven(role, after: count)
                            == properties.isProven(role, after: count),
                        "\(pattern) \(role) \(count)")
                }
            }
        }
        for name in ["N", "K", "X"] {
            let pattern = try #require(HandshakePattern.named(name))
            // The initiator of N has nothing to prove, so it counts as proven. In K and X the
            // initiator uses its static key only in `ss`, which is no proof: the responder's static
            // key is enough to compute `ss`. The responder sends no message, so it proves nothing.
            #expect(pattern.isProven(.initiator, after: 1) == (name == "N"))
            #expect(!pattern.isProven(.responder, after: 1))
        }
        let fallback = try ProtocolName("Noise_XXfallback_25519_ChaChaPoly_SHA256").pattern
        let table = try #require(SourceProperties.named("XX")).fallback
        for role in Role.allCases {
            for count in 0...2 {
                #expect(
                    fallback.isProven(role, after: count) == table.isProven(role, after: count))
            }
        }
    }
}

/// Counts of the cases that ran.
private struct Tally: CustomStringConvertible {
    var controls = 0
    var attacks = 0
    var refusedConfigurations = 0
    var unexpected = 0

    var count: Int { controls + attacks + refusedConfigurations }

    var description: String {
        "\(count) cases, \(controls) honest, \(attacks) attacks, "
            + "\(refusedConfigurations) refused when configured, \(unexpected) unexpected"
    }
}

/// A protocol, the victim's role and mode, and the first offer if the handshake is a fallback.
private struct Scenario: CustomStringConvertible {
    let properties: SourceProperties
    let victimRole: ChannelRole
    let mode: ChannelConfiguration.Mode
    /// In a fallback, the first offer. The acceptor cannot read this offer's first message, or is
    /// an attacker that pretends that it cannot.
    let firstOffer: SourceProperties?

    init(_ properties: SourceProperties, _ role: ChannelRole, _ mode: ChannelConfiguration.Mode) {
        self.properties = properties
        victimRole = role
        self.mode = mode
        firstOffer = nil
    }

    init(fallingBackFrom firstOffer: SourceProperties, _ role: ChannelRole) throws {
        properties = try #require(SourceProperties.named("XX")).fallback
        victimRole = role
        mode = .negotiated
        self.firstOffer = firstOffer
    }

    /// Whether only the holder of the acceptor's key can read the offer's first message: destination
    /// property 2 in the tables.
    static func needsAcceptorKey(_ firstOffer: SourceProperties) -> Bool {
        firstOffer.handshake[0].destination == 2
    }

    /// Whether two honest peers can reach this handshake: they fall back only if the acceptor
    /// cannot read the first message.
    var isReachedByHonestPeers: Bool { firstOffer.map(Self.needsAcceptorKey) ?? true }

    /// The role of the attacker, or of the honest peer in its place, in the handshake.
    var attackerRole: Role { victimRole == .dialer ? .responder : .initiator }

    var offers: [String] {
        (firstOffer.map { [$0.protocolName] } ?? []) + [properties.protocolName]
    }

    /// The name of the protocol that the handshake runs.
    var protocolName: ProtocolName {
        get throws {
            let name = properties.protocolName
            return try ProtocolName(
                firstOffer == nil ? name : name.replacing("Noise_XX_", with: "Noise_XXfallback_"))
        }
    }

    var description: String {
        "\(offers.joined(separator: ", ")), \(mode), against the \(victimRole)"
    }
}

/// The kinds of attacker, and the honest peer as the control. Here "the peer" is the party that the
/// victim trusts and that an attacker impersonates.
private enum Attacker: CaseIterable {
    /// Not an attacker: the peer itself, with its static key and the psks.
    case honest
    /// Knows public keys only.
    case keyless
    /// Knows public keys and the psks.
    case pskHolder
    /// Has the peer's static key, and no psk.
    case keyHolder
    /// Has stolen the victim's static key, and knows the psks.
    case victimKeyThief
    /// Shows the peer's public key, but computes with its own key; knows the psks.
    case peerKeyClaimer
    /// Shows its own key and computes with it; knows the psks.
    case ownKeyPresenter
    /// Replays everything that the peer sent in an earlier session.
    case sessionReplayer
    /// Replays the first SDU that the peer sent in an earlier session, and sends nothing more.
    case firstMessageReplayer
    /// Sends the victim's messages back to the victim. An acceptor sends nothing before it has
    /// received something, so it first gets the peer's recorded first SDU.
    case mirror

    /// Whether the attacker only repeats recorded or reflected messages, and has no keys.
    var onlyRepeats: Bool { [.sessionReplayer, .firstMessageReplayer, .mirror].contains(self) }
    /// Whether the attacker has the peer's static private key.
    var hasPeerKey: Bool { self == .honest || self == .keyHolder }
    var hasPSKs: Bool { !onlyRepeats && self != .keyless && self != .keyHolder }
}

/// Two peers that pin each other's keys, and what attackers that impersonate one of them need.
private struct AttackFixture {
    private let peers: PinnedPeers
    /// The key that the acceptor had before. In a fallback the dialer sends its first message to
    /// this key, so the acceptor cannot read the message.
    private let oldIdentity: IdentityKey
    /// The attackers' own key pair, which neither peer trusts.
    private let attackerKey: DHKeyPair
    private let psks: [PreSharedKey]

    init() throws {
        peers = try PinnedPeers()
        oldIdentity = try .generate()
        attackerKey = try .generate(.x25519)
        psks = try (0..<2).map { index in
            try PreSharedKey(SecretBytes(copying: [UInt8](repeating: UInt8(index), count: 32).span))
        }
    }

    private func identity(_ role: ChannelRole) -> IdentityKey {
        role == .dialer ? peers.dialer : peers.acceptor
    }

    private func configuration(
        _ scenario: Scenario, _ role: ChannelRole
    ) throws -> ChannelConfiguration {
        let peerKey = try PeerKey(publicKey: identity(role.peer).publicKey)
        var trust = TrustPolicy.pinned([peerKey])
        if scenario.firstOffer != nil, role == .dialer {
            // The dialer trusts both keys of the acceptor. It has the old public key, which the
            // first message needs; of the new key it has only the fingerprint.
            trust = .pinned([
                try PeerKey(publicKey: oldIdentity.publicKey),
                PeerKey(fingerprint: peerKey.fingerprint),
            ])
        }
        if !scenario.properties.provesKey(role == .dialer ? .responder : .initiator) {
            trust = .anyone
        }
        var configuration = ChannelConfiguration(identity: identity(role), trust: trust)
        configuration.protocols = scenario.offers
        configuration.mode = scenario.mode
        configuration.presharedKeys = psks
        configuration.allowsExposedIdentity = true
        // Each side gets its own set of pending dials, as on two devices. With the set that a
        // process shares, the two sides could recognize each other as one device.
        configuration.pendingDials = PendingDials()
        return configuration
    }

    /// Expects that a machine with this protocol refuses its configuration.
    func expectRefused(
        _ name: String, _ role: ChannelRole, _ mode: ChannelConfiguration.Mode
    ) throws {
        var configuration = ChannelConfiguration(identity: identity(role), trust: .anyone)
        configuration.protocols = [name]
        configuration.mode = mode
        configuration.presharedKeys = psks
        configuration.allowsExposedIdentity = true
        var machine = ChannelMachine(
            role: role, configuration: configuration, maximumSDU: 8_192, now: 1)
        var code: ChannelError.Code?
        do throws(ChannelError) { try machine.begin() } catch { code = error.code }
        #expect(code == .configuration, "\(name) \(role) \(mode)")
    }

    /// Runs the honest peer and every attacker, each against a new victim.
    func run(_ scenario: Scenario, _ tally: inout Tally) throws {
        let honestIdentity = identityProven(by: .honest, scenario)
        let recording = scenario.isReachedByHonestPeers ? try record(scenario, &tally) : []
        for attacker in Attacker.allCases {
            if scenario.properties.psks.isEmpty, attacker == .pskHolder || attacker == .keyHolder {
                continue
            }
            if recording.isEmpty,
                attacker == .sessionReplayer || attacker == .firstMessageReplayer
            {
                continue
            }
            let victim = try Victim(
                configuration(scenario, scenario.victimRole), scenario.victimRole)
            let expected = identityProven(by: attacker, scenario)
            var isExpected: Bool
            if !attacker.onlyRepeats {
                let reportedAtHandshakeEnd = try attack(attacker, scenario, victim)
                isExpected = victim.reported == expected
                // When the handshake ends, the peer is already reported only in direct mode, and
                // only if the tables call it proven by then.
                let isProvenAtHandshakeEnd =
                    scenario.mode == .direct
                    && scenario.properties.isProven(
                        scenario.attackerRole, after: scenario.properties.handshake.count)
                isExpected =
                    isExpected
                    && reportedAtHandshakeEnd == (isProvenAtHandshakeEnd ? expected : nil)
            } else {
                try replay(attacker, scenario, victim, recording)
                // If the pattern does not prove the peer, a replay may complete the handshake. The
                // victim may then report an anonymous peer.
                isExpected = victim.reported == nil || victim.reported == expected
            }
            if attacker == .honest { tally.controls += 1 } else { tally.attacks += 1 }
            if expected == nil { isExpected = isExpected && victim.endsWithoutPeer() }
            isExpected = isExpected && !victim.exchangedDataEarly
            if !isExpected { tally.unexpected += 1 }
            #expect(
                isExpected,
                """
                \(scenario), \(attacker): reported \(String(describing: victim.reported)), \
                expected \(String(describing: expected)); the honest peer is \
                \(String(describing: honestIdentity))
                """)
        }
    }

    /// Whom the victim may report according to the tables: nobody (`nil`), the holder of the peer's
    /// key, a member of the group that has the psks, or an anonymous peer.
    private func identityProven(by attacker: Attacker, _ scenario: Scenario) -> PeerIdentity? {
        let (properties, role) = (scenario.properties, scenario.attackerRole)
        let lacksPSKs = !properties.psks.isEmpty && !attacker.hasPSKs
        if properties.provesKey(role) {
            guard attacker.hasPeerKey, !lacksPSKs else { return nil }
            return .publicKey(identity(scenario.victimRole.peer).publicKey, curve: .x25519)
        }
        if lacksPSKs { return nil }
        return properties.psks.isEmpty ? .anonymous : .group
    }

    // MARK: - Attackers that compute a handshake

    private func keys(_ attacker: Attacker, _ scenario: Scenario) -> Impostor.Keys {
        let peer = identity(scenario.victimRole.peer)
        let victim = identity(scenario.victimRole)
        var keys = Impostor.Keys(shown: peer.publicKey, victim: victim.publicKey)
        if attacker.hasPSKs { keys.psks = psks }
        switch attacker {
        case .honest, .keyHolder: keys.own = peer.keyPair
        case .victimKeyThief: keys.stolen = victim.keyPair
        case .peerKeyClaimer: keys.own = attackerKey
        case .ownKeyPresenter:
            keys.own = attackerKey
            keys.shown = attackerKey.publicKey
        case .keyless, .pskHolder, .sessionReplayer, .firstMessageReplayer, .mirror: break
        }
        return keys
    }

    /// Runs the handshake with the victim as far as possible, then sends transport messages.
    /// Returns the identity that the victim reported before these transport messages.
    private func attack(
        _ attacker: Attacker, _ scenario: Scenario, _ victim: Victim
    ) throws -> PeerIdentity? {
        var transcript = NegotiationTranscript(context: [])
        let impostor: Impostor
        let name = try scenario.protocolName
        let keys = keys(attacker, scenario)
        switch (scenario.mode, scenario.victimRole) {
        case (.direct, _):
            impostor = try Impostor(name, scenario.attackerRole, prologue: [], keys: keys)
        case (.negotiated, .acceptor):
            transcript.hello = try Hello(offers: scenario.offers).encoded
            let ephemeral = try DHKeyPair.generate(.x25519)
            if let firstOffer = scenario.firstOffer {
                // The tag is wrong, so the victim cannot read the message.
                let length = try ProtocolName(firstOffer.protocolName).pattern.overhead(
                    ofMessage: 0, keyLength: 32)
                transcript.early =
                    ephemeral.publicKey + [UInt8](repeating: 9, count: length - 32)
                victim.deliver(transcript.hello + MaliciousNoisePeer.framed(transcript.early))
                victim.collect()
                let answer = try #require(
                    try Answer(prefixOf: victim.sent.span, offerCount: scenario.offers.count))
                #expect(answer.status == .fallback)
                transcript.answer = answer.encoded
                victim.sent.removeFirst(answer.encoded.count)
                impostor = try Impostor(
                    name, .initiator, prologue: transcript.prologue(for: .fallback), keys: keys,
                    ephemeral: ephemeral)
            } else {
                impostor = try Impostor(
                    name, .initiator, prologue: transcript.prologue(for: .accept), keys: keys,
                    ephemeral: ephemeral)
                transcript.early = try impostor.write()
                victim.deliver(transcript.hello + MaliciousNoisePeer.framed(transcript.early))
                victim.collect()
                let answer = try Answer(prefixOf: victim.sent.span, offerCount: 1)
                guard let answer else { return victim.reported }
                transcript.answer = answer.encoded
                victim.sent.removeFirst(answer.encoded.count)
            }
        case (.negotiated, .dialer):
            victim.collect()
            transcript.hello = try #require(try Hello(prefixOf: victim.sent.span)).encoded
            victim.sent.removeFirst(transcript.hello.count)
            transcript.early = try #require(victim.takeMessage())
            let status: Answer.Status = scenario.firstOffer == nil ? .accept : .fallback
            transcript.answer = Answer(status, index: scenario.firstOffer == nil ? 0 : 1).encoded
            victim.deliver(transcript.answer)
            impostor = try Impostor(
                name, .responder, prologue: transcript.prologue(for: status), keys: keys,
                remoteEphemeral: scenario.firstOffer.map { _ in
                    Array(transcript.early.prefix(32))
                })
            if scenario.firstOffer == nil { try impostor.read(transcript.early) }
        }
        while !impostor.isFinished {
            victim.collect()
            if impostor.isMyTurn {
                victim.deliver(MaliciousNoisePeer.framed(try impostor.write()))
            } else if let message = victim.takeMessage() {
                try impostor.read(message)
            } else {
                break
            }
        }
        victim.collect()
        let reportedAtHandshakeEnd = victim.reported
        if impostor.isFinished {
            let role = scenario.victimRole.peer
            let proof =
                scenario.mode == .direct
                ? [] : [RecordType.ready.rawValue] + transcript.ready(from: role)
            victim.deliver(try impostor.seal(proof))
            victim.collect()
            victim.deliver(try impostor.seal([RecordType.data.rawValue, 1]))
            victim.collect()
        }
        return reportedAtHandshakeEnd
    }

    // MARK: - Attackers that only repeat messages

    /// Runs a session of two honest machines, and returns the SDUs that the peer sends. Expects
    /// that both sides become ready, and that the victim reports the peer.
    private func record(_ scenario: Scenario, _ tally: inout Tally) throws -> [[UInt8]] {
        let pair = try MachinePair(
            dialer: configuration(scenario, .dialer), acceptor: configuration(scenario, .acceptor))
        pair.run()
        let peer = scenario.victimRole == .dialer ? pair.dialer.peer : pair.acceptor.peer
        let isExpected =
            pair.dialer.isReady && pair.acceptor.isReady
            && peer == identityProven(by: .honest, scenario)
        #expect(
            isExpected, "\(scenario), two honest machines: reported \(String(describing: peer))")
        tally.controls += 1
        if !isExpected { tally.unexpected += 1 }
        for message in [[1], [2, 3]] as [[UInt8]] {
            _ = try pair.dialer.queue(message)
            _ = try pair.acceptor.queue(message)
            pair.run()
        }
        return pair.sent[scenario.victimRole.peer, default: []]
    }

    private func replay(
        _ attacker: Attacker, _ scenario: Scenario, _ victim: Victim, _ recording: [[UInt8]]
    ) throws {
        victim.collect()
        switch attacker {
        case .sessionReplayer:
            for sdu in recording {
                victim.deliver(sdu)
                victim.collect()
            }
        case .firstMessageReplayer: victim.deliver(recording.first ?? [])
        default:  // the mirror
            if scenario.victimRole == .acceptor {
                victim.deliver(recording.first ?? [])
            } else if scenario.mode == .negotiated {
                let hello = try #require(try Hello(prefixOf: victim.sent.span)).encoded
                victim.sent.removeFirst(hello.count)
                let isFallback = scenario.firstOffer != nil
                victim.deliver(
                    Answer(isFallback ? .fallback : .accept, index: isFallback ? 1 : 0).encoded)
            }
            for _ in 0..<6 {
                let bytes = victim.sent
                victim.sent = []
                victim.deliver(bytes)
                victim.collect()
            }
        }
        victim.collect()
    }
}

/// A machine under attack. After each step its application tries to send and to receive. Records
/// the identity that the machine reports.
private final class Victim {
    private var machine: ChannelMachine
    private var now: UInt64 = 1_000_000_000
    /// What the machine has sent and the test has not taken.
    var sent: [UInt8] = []
    /// The identity that was reported, if any.
    private(set) var reported: PeerIdentity?
    /// Whether application data was sent or received before a peer was reported.
    private(set) var exchangedDataEarly = false

    init(_ configuration: ChannelConfiguration, _ role: ChannelRole) throws {
        machine = ChannelMachine(
            role: role, configuration: configuration, maximumSDU: 8_192, now: now)
        try machine.begin()
    }

    func deliver(_ bytes: [UInt8]) {
        guard machine.outcome == nil else { return }
        machine.feed(bytes, now: now)
        observe()
    }

    func collect() {
        observe()
        sent += machine.transmit(now: now)
        observe()
    }

    /// Takes one message from what the victim has sent, and returns it without its two bytes of
    /// length.
    func takeMessage() -> [UInt8]? {
        guard sent.count >= 2 else { return nil }
        let length = Int(sent[0]) << 8 | Int(sent[1])
        guard sent.count >= 2 + length else { return nil }
        defer { sent.removeFirst(2 + length) }
        return Array(sent[2..<2 + length])
    }

    /// Lets 61 seconds pass, more than any time limit before a peer is reported. Returns whether
    /// the victim has then ended and has never reported a peer.
    func endsWithoutPeer() -> Bool {
        now += 61_000_000_000
        machine.handleTimeout(now: now)
        observe()
        return machine.outcome != nil && reported == nil
    }

    private func observe() {
        let isQueued = (try? machine.queue([7])) != nil
        let isReceived = machine.popMessage() != nil
        if machine.isReady {
            reported = machine.peer
        } else if isQueued || isReceived {
            exchangedDataEarly = true
        }
    }
}
