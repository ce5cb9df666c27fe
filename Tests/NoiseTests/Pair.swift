import BLESecNoise
import BLESecPrimitives

/// The keys of two parties, enough for every pattern.
struct Parties {
    let initiator: DHKeyPair
    let responder: DHKeyPair
    /// A key pair of neither party.
    let unrelated: DHKeyPair
    let psks: [PreSharedKey]

    init(_ curve: Curve) throws {
        var generator = SystemRandomNumberGenerator()
        try self.init(curve, &generator)
    }

    /// Parties whose keys come from `generator`.
    init(_ curve: Curve, _ generator: inout some RandomNumberGenerator) throws {
        initiator = try curve.keyPair(&generator)
        responder = try curve.keyPair(&generator)
        unrelated = try curve.keyPair(&generator)
        // A pattern of four messages takes at most five psks. No protocol uses the sixth psk, so it
        // can serve as a wrong psk.
        var psks: [PreSharedKey] = []
        for _ in 0..<6 {
            let key = generator.keyBytes(PreSharedKey.length)
            psks.append(try PreSharedKey(SecretBytes(copying: key.span)))
        }
        self.psks = psks
    }

    func staticKeyPair(of role: Role) -> DHKeyPair { role == .initiator ? initiator : responder }

    /// The state of `role` in a new handshake, with the remote static key and the psks that the
    /// pattern needs. A local static key is passed even if the pattern uses none.
    func handshake(
        _ name: ProtocolName, _ role: Role, prologue: [UInt8] = [], psks: [PreSharedKey]? = nil,
        carried: CarriedEphemeral? = nil
    ) throws -> HandshakeState {
        try HandshakeState(
            protocolName: name, role: role, prologue: prologue.span,
            localStatic: staticKeyPair(of: role),
            remoteStatic: name.pattern.requiresRemoteStatic(role)
                ? staticKeyPair(of: role.peer).publicKey : nil,
            psks: psks ?? Array(self.psks.prefix(name.pattern.pskCount)), carried: carried)
    }
}

extension Curve {
    /// A key pair that comes from `generator`.
    func keyPair(_ generator: inout some RandomNumberGenerator) throws -> DHKeyPair {
        let key = generator.keyBytes(keyLength)
        return try DHKeyPair(curve: self, privateKey: SecretBytes(copying: key.span))
    }
}

extension RandomNumberGenerator {
    fileprivate mutating func keyBytes(_ count: Int) -> [UInt8] {
        (0..<count).map { _ in UInt8.random(in: .min ... .max, using: &self) }
    }
}

extension HandshakeState {
    /// Writes the next message, and returns it as an array.
    mutating func write(_ payload: [UInt8] = []) throws -> [UInt8] {
        var message: [UInt8] = []
        message.reserveCapacity(HandshakeState.maximumMessageLength)
        try message.append(addingCapacity: HandshakeState.maximumMessageLength) { output in
            try writeMessage(payload: payload.span, into: &output)
        }
        return message
    }

    /// Reads `message`, and returns its payload.
    mutating func read(_ message: [UInt8]) throws -> [UInt8] {
        try [UInt8](capacity: message.count) { output in
            try readMessage(message.span, payload: &output)
        }
    }
}

extension TransportState {
    mutating func encrypt(_ plaintext: [UInt8]) throws -> [UInt8] {
        try [UInt8](capacity: plaintext.count + 16) { output in
            try encrypt(plaintext.span, into: &output)
        }
    }

    mutating func decrypt(_ message: [UInt8]) throws -> [UInt8] {
        try [UInt8](capacity: message.count) { output in
            try decrypt(message.span, into: &output)
        }
    }
}

/// Both ends of one handshake.
struct Pair: ~Copyable {
    var initiator: HandshakeState
    var responder: HandshakeState

    init(_ name: ProtocolName, _ parties: Parties, prologue: [UInt8] = []) throws {
        let initiator = try parties.handshake(name, .initiator, prologue: prologue)
        let responder = try parties.handshake(name, .responder, prologue: prologue)
        self.initiator = initiator
        self.responder = responder
    }

    /// Carries the next message to the other side, and returns the payload that arrived.
    mutating func step(_ payload: [UInt8] = []) throws -> [UInt8] {
        if initiator.isMyTurn { return try responder.read(initiator.write(payload)) }
        return try initiator.read(responder.write(payload))
    }

    /// The peer's static key, if the side of `role` knows it.
    func remoteStatic(knownTo role: Role) -> [UInt8]? {
        role == .initiator ? initiator.remoteStatic : responder.remoteStatic
    }

    /// Runs the remaining messages, with a payload in each.
    mutating func run() throws { while !initiator.isFinished { _ = try step([1, 2, 3]) } }

    /// Ends the handshake, and returns the transport states.
    consuming func split() throws -> TransportPair {
        let responder = try responder.split()
        let initiator = try initiator.split()
        return TransportPair(initiator: initiator, responder: responder)
    }
}

/// Both ends of one session.
struct TransportPair: ~Copyable {
    var initiator: TransportState
    var responder: TransportState
}

extension TransportPair {
    /// A session of the protocol `name` between parties with new keys.
    init(_ name: String) throws {
        let name = try ProtocolName(name)
        var pair = try Pair(name, Parties(name.curve))
        try pair.run()
        self = try pair.split()
    }
}
