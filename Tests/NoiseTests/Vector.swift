import FoundationEssentials
import Noise
import Primitives

/// A test vector in the shape that Noise implementations share.
struct Vector: Decodable {
    struct Message: Decodable {
        var payload: String
        var ciphertext: String
    }

    var protocol_name: String
    var init_prologue: String
    var init_static: String?
    var init_ephemeral: String?
    var init_remote_static: String?
    var init_psks: [String]?
    var resp_prologue: String
    var resp_static: String?
    var resp_ephemeral: String?
    var resp_remote_static: String?
    var resp_psks: [String]?
    var handshake_hash: String?
    var messages: [Message]

    struct File: Decodable {
        var vectors: [Vector]
    }

    /// The vectors of a file in `TestVectors/`.
    static func load(_ name: String) throws -> [Vector] {
        try JSONDecoder().decode(File.self, from: Data(contentsOf: url(name))).vectors
    }

    /// A file in `TestVectors/`.
    static func url(_ name: String) -> URL {
        URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "TestVectors").appending(path: name)
    }
}

/// Where a vector differs from this implementation.
struct VectorMismatch: Error, CustomStringConvertible {
    var description: String
}

extension Vector {
    /// Runs both roles over the vector.
    func replay() throws {
        let name = try ProtocolName(protocol_name)
        guard name.description == protocol_name else {
            throw VectorMismatch(description: "\(protocol_name) prints as \(name)")
        }
        var initiator = try handshake(name, .initiator)
        var responder = try handshake(name, .responder)
        var index = 0
        while !initiator.isFinished {
            let expected = messages[index]
            let isInitiators = initiator.isMyTurn
            let message =
                isInitiators
                ? try initiator.write(hex(expected.payload))
                : try responder.write(hex(expected.payload))
            try expect(message, expected.ciphertext, "message \(index)")
            let payload =
                isInitiators ? try responder.read(message) : try initiator.read(message)
            try expect(payload, expected.payload, "payload \(index)")
            index += 1
        }
        if let handshake_hash {
            try expect(initiator.handshakeHash, handshake_hash, "hash")
            try expect(responder.handshakeHash, handshake_hash, "hash")
        }
        let writesFirst = name.pattern.messages[0].sender
        var left = try initiator.split()
        var right = try responder.split()
        for (step, expected) in messages.enumerated().dropFirst(index) {
            let isFirstWriters = step.isMultiple(of: 2) || name.pattern.isOneWay
            let sender = isFirstWriters ? writesFirst : writesFirst.peer
            let payload = hex(expected.payload)
            let message =
                sender == .initiator ? try left.encrypt(payload) : try right.encrypt(payload)
            try expect(message, expected.ciphertext, "transport message \(step)")
            let opened =
                sender == .initiator ? try right.decrypt(message) : try left.decrypt(message)
            try expect(opened, expected.payload, "transport payload \(step)")
        }
    }

    /// The initiator's session after the vector's handshake.
    func initiatorSession() throws -> Session {
        let name = try ProtocolName(protocol_name)
        var initiator = try handshake(name, .initiator)
        var responder = try handshake(name, .responder)
        for message in messages where !initiator.isFinished {
            if initiator.isMyTurn {
                _ = try responder.read(initiator.write(hex(message.payload)))
            } else {
                _ = try initiator.read(responder.write(hex(message.payload)))
            }
        }
        return Session(try initiator.split())
    }

    /// A holder of what cannot be copied.
    final class Session {
        var value: TransportState
        init(_ value: consuming TransportState) { self.value = value }
    }

    private func expect(_ bytes: [UInt8], _ expected: String, _ what: String) throws {
        guard bytes != hex(expected) else { return }
        throw VectorMismatch(description: "\(protocol_name): \(what) differs")
    }

    private func handshake(_ name: ProtocolName, _ role: Role) throws -> HandshakeState {
        let isInitiator = role == .initiator
        let ephemeral = try pair(isInitiator ? init_ephemeral : resp_ephemeral, name)
        let remoteEphemeral = try pair(isInitiator ? resp_ephemeral : init_ephemeral, name)
        let pattern = name.pattern
        var carried: CarriedEphemeral?
        if pattern.preMessage(of: role).contains(.e), let ephemeral { carried = .local(ephemeral) }
        if pattern.preMessage(of: role.peer).contains(.e), let remoteEphemeral {
            carried = .remote(remoteEphemeral.publicKey)
        }
        let psks = try (isInitiator ? init_psks : resp_psks).map { psks in
            try psks.map { try PreSharedKey(SecretBytes(copying: hex($0).span)) }
        }
        var state = try HandshakeState(
            protocolName: name, role: role,
            prologue: hex(isInitiator ? init_prologue : resp_prologue).span,
            localStatic: pair(isInitiator ? init_static : resp_static, name),
            remoteStatic: (isInitiator ? init_remote_static : resp_remote_static).map(hex),
            psks: psks ?? [], carried: carried)
        if let ephemeral, !pattern.preMessage(of: role).contains(.e) {
            state.useFixedEphemeral(ephemeral)
        }
        return state
    }

    private func pair(_ privateKey: String?, _ name: ProtocolName) throws -> DHKeyPair? {
        guard let privateKey else { return nil }
        return try DHKeyPair(
            curve: name.curve, privateKey: SecretBytes(copying: hex(privateKey).span))
    }
}

/// The bytes of a text of hexadecimal digits.
func hex(_ text: String) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(text.utf8.count / 2)
    var high: UInt8?
    for character in text.utf8 {
        let digit: UInt8
        switch character {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): digit = character - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): digit = character - UInt8(ascii: "a") + 10
        default: preconditionFailure("not a hexadecimal digit")
        }
        if let first = high {
            bytes.append(first << 4 | digit)
            high = nil
        } else {
            high = digit
        }
    }
    precondition(high == nil, "an odd number of digits")
    return bytes
}
