@testable internal import BLESec
internal import BLESecPrimitives

extension FuzzTarget {
    /// An engine alone, in either role, with a correct caller and an arbitrary peer.
    static let engine = FuzzTarget(name: "engine") { input in
        var script = Script(input)
        let setting = script.choice(
            Setting.all.filter { $0.dialerProtocols == $0.acceptorProtocols })
        let role: ChannelRole = script.flag() ? .acceptor : .dialer
        var scene = EngineScene(setting, victim: role)
        if script.flag() {
            for _ in 0..<4 { scene.exchangeHandshake() }
            let mustSucceed = !setting.dialerExpectsOldKey
            precondition(
                scene.isEstablished == mustSucceed,
                "the handshake of two honest engines did not end as the setting predicts")
        }
        while !script.isOver { scene.play(&script) }
    } seeds: {
        // Four courses that begin before the handshake, and four that begin after it.
        let courses: [[UInt8]] = [
            [0, 0, 0, 0, 0, 0], [0, 1, 0, 3, 0, 0], [0, 1, 1, 5, 0, 0], [2, 4, 0x16, 3, 3, 0],
            [3, 5, 1, 2, 3, 4, 5, 3, 2, 1, 2, 6, 3, 1, 1], [3, 5, 1, 2, 3, 4, 5, 4, 0, 9, 0],
            [5, 9, 7, 200, 3, 3, 1, 2, 3, 8], [2, 4, 0x17, 3, 3, 0, 0],
        ]
        var seeds: [[UInt8]] = []
        let count = Setting.all.count { $0.dialerProtocols == $0.acceptorProtocols }
        for index in 0..<UInt8(count) {
            // The role, and whether a handshake comes first.
            let beginnings: [[UInt8]] = [[0, 0], [1, 0], [0, 1], [1, 1]]
            for (number, beginning) in beginnings.enumerated() {
                for course in courses[(number / 2 * 4)...].prefix(4) {
                    seeds.append([index] + beginning + course)
                }
            }
        }
        return seeds
    }
}

/// Two engines. The fuzzer can change the bytes that the peer's engine sends to the victim's
/// engine, and add others.
private struct EngineScene: ~Copyable {
    var victim: Engine
    var peer: Engine
    let isNegotiated: Bool
    /// The bytes that the victim has not read yet.
    var inbound: [UInt8] = []
    /// The bytes that the peer has not read yet.
    var peerInbound: [UInt8] = []

    init(_ setting: Setting, victim role: ChannelRole) {
        isNegotiated = setting.mode == .negotiated
        victim = must {
            try OfferPlans(setting.configuration(role), for: role).makeEngine(
                setting.dialerProtocols[0], prologue: [])
        }
        peer = must {
            try OfferPlans(setting.configuration(role.peer), for: role.peer).makeEngine(
                setting.dialerProtocols[0], prologue: [])
        }
    }

    mutating func play(_ script: inout Script) {
        switch script.number(below: 10) {
        case 0: exchangeHandshake()
        case 1: exchangeHandshake { script.damage($0) }
        case 2:
            inbound += script.piece()
            Self.hand(&inbound, to: &victim)
            open()
        case 3:
            inbound += Self.sealed(&peer, script.byte(), script.piece(), isNegotiated)
            open()
        case 4:
            inbound += script.damage(
                Self.sealed(&peer, script.byte(), script.piece(), isNegotiated))
            open()
        case 5: try? peer.rekeySending()
        case 6:
            // A TLS engine changes its key when it reads a key update, and not by this call.
            if !victim.announcesRekey { try? victim.rekeyReceiving() }
        case 7:
            let record = Self.sealed(
                &victim, 0, Array(repeating: 3, count: Int(script.byte()) << 8), isNegotiated)
            var copy = record
            _ = try? Self.open(&peer, &copy)
        case 8: _ = try? victim.export(label: "l", context: [], count: 1 + Int(script.byte()))
        default: if case .awaitingTrustDecision = victim.phase { _ = victim.refuse() }
        }
    }

    var isEstablished: Bool { if case .established = victim.phase { true } else { false } }

    /// Lets the victim and then the peer send their handshake messages; `change` is applied to the
    /// peer's messages before the victim receives them.
    mutating func exchangeHandshake(_ change: ([UInt8]) -> [UInt8] = { $0 }) {
        Self.admit(&victim)
        Self.admit(&peer)
        while let message = (try? victim.nextHandshake()) ?? nil {
            peerInbound += message
            Self.hand(&peerInbound, to: &peer)
        }
        Self.admit(&peer)
        Self.hand(&peerInbound, to: &peer)
        while let message = (try? peer.nextHandshake()) ?? nil {
            inbound += change(message)
            Self.hand(&inbound, to: &victim)
        }
        Self.admit(&victim)
        // While the victim waited for a trust decision, it left bytes unread.
        Self.hand(&inbound, to: &victim)
    }

    private static func admit(_ engine: inout Engine) {
        if case .awaitingTrustDecision = engine.phase { try? engine.admit() }
    }

    private static func hand(_ bytes: inout [UInt8], to engine: inout Engine) {
        guard !bytes.isEmpty, case .handshaking = engine.phase,
            let used = try? engine.receiveHandshake(bytes.span)
        else { return }
        precondition(used <= bytes.count)
        bytes.removeFirst(used)
    }

    private static func sealed(
        _ engine: inout Engine, _ type: UInt8, _ payload: [UInt8], _ isNegotiated: Bool
    ) -> [UInt8] {
        guard case .established = engine.phase else { return [] }
        let head = isNegotiated ? [type] : []
        let length = engine.sealedLength(head.count + payload.count)
        let record = try? [UInt8](capacity: length) { output throws(ChannelError) in
            try engine.seal(head.span, payload.span, into: &output)
        }
        return record ?? []
    }

    private static func open(
        _ engine: inout Engine, _ bytes: inout [UInt8]
    ) throws(ChannelError) -> OpenedRecord? {
        guard case .established = engine.phase else { return nil }
        var span = bytes.mutableSpan
        return try engine.open(&span)
    }

    private mutating func open() {
        guard isEstablished else { return }
        while let record = (try? Self.open(&victim, &inbound)) ?? nil {
            precondition(record.consumed > 0 && record.consumed <= inbound.count)
            if let plaintext = record.plaintext {
                precondition(plaintext.upperBound <= record.consumed)
            }
            inbound.removeFirst(record.consumed)
        }
        if !isEstablished {
            precondition(victim.phase == .failed, "the engine left its phase, and did not fail")
        }
    }
}
