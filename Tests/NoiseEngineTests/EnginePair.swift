import BLESecChannelCore
import BLESecNoise
import BLESecNoiseEngine
import BLESecPrimitives

/// Two engines whose messages are handed over directly, without a link.
struct EnginePair: ~Copyable {
    var dialer: NoiseEngine
    var acceptor: NoiseEngine
    /// The dialer's static public key; empty if the pair was made of two given engines.
    private(set) var dialerKey: [UInt8] = []
    /// The acceptor's static public key; empty if the pair was made of two given engines.
    private(set) var acceptorKey: [UInt8] = []

    /// Both engines of a protocol. If the protocol proves a side's key, the other side pins it.
    init(_ offer: String, prologue: [UInt8] = []) throws {
        let name = try ProtocolName(offer)
        let keys = try (
            dialer: IdentityKey.generate(curve: name.curve, hash: name.hash),
            acceptor: IdentityKey.generate(curve: name.curve, hash: name.hash)
        )
        let psks = try (0..<name.pattern.pskCount).map { index in
            try PreSharedKey(SecretBytes(copying: [UInt8](repeating: UInt8(index), count: 32).span))
        }
        func engine(_ role: ChannelRole) throws -> NoiseEngine {
            let ownKey = role == .dialer ? keys.dialer : keys.acceptor
            let peerKey = role == .dialer ? keys.acceptor : keys.dialer
            let peerRole: Role = role == .dialer ? .responder : .initiator
            let pinned = TrustPolicy.pinned([
                try PeerKey(publicKey: peerKey.publicKey, curve: name.curve)
            ])
            let plan = try NoisePlan(
                offer, role: role, identity: ownKey,
                trust: name.pattern.authenticates(peerRole) ? pinned : .anyone, presharedKeys: psks,
                allowsExposedIdentity: true)
            return try NoiseEngine(plan, prologue: prologue)
        }
        self.init(dialer: try engine(.dialer), acceptor: try engine(.acceptor))
        dialerKey = keys.dialer.publicKey
        acceptorKey = keys.acceptor.publicKey
    }

    init(dialer: consuming NoiseEngine, acceptor: consuming NoiseEngine) {
        self.dialer = dialer
        self.acceptor = acceptor
    }

    /// Carries all handshake messages, and admits both peers.
    mutating func shakeHands() throws {
        // More rounds than any handshake needs. A round after the handshake's end does nothing.
        for _ in 0..<10 {
            try Self.passMessage(from: &dialer, to: &acceptor)
            try Self.passMessage(from: &acceptor, to: &dialer)
        }
    }

    /// Hands the next handshake message of `writer` to `reader`, if there is one. `writer` admits
    /// its peer as soon as it has to decide.
    private static func passMessage(
        from writer: inout NoiseEngine, to reader: inout NoiseEngine
    ) throws {
        if case .awaitingTrustDecision = writer.phase { try writer.admit() }
        if let message = try writer.nextHandshake() { try reader.receiveHandshake(message.span) }
        if case .awaitingTrustDecision = writer.phase { try writer.admit() }
    }

    /// Hands the dialer's next handshake message to the acceptor.
    mutating func passDialerMessage() throws {
        if let message = try dialer.nextHandshake() { try acceptor.receiveHandshake(message.span) }
    }

    /// Hands the acceptor's next handshake message to the dialer.
    mutating func passAcceptorMessage() throws {
        if let message = try acceptor.nextHandshake() { try dialer.receiveHandshake(message.span) }
    }
}

extension NoiseEngine {
    /// Seals a record, and returns it as an array. In direct mode, `type` is nil.
    mutating func sealed(_ type: UInt8?, _ payload: [UInt8]) throws -> [UInt8] {
        let head = type.map { [$0] } ?? []
        let length = sealedLength(head.count + payload.count)
        return try [UInt8](capacity: length) { output throws(ChannelError) in
            try seal(head.span, payload.span, into: &output)
        }
    }

    /// Opens a record, and returns its plaintext, in which the type is the first byte. Nil if the
    /// record is incomplete.
    mutating func opened(_ record: [UInt8]) throws -> [UInt8]? {
        var record = record
        var span = record.mutableSpan
        guard let plaintext = try open(&span)?.plaintext else { return nil }
        return Array(record[plaintext])
    }
}
