import BLESecChannelCore
import BLESecNoise
import BLESecPrimitives
import Testing

@testable import BLESec

/// Every pattern against every attacker, in both roles and both modes. The tables of the
/// specification say who may be reported; the machine shows who is reported.
@Suite("Attackers")
struct AttackerTests {
    /// Every pattern of the tables: alone, with each psk modifier, and with two psk modifiers.
    private static var protocols: [SourceProperties] {
        SourceProperties.all.flatMap { pattern in
            let last = pattern.handshake.count
            return [pattern, pattern.withPSKs([0, last])]
                + (0...last).map { pattern.withPSKs([$0]) }
        }
    }

    @Test("a peer is reported if, and only if, it has proven its identity")
    func matrix() throws {
        let fixture = try Attackers()
        var tally = Tally()
        for properties in Self.protocols {
            for mode in [ChannelConfiguration.Mode.direct, .negotiated] {
                for role in [ChannelRole.dialer, .acceptor] {
                    guard !properties.isOneWay else {
                        try fixture.expectRefused(properties.protocolName, role, mode)
                        tally.refused += 1
                        continue
                    }
                    try fixture.meet(Meeting(properties, role, mode), &tally)
                }
            }
        }
        // Both sides pin a key, so both have a key in the first offer, and the dialer knows the
        // acceptor's key.
        for attempt in SourceProperties.all
        where attempt.hasKey(.initiator) && attempt.name.filter(\.isLetter).last == "K" {
            try fixture.meet(Meeting(fallingBackFrom: attempt, .dialer), &tally)
            // An acceptor can read the first message of the other patterns, whatever its key is; an
            // attacker may still answer it with a fallback.
            if Meeting.isUnreadable(attempt) {
                try fixture.meet(Meeting(fallingBackFrom: attempt, .acceptor), &tally)
            }
        }
        for pattern in SourceProperties.all where !pattern.isOneWay {
            let name = "Noise_\(pattern.name)fallback_25519_ChaChaPoly_SHA256"
            guard (try? ProtocolName(name)) != nil else { continue }
            for mode in [ChannelConfiguration.Mode.direct, .negotiated] {
                for role in [ChannelRole.dialer, .acceptor] {
                    try fixture.expectRefused(name, role, mode)
                    tally.refused += 1
                }
            }
        }
        print("attackers: \(tally)")
        #expect(tally.unexpected == 0)
        #expect(tally.count == 8_956, "docs/noise.md says how many")
    }

    @Test("a party is proven at the message that the specification's tables name")
    func queries() throws {
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
            // `ss` is the only proof in K and X, and a responder never sends a message.
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
    var refused = 0
    var unexpected = 0

    var count: Int { controls + attacks + refused }

    var description: String {
        "\(count) cases, \(controls) honest, \(attacks) attacks, "
            + "\(refused) refused when configured, \(unexpected) unexpected"
    }
}

/// A protocol, the victim's role, and how the handshake is reached.
private struct Meeting: CustomStringConvertible {
    let properties: SourceProperties
    /// The victim's role.
    let role: ChannelRole
    let mode: ChannelConfiguration.Mode
    /// In a fallback, the offer whose first message cannot be read.
    let attempt: SourceProperties?

    init(_ properties: SourceProperties, _ role: ChannelRole, _ mode: ChannelConfiguration.Mode) {
        self.properties = properties
        self.role = role
        self.mode = mode
        attempt = nil
    }

    init(fallingBackFrom attempt: SourceProperties, _ role: ChannelRole) throws {
        properties = try #require(SourceProperties.named("XX")).fallback
        self.role = role
        mode = .negotiated
        self.attempt = attempt
    }

    /// Whether only the holder of the acceptor's key can read the offer's first message.
    static func isUnreadable(_ attempt: SourceProperties) -> Bool {
        attempt.handshake[0].destination == 2
    }

    /// Whether honest peers reach this handshake.
    var isHonest: Bool { attempt.map(Self.isUnreadable) ?? true }

    /// The attacker's role in the handshake.
    var attacker: Role { role == .dialer ? .responder : .initiator }

    var offers: [String] {
        (attempt.map { [$0.protocolName] } ?? []) + [properties.protocolName]
    }

