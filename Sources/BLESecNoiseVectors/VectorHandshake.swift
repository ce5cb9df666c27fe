package import BLESecNoise

/// Both sides of a vector's handshake.
package struct VectorHandshake: ~Copyable {
    /// The initiator's side, made from the vector's members `init_…`.
    package var initiator: HandshakeState
    /// The responder's side, made from the vector's members `resp_…`.
    package var responder: HandshakeState
}

extension VectorHandshake {
    /// Both sides of the protocol `name` with the keys of `vector`, before the first message.
    ///
    /// - Throws: `VectorFailure` for a missing key or a key of wrong length.
    package init(_ vector: NoiseVector, _ name: ProtocolName) throws(VectorFailure) {
        let alice = try VectorSide(vector, .initiator, name)
        let bob = try VectorSide(vector, .responder, name)
        self.init(
            initiator: try alice.handshake(with: bob), responder: try bob.handshake(with: alice))
    }

    /// Both sides of the fallback `name`, after the initiator of `attempt` has written its first
    /// message and the responder could not read that message.
    init(
        _ vector: NoiseVector, _ name: ProtocolName, after attempt: consuming VectorHandshake,
        _ firstMessage: [UInt8]
    ) throws(VectorFailure) {
        let alice = try VectorSide(vector, .initiator, name)
        let bob = try VectorSide(vector, .responder, name)
        let (alicePSKs, bobPSKs) = (try alice.psks(), try bob.psks())
        do throws(NoiseError) {
            let initiator = try HandshakeState(
                fallback: name, after: attempt.initiator, prologue: alice.party.prologue.span,
                localStatic: alice.localStatic, remoteStatic: alice.remoteStatic, psks: alicePSKs)
            var responder = try HandshakeState(
                fallback: name, answering: firstMessage.span, prologue: bob.party.prologue.span,
                localStatic: bob.localStatic, remoteStatic: bob.remoteStatic, psks: bobPSKs)
            if let ephemeral = bob.ephemeral { responder.useFixedEphemeral(ephemeral) }
            self.init(initiator: initiator, responder: responder)
        } catch {
            throw VectorFailure("\(error)")
        }
    }

    package var isFinished: Bool { initiator.isFinished }

    /// Writes the next message with `payload`.
    package mutating func write(_ payload: [UInt8]) throws(NoiseError) -> [UInt8] {
        let length = try initiator.messageLength(forPayload: payload.count)
        let initiatorWrites = initiator.isMyTurn
        return try [UInt8](capacity: length) { output throws(NoiseError) in
            if initiatorWrites {
                try initiator.writeMessage(payload: payload.span, into: &output)
            } else {
                try responder.writeMessage(payload: payload.span, into: &output)
            }
        }
    }

    /// Lets the side that did not write `message` read it; returns its payload.
    package mutating func read(_ message: [UInt8]) throws(NoiseError) -> [UInt8] {
        // The side that has written is one message ahead.
        let initiatorWrote = initiator.messagesDone > responder.messagesDone
        return try [UInt8](capacity: message.count) { output throws(NoiseError) in
            if initiatorWrote {
                try responder.readMessage(message.span, payload: &output)
            } else {
                try initiator.readMessage(message.span, payload: &output)
            }
        }
    }

    /// Returns the transport states after the last message.
    package consuming func split() throws(NoiseError) -> VectorTransport {
        let responder = try responder.split()
        let initiator = try initiator.split()
        return VectorTransport(initiator: initiator, responder: responder)
    }
}

/// Both sides of a vector's transport.
package struct VectorTransport: ~Copyable {
    package var initiator: TransportState
    package var responder: TransportState

    /// Encrypts `payload` as a transport message of `sender`.
    mutating func encrypt(_ payload: [UInt8], from sender: Role) throws(NoiseError) -> [UInt8] {
        try [UInt8](capacity: payload.count + TransportState.overhead) {
            output throws(NoiseError) in
            switch sender {
            case .initiator: try initiator.encrypt(payload.span, into: &output)
            case .responder: try responder.encrypt(payload.span, into: &output)
            }
        }
    }

    /// Decrypts a transport message of `sender` on the other side.
    mutating func decrypt(_ message: [UInt8], from sender: Role) throws(NoiseError) -> [UInt8] {
        try [UInt8](capacity: message.count) { output throws(NoiseError) in
            switch sender {
            case .initiator: try responder.decrypt(message.span, into: &output)
            case .responder: try initiator.decrypt(message.span, into: &output)
            }
        }
    }
}
