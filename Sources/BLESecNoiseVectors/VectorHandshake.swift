package import BLESecNoise

/// Both sides of a vector's handshake.
package struct VectorHandshake: ~Copyable {
    /// The side of `init_…`.
    package var initiator: HandshakeState
    /// The side of `resp_…`.
    package var responder: HandshakeState

    /// Whether every message is done.
    package var isFinished: Bool { initiator.isFinished }

    /// Writes the next message, with `payload`.
    package mutating func write(_ payload: [UInt8]) throws(NoiseError) -> [UInt8] {
        let length = try initiator.messageLength(forPayload: payload.count)
        let isInitiators = initiator.isMyTurn
        return try [UInt8](capacity: length) { output throws(NoiseError) in
            if isInitiators {
                try initiator.writeMessage(payload: payload.span, into: &output)
            } else {
                try responder.writeMessage(payload: payload.span, into: &output)
            }
        }
    }

    /// Has the other side read the message that was written last; the payload.
    package mutating func read(_ message: [UInt8]) throws(NoiseError) -> [UInt8] {
        // Whoever wrote has its turn behind it.
        let isInitiators = initiator.messagesDone > responder.messagesDone
        return try [UInt8](capacity: message.count) { output throws(NoiseError) in
            if isInitiators {
                try responder.readMessage(message.span, payload: &output)
            } else {
                try initiator.readMessage(message.span, payload: &output)
            }
        }
    }

    /// What follows the last message.
    package consuming func split() throws(NoiseError) -> VectorTransport {
        let responder = try responder.split()
        let initiator = try initiator.split()
        return VectorTransport(initiator: initiator, responder: responder)
    }
}

/// Both sides behind a vector's handshake.
package struct VectorTransport: ~Copyable {
    /// The side of `init_…`.
    package var initiator: TransportState
    /// The side of `resp_…`.
    package var responder: TransportState

    /// The transport message of `sender` with `payload`.
    mutating func encrypt(
        _ payload: [UInt8], from sender: Role
    ) throws(NoiseError) -> [UInt8] {
        try [UInt8](capacity: payload.count + TransportState.overhead) {
            output throws(NoiseError) in
            switch sender {
            case .initiator: try initiator.encrypt(payload.span, into: &output)
            case .responder: try responder.encrypt(payload.span, into: &output)
            }
        }
    }

    /// What the other side than `sender` makes of its message.
    mutating func decrypt(
        _ message: [UInt8], from sender: Role
    ) throws(NoiseError) -> [UInt8] {
        try [UInt8](capacity: message.count) { output throws(NoiseError) in
            switch sender {
            case .initiator: try responder.decrypt(message.span, into: &output)
            case .responder: try initiator.decrypt(message.span, into: &output)
            }
        }
    }
}