    /// The name of the protocol that the handshake runs.
    var protocolName: ProtocolName {
        get throws {
            let name = properties.protocolName
            return try ProtocolName(
                attempt == nil ? name : name.replacing("Noise_XX_", with: "Noise_XXfallback_"))
        }
    }

    var description: String { "\(offers.joined(separator: ", ")), \(mode), against the \(role)" }
}

/// The kinds of attacker.
private enum Attacker: CaseIterable {
    /// Has everything: the control.
    case honest
    /// Knows public keys only.
    case stranger
    /// Knows the psks as well.
    case member
    /// Has the peer's static key, and no psk.
    case keyHolder
    /// Has stolen the victim's static key, and knows the psks.
    case thief
    /// Shows the peer's public key, but computes with its own key; knows the psks.
    case swapper
    /// Shows its own key and computes with it; knows the psks.
    case foreigner
    /// Replays everything that the peer has sent in an earlier session.
    case recording
    /// Replays the first message of the peer from an earlier session, and sends nothing more.
    case firstMessage
    /// Reflects the victim's messages; where the victim waits for a first message, it replays the
    /// peer's.
    case mirror

    var hasKey: Bool { self == .honest || self == .keyHolder }
    var hasPSKs: Bool { ![.stranger, .keyHolder].contains(self) }
    var isLive: Bool { ![.recording, .firstMessage, .mirror].contains(self) }
}

/// Two peers that know each other, the key of a third party, and the attackers that impersonate one
/// of the two.
private struct Attackers {
    private let friends: PinnedPeers
    private let lost: IdentityKey
    private let foreign: DHKeyPair
    private let psks: [PreSharedKey]

    init() throws {
        friends = try PinnedPeers()
        lost = try .generate()
        foreign = try .generate(.x25519)
        psks = try (0..<2).map { index in
            try PreSharedKey(SecretBytes(copying: [UInt8](repeating: UInt8(index), count: 32).span))
        }
    }

    private func identity(_ role: ChannelRole) -> IdentityKey {
        role == .dialer ? friends.dialer : friends.acceptor
    }

    private func configuration(
        _ meeting: Meeting, _ role: ChannelRole
    ) throws -> ChannelConfiguration {
        let friend = try PeerKey(publicKey: identity(role.peer).publicKey)
        var trust = TrustPolicy.pinned([friend])
        if meeting.attempt != nil, role == .dialer {
            // The dialer knows an older key of the acceptor.
            trust = .pinned([
                try PeerKey(publicKey: lost.publicKey), PeerKey(fingerprint: friend.fingerprint),
            ])
        }
        if !meeting.properties.hasKey(role == .dialer ? .responder : .initiator) { trust = .anyone }
        var configuration = ChannelConfiguration(identity: identity(role), trust: trust)
        configuration.protocols = meeting.offers
        configuration.mode = meeting.mode
        configuration.presharedKeys = psks
        configuration.allowsExposedIdentity = true
        // Attackers run on other devices.
        configuration.pendingDials = PendingDials()
        return configuration
    }

    /// Expects that a protocol cannot be configured.
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

    /// Runs every attacker against the victim.
    func meet(_ meeting: Meeting, _ tally: inout Tally) throws {
        let truth = identityProven(by: .honest, meeting)
        let recording = meeting.isHonest ? try recording(meeting, &tally) : []
        for attacker in Attacker.allCases {
            if meeting.properties.psks.isEmpty, attacker == .member || attacker == .keyHolder {
                continue
            }
            if recording.isEmpty, attacker == .recording || attacker == .firstMessage { continue }
            let victim = try Victim(configuration(meeting, meeting.role), meeting.role)
            let expected = identityProven(by: attacker, meeting)
            var isExpected: Bool
            if attacker.isLive {
                let early = try come(attacker, meeting, victim)
                isExpected = victim.reported == expected
                // The peer is reported when the table says so: not earlier, and not later.
                let isEarly =
                    meeting.mode == .direct
                    && meeting.properties.isProven(
                        meeting.attacker, after: meeting.properties.handshake.count)
                isExpected = isExpected && early == (isEarly ? expected : nil)
            } else {
                try repeatOthers(attacker, meeting, victim, recording)
                // A handshake that proves nothing may be replayed to its end.
                isExpected = victim.reported == nil || victim.reported == expected
            }
            if attacker == .honest { tally.controls += 1 } else { tally.attacks += 1 }
            if expected == nil { isExpected = isExpected && victim.waits() }
            isExpected = isExpected && !victim.hasSpoken
            if !isExpected { tally.unexpected += 1 }
            #expect(
                isExpected,
                """
                \(meeting), \(attacker): reported \(String(describing: victim.reported)), \
                expected \(String(describing: expected)) of \(String(describing: truth))
                """)
        }
    }

