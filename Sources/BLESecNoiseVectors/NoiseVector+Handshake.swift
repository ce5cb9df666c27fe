package import BLESecNoise
internal import BLESecPrimitives

/// Makes the two sides of a handshake from a vector's keys.
extension NoiseVector {
    /// The keys of one side for one protocol.
    private struct Keys {
        var localStatic: DHKeyPair?
        var ephemeral: DHKeyPair?
    }

    /// Both sides of `name` before the first message.
    ///
    /// - Throws: `VectorFailure` for a missing key or a key of wrong length.
    package func handshake(_ name: ProtocolName) throws(VectorFailure) -> VectorHandshake {
        let initiatorKeys = try keys(of: .initiator, for: name)
        let responderKeys = try keys(of: .responder, for: name)
        return VectorHandshake(
            initiator: try state(of: .initiator, name, initiatorKeys, responderKeys),
            responder: try state(of: .responder, name, responderKeys, initiatorKeys))
    }

    /// Both sides of the fallback `name`, after `attempt` has written its first message and the
    /// responder could not read it.
    func handshake(
        _ name: ProtocolName, after attempt: consuming VectorHandshake, _ firstMessage: [UInt8]
    ) throws(VectorFailure) -> VectorHandshake {
        let initiatorKeys = try keys(of: .initiator, for: name)
        let responderKeys = try keys(of: .responder, for: name)
        let psks = (try self.psks(of: .initiator), try self.psks(of: .responder))
        do throws(NoiseError) {
            let alice = try HandshakeState(
                fallback: name, after: attempt.initiator, prologue: initiator.prologue.span,
                localStatic: initiatorKeys.localStatic,
                remoteStatic: name.pattern.requiresRemoteStatic(.initiator)
                    ? initiator.remoteStatic : nil, psks: psks.0)
            var bob = try HandshakeState(
                fallback: name, answering: firstMessage.span, prologue: responder.prologue.span,
                localStatic: responderKeys.localStatic,
                remoteStatic: name.pattern.requiresRemoteStatic(.responder)
                    ? responder.remoteStatic : nil, psks: psks.1)
            if let ephemeral = responderKeys.ephemeral { bob.useFixedEphemeral(ephemeral) }
            return VectorHandshake(initiator: alice, responder: bob)
        } catch {
            throw VectorFailure("\(error)")
        }
    }

    private func state(
        of role: Role, _ name: ProtocolName, _ own: Keys, _ others: Keys
    ) throws(VectorFailure) -> HandshakeState {
        let pattern = name.pattern
        let party = party(role)
        var carried: CarriedEphemeral?
        if pattern.preMessage(of: role).contains(.e), let ephemeral = own.ephemeral {
            carried = .local(ephemeral)
        }
        if pattern.preMessage(of: role.peer).contains(.e), let ephemeral = others.ephemeral {
            carried = .remote(ephemeral.publicKey)
        }
        var remoteStatic: [UInt8]?
        // Some vectors contain keys that the pattern does not use.
        if pattern.requiresRemoteStatic(role) {
            remoteStatic = party.remoteStatic
            try check(remoteStatic, role, "remote_static", name)
        }
        let psks = try psks(of: role)
        do throws(NoiseError) {
            var state = try HandshakeState(
                protocolName: name, role: role, prologue: party.prologue.span,
                localStatic: own.localStatic, remoteStatic: remoteStatic, psks: psks,
                carried: carried)
            if let ephemeral = own.ephemeral, !pattern.preMessage(of: role).contains(.e) {
                state.useFixedEphemeral(ephemeral)
            }
            return state
        } catch {
            throw VectorFailure("\(member(role, "…")): \(error)")
        }
    }

    private func keys(of role: Role, for name: ProtocolName) throws(VectorFailure) -> Keys {
        let pattern = name.pattern
        var keys = Keys()
        if pattern.requiresLocalStatic(role) {
            keys.localStatic = try pair(party(role).staticKey, role, "static", name)
        }
        if pattern.usesEphemeral(of: role) {
            keys.ephemeral = try pair(party(role).ephemeral, role, "ephemeral", name)
        }
        return keys
    }

    private func pair(
        _ privateKey: [UInt8]?, _ role: Role, _ kind: String, _ name: ProtocolName
    ) throws(VectorFailure) -> DHKeyPair {
        let privateKey = try check(privateKey, role, kind, name)
        do throws(CryptoError) {
            return try DHKeyPair(
                curve: name.curve, privateKey: SecretBytes(copying: privateKey.span))
        } catch {
            throw VectorFailure("\(member(role, kind)): \(error)")
        }
    }

    @discardableResult
    private func check(
        _ key: [UInt8]?, _ role: Role, _ kind: String, _ name: ProtocolName
    ) throws(VectorFailure) -> [UInt8] {
        guard let key else {
            throw VectorFailure("\(member(role, kind)) is missing, and \(name.pattern) needs it")
        }
        guard key.count == name.curve.keyLength else {
            throw VectorFailure(
                "\(member(role, kind)) has \(key.count) bytes, and a key has "
                    + "\(name.curve.keyLength)")
        }
        return key
    }

    private func psks(of role: Role) throws(VectorFailure) -> [PreSharedKey] {
        var keys: [PreSharedKey] = []
        for (index, psk) in party(role).psks.enumerated() {
            do throws(CryptoError) {
                keys.append(try PreSharedKey(SecretBytes(copying: psk.span)))
            } catch {
                throw VectorFailure("\(member(role, "psks"))[\(index)]: \(error)")
            }
        }
        return keys
    }

    private func party(_ role: Role) -> Party { role == .initiator ? initiator : responder }

    /// The name of a member of `role` in the file.
    private func member(_ role: Role, _ kind: String) -> String {
        (role == .initiator ? "init_" : "resp_") + kind
    }
}

extension HandshakePattern {
    /// Whether `role` has an ephemeral key, newly generated or from an earlier attempt.
    func usesEphemeral(of role: Role) -> Bool {
        preMessage(of: role).contains(.e)
            || messages.contains { $0.sender == role && $0.tokens.contains(.e) }
    }
}
