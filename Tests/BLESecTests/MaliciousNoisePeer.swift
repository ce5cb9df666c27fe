import BLESecChannelCore
import BLESecNoise
import BLESecNoiseEngine
import BLESecPrimitives
import Testing

@testable import BLESec

/// A peer that has the keys of a pinned peer and breaks the rules: a test drives its engine, which
/// can seal any record. The other side is a ``ChannelMachine``, the victim.
final class MaliciousNoisePeer {
    /// The malicious peer's own role.
    let role: ChannelRole
    var victim: ChannelMachine
    var engine: NoiseEngine
    var transcript: NegotiationTranscript
    /// The present time, in nanoseconds.
    var now: UInt64 = 1_000_000_000
    /// The records that the victim has sent.
    private(set) var records: [(type: RecordType, payload: [UInt8])] = []
    /// The bytes that the victim has sent and this peer has not read yet.
    private(set) var incoming: [UInt8] = []
    /// Whether the link is full, so that it takes none of the victim's bytes.
    var isBlocked = false

    /// A malicious peer whose handshake has not begun; `change` adapts the victim's configuration.
    init(
        _ role: ChannelRole = .dialer, _ offer: String = ChannelConfiguration.defaultProtocol,
        pinned: PinnedPeers? = nil, budget: ReassemblyBudget = .shared,
        change: (inout ChannelConfiguration) -> Void = { _ in }
    ) throws {
        let pinned = try pinned ?? PinnedPeers(hash: ProtocolName(offer).hash)
        self.role = role
        var victimConfiguration = try pinned.configuration(role.peer, [offer])
        change(&victimConfiguration)
        victim = ChannelMachine(
            role: role.peer, configuration: victimConfiguration, maximumSDU: 8_192, now: now,
            budget: budget)
        transcript = NegotiationTranscript(context: victimConfiguration.context)
        if role == .dialer { transcript.hello = try Hello(offers: [offer]).encoded }
        let ownConfiguration = try pinned.configuration(role, [offer])
        let plan = try NoisePlan(
            offer, role: role, identity: ownConfiguration.identity,
            trust: ownConfiguration.trust,
            presharedKeys: victimConfiguration.presharedKeys, allowsExposedIdentity: true)
        try victim.begin()
        if role == .acceptor {
            let hello = victim.stage?.records.outbound.withBytes { $0.span.array } ?? []
            transcript.hello = try #require(try Hello(prefixOf: hello.span)).encoded
        }
        engine = try NoiseEngine(plan, prologue: transcript.prologue(for: .accept))
    }

    /// Runs the handshake until records can be sealed, without sending a `ready`.
    func shakeHands() throws {
        if role == .dialer {
            transcript.early = try #require(try engine.nextHandshake())
            deliver(transcript.hello + Self.framed(transcript.early))
            collect()
            let answer = try #require(try Answer(prefixOf: incoming.span, offerCount: 1))
            transcript.answer = answer.encoded
            incoming.removeFirst(answer.encoded.count)
        } else {
            collect()
            incoming.removeFirst(transcript.hello.count)
            transcript.early = try #require(takeFramed())
            transcript.answer = Answer(.accept).encoded
            deliver(transcript.answer)
            let early = transcript.early
            try engine.receiveHandshake(early.span)
        }
        for _ in 0..<10 {
            if case .awaitingTrustDecision = engine.phase { try engine.admit() }
            if case .established = engine.phase { return try readRecords() }
            if let message = try engine.nextHandshake() {
                deliver(Self.framed(message))
                collect()
            } else if let message = takeFramed() {
                try engine.receiveHandshake(message.span)
            }
        }
        Issue.record("the handshake does not end: \(String(describing: victim.outcome))")
    }