    /// Who may be reported according to the tables: nobody, the peer's key, a group, or an
    /// anonymous peer.
    private func identityProven(by attacker: Attacker, _ meeting: Meeting) -> PeerIdentity? {
        let (properties, role) = (meeting.properties, meeting.attacker)
        let lacksPSKs = !properties.psks.isEmpty && !(attacker.hasPSKs && attacker.isLive)
        if properties.hasKey(role) {
            guard attacker.hasKey, !lacksPSKs else { return nil }
            return .publicKey(identity(meeting.role.peer).publicKey, curve: .x25519)
        }
        if lacksPSKs { return nil }
        return properties.psks.isEmpty ? .anonymous : .group
    }

    // MARK: - Attackers with keys

    private func keys(_ attacker: Attacker, _ meeting: Meeting) -> Impostor.Keys {
        let peer = identity(meeting.role.peer)
        let victim = identity(meeting.role)
        var keys = Impostor.Keys(shown: peer.publicKey, victim: victim.publicKey)
        if attacker.hasPSKs { keys.psks = psks }
        switch attacker {
        case .honest, .keyHolder: keys.own = peer.keyPair
        case .thief: keys.stolen = victim.keyPair
        case .swapper: keys.own = foreign
        case .foreigner:
            keys.own = foreign
            keys.shown = foreign.publicKey
        case .stranger, .member, .recording, .firstMessage, .mirror: break
        }
        return keys
    }

    /// Runs the handshake with the victim as far as possible, then sends transport messages.
    /// Returns the identity that was reported by the end of the handshake.
    private func come(
        _ attacker: Attacker, _ meeting: Meeting, _ victim: Victim
    ) throws -> PeerIdentity? {
        var transcript = NegotiationTranscript(context: [])
        let impostor: Impostor
        let name = try meeting.protocolName
        let keys = keys(attacker, meeting)
        switch (meeting.mode, meeting.role) {
        case (.direct, _):
            impostor = try Impostor(name, meeting.attacker, prologue: [], keys: keys)
        case (.negotiated, .acceptor):
            transcript.hello = try Hello(offers: meeting.offers).encoded
            let ephemeral = try DHKeyPair.generate(.x25519)
            if let attempt = meeting.attempt {
                // The tag is wrong, so the victim cannot read the message.
                let length = try ProtocolName(attempt.protocolName).pattern.overhead(
                    ofMessage: 0, keyLength: 32)
                transcript.early =
                    ephemeral.publicKey + [UInt8](repeating: 9, count: length - 32)
                victim.deliver(transcript.hello + MaliciousNoisePeer.framed(transcript.early))
                victim.collect()
                let answer = try #require(
                    try Answer(prefixOf: victim.said.span, offerCount: meeting.offers.count))
                #expect(answer.status == .fallback)
                transcript.answer = answer.encoded
                victim.said.removeFirst(answer.encoded.count)
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
                let answer = try Answer(prefixOf: victim.said.span, offerCount: 1)
                guard let answer else { return victim.reported }
                transcript.answer = answer.encoded
                victim.said.removeFirst(answer.encoded.count)
            }
        case (.negotiated, .dialer):
            victim.collect()
            transcript.hello = try #require(try Hello(prefixOf: victim.said.span)).encoded
            victim.said.removeFirst(transcript.hello.count)
            transcript.early = try #require(victim.takeMessage())
            let status: Answer.Status = meeting.attempt == nil ? .accept : .fallback
            transcript.answer = Answer(status, index: meeting.attempt == nil ? 0 : 1).encoded
            victim.deliver(transcript.answer)
            impostor = try Impostor(
                name, .responder, prologue: transcript.prologue(for: status), keys: keys,
                remoteEphemeral: meeting.attempt.map { _ in Array(transcript.early.prefix(32)) })
            if meeting.attempt == nil { try impostor.read(transcript.early) }
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
        let early = victim.reported
        if impostor.isFinished {
            let role = meeting.role.peer
            let proof =
                meeting.mode == .direct
                ? [] : [RecordType.ready.rawValue] + transcript.ready(from: role)
            victim.deliver(try impostor.seal(proof))
            victim.collect()
            victim.deliver(try impostor.seal([RecordType.data.rawValue, 1]))
            victim.collect()
        }
        return early
    }

