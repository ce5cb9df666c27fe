import BLESecChannelCore
import BLESecNoise
import BLESecNoiseEngine
import BLESecPrimitives

/// Two engines that are connected directly.
struct EnginePair: ~Copyable {
    var dialer: NoiseEngine
    var acceptor: NoiseEngine

    /// Engines for one offer. A side whose peer proves a key pins that key.
    init(_ offer: String, prologue: [UInt8] = []) throws {
        let name = try ProtocolName(offer)
        let keys = try (
            IdentityKey.generate(curve: name.curve, hash: name.hash),
            IdentityKey.generate(curve: name.curve, hash: name.hash)
        )
        let psks = try (0..<name.pattern.pskCount).map { index in
            try PreSharedKey(SecretBytes(copying: [UInt8](repeating: UInt8(index), count: 32).span))
        }
        func engine(_ role: ChannelRole) throws -> NoiseEngine {
            let own = role == .dialer ? keys.0 : keys.1
            let other = role == .dialer ? keys.1 : keys.0
            let peer: Role = role == .dialer ? .responder : .initiator
            let pinned = TrustPolicy.pinned([
                try PeerKey(publicKey: other.publicKey, curve: name.curve)
            ])
            let plan = try NoisePlan(
                offer, role: role, identity: own,
                trust: name.pattern.authenticates(peer) ? pinned : .anyone, presharedKeys: psks,
                allowsExposedIdentity: true)
            return try NoiseEngine(plan, prologue: prologue)
        }
        self.init(dialer: try engine(.dialer), acceptor: try engine(.acceptor))
    }

    init(dialer: consuming NoiseEngine, acceptor: consuming NoiseEngine) {
        self.dialer = dialer
        self.acceptor = acceptor
    }

    /// Carries messages until both engines are established, and admits both peers.
    mutating func shakeHands() throws {
        for _ in 0..<10 {
            try Self.turn(&dialer, &acceptor)
            try Self.turn(&acceptor, &dialer)
        }
    }

    private static func turn(_ writer: inout NoiseEngine, _ reader: inout NoiseEngine) throws {
        if case .awaitingTrustDecision = writer.phase { try writer.admit() }
        if let message = try writer.nextHandshake() { try reader.receiveHandshake(message.span) }
        if case .awaitingTrustDecision = writer.phase { try writer.admit() }
    }

    /// Hands the dialer's next message to the acceptor.
    mutating func dialerSpeaks() throws {
        if let message = try dialer.nextHandshake() { try acceptor.receiveHandshake(message.span) }
    }

    /// Hands the acceptor's next message to the dialer.
    mutating func acceptorSpeaks() throws {
        if let message = try acceptor.nextHandshake() { try dialer.receiveHandshake(message.span) }
    }
}

extension NoiseEngine {
    /// Seals a record, and returns it as an array.
    mutating func sealed(_ type: UInt8?, _ payload: [UInt8]) throws -> [UInt8] {
        let length = sealedLength(payload.count + (type == nil ? 0 : 1))
        return try [UInt8](capacity: length) { output throws(ChannelError) in
            try seal(type, payload.span, into: &output)
        }
    }

    /// Opens a record, and returns its plaintext.
    mutating func opened(_ record: [UInt8]) throws -> [UInt8]? {
        var record = record
        var span = record.mutableSpan
        guard let plaintext = try open(&span)?.plaintext else { return nil }
        return Array(record[plaintext])
    }
}