    /// Runs a dialer's handshake, and delivers its last handshake message, the `ready` and the
    /// first piece of an application's message together.
    func deliverReadyAndFirstPieceTogether() throws {
        transcript.early = try #require(try engine.nextHandshake())
        deliver(transcript.hello + Self.framed(transcript.early))
        collect()
        let answer = try #require(try Answer(prefixOf: incoming.span, offerCount: 1))
        transcript.answer = answer.encoded
        incoming.removeFirst(answer.encoded.count)
        let secondMessage = try #require(takeFramed())
        try engine.receiveHandshake(secondMessage.span)
        if case .awaitingTrustDecision = engine.phase { try engine.admit() }
        let thirdMessage = Self.framed(try #require(try engine.nextHandshake()))
        let ready = try sealed(RecordType.ready.rawValue, transcript.ready(from: role))
        let piece = try sealed(RecordType.dataMore.rawValue, [1])
        deliver(thirdMessage + ready + piece)
        try pump()
    }

    /// A malicious peer whose victim is ready.
    static func ready(
        _ role: ChannelRole = .dialer, _ offer: String = ChannelConfiguration.defaultProtocol,
        budget: ReassemblyBudget = .shared,
        change: (inout ChannelConfiguration) -> Void = { _ in }
    ) throws -> MaliciousNoisePeer {
        let peer = try MaliciousNoisePeer(role, offer, budget: budget, change: change)
        try peer.shakeHands()
        try peer.send(.ready, peer.transcript.ready(from: role))
        #expect(peer.isVictimReady)
        return peer
    }

    /// Seals a record and delivers it, in pieces of at most `piece` bytes.
    func send(_ type: RecordType, _ payload: [UInt8] = [], piece: Int = .max) throws {
        deliver(try sealed(type.rawValue, payload), piece: piece)
        try pump()
    }

    /// A sealed record. Without `type` its plaintext is `payload` alone.
    func sealed(_ type: UInt8?, _ payload: [UInt8]) throws -> [UInt8] {
        let head = type.map { [$0] } ?? []
        let length = engine.sealedLength(head.count + payload.count)
        return try [UInt8](capacity: length) { output throws(ChannelError) in
            try engine.seal(head.span, payload.span, into: &output)
        }
    }

    /// Hands bytes to the victim unchanged, in pieces of at most `piece` bytes.
    func deliver(_ bytes: [UInt8], piece: Int = .max) {
        var rest = bytes[...]
        while !rest.isEmpty, victim.outcome == nil {
            let part = Array(rest.prefix(min(piece, 65_536)))
            rest = rest.dropFirst(part.count)
            victim.feed(part, now: now)
        }
    }

    /// Takes what the victim sends, and reads the records in it.
    func pump() throws {
        collect()
        try readRecords()
    }

    /// Advances the time as a driver's timer would: stops at each timeout of the victim, and calls
    /// `handleTimeout`.
    func passTime(_ duration: Duration) throws {
        let target = now.after(duration)
        for _ in 0..<1_000 {
            let next = victim.nextTimeout(now: now)
            guard next <= target else {
                now = target
                return try pump()
            }
            now = max(next, now)
            victim.handleTimeout(now: now)
            try pump()
        }
        Issue.record("the victim has more than 1,000 timeouts in \(duration)")
    }

    /// Whether the victim reports that both sides are proven.
    var isVictimReady: Bool { victim.isReady }

    /// The code with which the victim has failed; `nil` if it has not.
    var victimFailure: ChannelError.Code? {
        switch victim.outcome {
        case .failed(let error): error.code
        case .complete, nil: nil
        }
    }

    private func collect() {
        for _ in 0..<10_000 {
            victim.sealPending(now: now)
            guard victim.outcome == nil else { return }
            // With a deadline in the past, a driver's timer would fire again and again.
            #expect(victim.nextTimeout(now: now) > now)
            if isBlocked { return victim.block(now: now) }
            let bytes = victim.transmit(now: now)
            guard !bytes.isEmpty else { return }
            incoming += bytes
        }
        Issue.record("the victim does not stop sending")
    }

    private func readRecords() throws {
        while true {
            var buffer = incoming
            var span = buffer.mutableSpan
            guard case .established = engine.phase, let record = try engine.open(&span),
                let plaintext = record.plaintext
            else { return }
            records.append(
                (
                    RecordType(rawValue: buffer[plaintext.lowerBound]),
                    Array(buffer[plaintext].dropFirst())
                ))
            if records.last?.type == .rekey { try engine.rekeyReceiving() }
            incoming.removeFirst(record.consumed)
        }
    }

    private func takeFramed() -> [UInt8]? {
        guard incoming.count >= 2 else { return nil }
        let length = Int(incoming[0]) << 8 | Int(incoming[1])
        guard incoming.count >= 2 + length else { return nil }
        defer { incoming.removeFirst(2 + length) }
        return Array(incoming[2..<2 + length])
    }

    /// The message, preceded by its length in two bytes.
    static func framed(_ message: [UInt8]) -> [UInt8] {
        [UInt8(message.count >> 8), UInt8(message.count & 0xFF)] + message
    }
}