    // MARK: - Attackers without keys

    /// Returns everything that the honest peer sends in a whole session, in pieces; expects that
    /// both sides are ready.
    private func recording(_ meeting: Meeting, _ tally: inout Tally) throws -> [[UInt8]] {
        let pair = try MachinePair(
            dialer: configuration(meeting, .dialer), acceptor: configuration(meeting, .acceptor))
        pair.run()
        let peer = meeting.role == .dialer ? pair.dialer.peer : pair.acceptor.peer
        let isExpected =
            pair.dialer.isReady && pair.acceptor.isReady
            && peer == identityProven(by: .honest, meeting)
        #expect(isExpected, "\(meeting), two machines: \(String(describing: peer))")
        tally.controls += 1
        if !isExpected { tally.unexpected += 1 }
        for message in [[1], [2, 3]] as [[UInt8]] {
            _ = try pair.dialer.queue(message)
            _ = try pair.acceptor.queue(message)
            pair.run()
        }
        return pair.sent[meeting.role.peer, default: []]
    }

    private func repeatOthers(
        _ attacker: Attacker, _ meeting: Meeting, _ victim: Victim, _ recording: [[UInt8]]
    ) throws {
        victim.collect()
        switch attacker {
        case .recording:
            for piece in recording {
                victim.deliver(piece)
                victim.collect()
            }
        case .firstMessage:
            victim.deliver(recording.first ?? [])
        default:
            if meeting.role == .acceptor {
                victim.deliver(recording.first ?? [])
            } else if meeting.mode == .negotiated {
                let hello = try #require(try Hello(prefixOf: victim.said.span)).encoded
                victim.said.removeFirst(hello.count)
                let isFallback = meeting.attempt != nil
                victim.deliver(
                    Answer(isFallback ? .fallback : .accept, index: isFallback ? 1 : 0).encoded)
            }
            for _ in 0..<6 {
                let bytes = victim.said
                victim.said = []
                victim.deliver(bytes)
                victim.collect()
            }
        }
        victim.collect()
    }
}

/// A machine whose application tries to send and to receive all the time, and which records the identity that is
/// reported.
private final class Victim {
    private var machine: ChannelMachine
    private var now: UInt64 = 1_000_000_000
    /// What the machine has sent and the test has not taken.
    var said: [UInt8] = []
    /// The identity that was reported, if any.
    private(set) var reported: PeerIdentity?
    /// Whether application data was sent or received before a peer was reported.
    private(set) var hasSpoken = false

    init(_ configuration: ChannelConfiguration, _ role: ChannelRole) throws {
        machine = ChannelMachine(
            role: role, configuration: configuration, maximumSDU: 8_192, now: now)
        try machine.begin()
    }

    func deliver(_ bytes: [UInt8]) {
        guard machine.outcome == nil else { return }
        machine.arrive(bytes, now: now)
        look()
    }

    func collect() {
        look()
        said += machine.transmit(now: now)
        look()
    }

    /// Takes one message, with a length before it, from what the victim has sent.
    func takeMessage() -> [UInt8]? {
        guard said.count >= 2 else { return nil }
        let length = Int(said[0]) << 8 | Int(said[1])
        guard said.count >= 2 + length else { return nil }
        defer { said.removeFirst(2 + length) }
        return Array(said[2..<2 + length])
    }

    /// Lets a minute pass, and returns whether the victim is over by then without having reported a
    /// peer.
    func waits() -> Bool {
        now += 61_000_000_000
        machine.handleTimeout(now: now)
        look()
        return machine.outcome != nil && reported == nil
    }

    private func look() {
        let isQueued = (try? machine.queue([7])) != nil
        let isReceived = machine.popMessage() != nil
        if machine.isReady {
            reported = machine.peer
        } else if isQueued || isReceived {
            hasSpoken = true
        }
    }
}
