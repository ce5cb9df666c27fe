internal import BLESecPrimitives

extension HandshakeState {
    /// The longest message in bytes, in the handshake and in transport (Noise §3).
    public static var maximumMessageLength: Int { 65_535 }

    /// WriteMessage(payload): appends the next message to `output`.
    ///
    /// - Throws: `NoiseError`. The handshake has then failed, and `output` is unchanged.
    public mutating func writeMessage(
        payload: Span<UInt8> = Span(), into output: inout OutputSpan<UInt8>
    ) throws(NoiseError) {
        let start = output.count
        do throws(NoiseError) {
            try checkTurn(role)
            let length = try messageLength(forPayload: payload.count)
            guard length <= Self.maximumMessageLength else { throw .messageTooLong(length) }
            guard length <= output.freeCapacity else { throw .outputTooSmall(needed: length) }
            for token in pattern.messages[messagesDone].tokens {
                try write(token, into: &output)
            }
            try symmetricState.encryptAndHash(payload, into: &output)
        } catch {
            output.removeLast(output.count - start)
            fail()
            throw error
        }
        messagesDone += 1
    }

    /// ReadMessage(message): reads the peer's next message and appends its payload to `payload`.
    ///
    /// `payload` needs room for the payload and its tag: `message.count` bytes are always enough.
    /// - Throws: `NoiseError`. The handshake has then failed, and `payload` is unchanged.
    public mutating func readMessage(
        _ message: Span<UInt8>, payload: inout OutputSpan<UInt8>
    ) throws(NoiseError) {
        do throws(NoiseError) {
            try checkTurn(role.peer)
            guard message.count <= Self.maximumMessageLength else {
                throw .messageTooLong(message.count)
            }
            guard try message.count >= messageLength(forPayload: 0) else {
                throw .messageTooShort(message.count)
            }
            var position = 0
            for token in pattern.messages[messagesDone].tokens {
                try read(token, from: message, at: &position)
            }
            let rest = message.extracting(droppingFirst: position)
            guard rest.count <= payload.freeCapacity else {
                throw .outputTooSmall(needed: rest.count)
            }
            try symmetricState.decryptAndHash(rest, into: &payload)
        } catch {
            fail()
            throw error
        }
        messagesDone += 1
    }

    private func checkTurn(_ sender: Role) throws(NoiseError) {
        guard !isFailed else { throw .failed }
        guard !isFinished else { throw .handshakeFinished }
        guard pattern.messages[messagesDone].sender == sender else { throw .outOfTurn }
    }

    private mutating func write(
        _ token: Token, into output: inout OutputSpan<UInt8>
    ) throws(NoiseError) {
        switch token {
        case .e:
            let ephemeral = try nextEphemeral()
            localEphemeral = ephemeral
            fixedEphemeral = nil
            let publicKey = ephemeral.publicKey
            output.append(copying: publicKey.span)
            mixEphemeral(publicKey)
        case .s:
            guard let localStatic else { throw .missingKey(.localStatic) }
            let publicKey = localStatic.publicKey
            try symmetricState.encryptAndHash(publicKey.span, into: &output)
        case .ee, .es, .se, .ss, .psk:
            try mix(token)
        }
    }

    private mutating func read(
        _ token: Token, from message: Span<UInt8>, at position: inout Int
    ) throws(NoiseError) {
        let keyLength = protocolName.curve.keyLength
        switch token {
        case .e:
            let key = [UInt8](capacity: keyLength) { output in
                output.append(copying: message.extracting(position..<position + keyLength))
            }
            position += keyLength
            remoteEphemeral = key
            mixEphemeral(key)
        case .s:
            let length = keyLength + (symmetricState.hasKey ? AEADAlgorithm.tagLength : 0)
            let sealed = message.extracting(position..<position + length)
            position += length
            let key = try [UInt8](capacity: length) { output throws(NoiseError) in
                try symmetricState.decryptAndHash(sealed, into: &output)
            }
            guard protocolName.curve.isCanonical(key.span) else { throw .invalidPublicKey }
            remoteStatic = key
        case .ee, .es, .se, .ss, .psk:
            try mix(token)
        }
    }

    private func nextEphemeral() throws(NoiseError) -> DHKeyPair {
        if let fixedEphemeral { return fixedEphemeral }
        do {
            return try DHKeyPair.generate(protocolName.curve)
        } catch {
            throw NoiseError(error)
        }
    }

    /// MixKey() of a Diffie-Hellman product, or MixKeyAndHash() of the next psk: the same for
    /// writer and reader.
    private mutating func mix(_ token: Token) throws(NoiseError) {
        guard let keys = token.product else {
            guard let psk = psks.popLast() else {
                throw .wrongPSKCount(expected: pattern.pskCount, given: 0)
            }
            symmetricState.mixKeyAndHash(psk)
            return
        }
        let ours = role == .initiator ? keys.initiator : keys.responder
        let theirs = role == .initiator ? keys.responder : keys.initiator
        guard let local = ours == .e ? localEphemeral : localStatic else {
            throw .missingKey(ours == .e ? .localEphemeral : .localStatic)
        }
        guard let remote = theirs == .e ? remoteEphemeral : remoteStatic else {
            throw .missingKey(theirs == .e ? .remoteEphemeral : .remoteStatic)
        }
        do {
            let product = try local.sharedSecret(with: remote)
            symmetricState.mixKey(product.span)
        } catch {
            throw NoiseError(error)
        }
    }
}
