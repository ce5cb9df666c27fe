internal import BLESecNoise

extension NoiseVector {
    /// Runs both roles over the vector, and compares every message.
    package func run() -> VectorOutcome {
        let name: ProtocolName
        do throws(ProtocolNameError) {
            name = try ProtocolName(protocolName)
        } catch {
            return .skipped("\(error)")
        }
        do throws(VectorFailure) {
            guard name.description == protocolName else {
                throw VectorFailure("this implementation writes the protocol's name as \(name)")
            }
            try VectorWalk(vector: self, name: name).walk { step throws(VectorFailure) in
                switch step {
                case .message(let index, let message):
                    try VectorFailure.compare(message, messages[index].ciphertext, .message(index))
                case .handshakeHash(let hash):
                    guard let handshakeHash else { return }
                    try VectorFailure.compare(hash, handshakeHash, .handshakeHash)
                }
            }
            return .passed
        } catch {
            return .failed(error)
        }
    }
}

/// A run of a vector: both roles with the vector's keys, message by message.
struct VectorWalk {
    /// One result of a run.
    enum Step {
        /// The message at this index, as its sender has written it.
        case message(Int, [UInt8])
        /// `h` after the handshake.
        case handshakeHash([UInt8])
    }

    let vector: NoiseVector
    let name: ProtocolName

    /// Makes every message from the vector's keys and payloads. The sender writes a message, which
    /// is passed to `visit`. Then the other side reads the message, and must get the same payload.
    func walk(visit: (Step) throws(VectorFailure) -> Void) throws(VectorFailure) {
        var index = 0
        var handshake = try begin(&index, visit)
        while !handshake.isFinished {
            guard index < vector.messages.count else {
                throw VectorFailure(
                    .message(index), "missing: the handshake of \(name.pattern) is not finished")
            }
            try exchange(
                index, visit, write: { try handshake.write($0) }, read: { try handshake.read($0) })
            index += 1
        }
        try visit(.handshakeHash(handshake.initiator.handshakeHash))
        try visit(.handshakeHash(handshake.responder.handshakeHash))
        var transport: VectorTransport
        do throws(NoiseError) {
            transport = try handshake.split()
        } catch {
            throw VectorFailure("\(error)")
        }
        let pattern = name.pattern
        // The sender of `messages[0]`. The message of an attempt is always the initiator's.
        let firstSender: Role =
            vector.attemptedPattern == nil ? pattern.messages[0].sender : .initiator
        while index < vector.messages.count {
            let sender =
                pattern.isOneWay || index.isMultiple(of: 2) ? firstSender : firstSender.peer
            try exchange(
                index, visit, write: { try transport.encrypt($0, from: sender) },
                read: { try transport.decrypt($0, from: sender) })
            index += 1
        }
    }

    /// Both sides before the first message of the protocol. If the vector has an attempt before a
    /// fallback, the attempt's first message is made first, and `index` becomes 1, the index of the
    /// fallback's first message.
    private func begin(
        _ index: inout Int, _ visit: (Step) throws(VectorFailure) -> Void
    ) throws(VectorFailure) -> VectorHandshake {
        guard let attemptedPattern = vector.attemptedPattern else {
            return try VectorHandshake(vector, name)
        }
        guard let pattern = HandshakePattern.named(attemptedPattern),
            let firstMessage = vector.messages.first
        else { throw VectorFailure("`pattern` is not a pattern that a fallback can follow") }
        var attempt = try VectorHandshake(
            vector,
            ProtocolName(pattern: pattern, curve: name.curve, aead: name.aead, hash: name.hash))
        let message = try VectorFailure.wrapping(.message(0)) {
            try attempt.write(firstMessage.payload)
        }
        try visit(.message(0, message))
        index = 1
        if (try? attempt.read(message)) != nil {
            throw VectorFailure(.message(0), "the responder can read it, and so does not fall back")
        }
        return try VectorHandshake(vector, name, after: attempt, message)
    }

    private func exchange(
        _ index: Int, _ visit: (Step) throws(VectorFailure) -> Void,
        write: ([UInt8]) throws -> [UInt8], read: ([UInt8]) throws -> [UInt8]
    ) throws(VectorFailure) {
        let payload = vector.messages[index].payload
        let message = try VectorFailure.wrapping(.message(index), "cannot be written: ") {
            try write(payload)
        }
        try visit(.message(index, message))
        let opened = try VectorFailure.wrapping(.message(index), "cannot be read: ") {
            try read(message)
        }
        guard opened == payload else {
            throw VectorFailure(.message(index), "the payload that was read is not the written one")
        }
    }
}
