package import BLESecPrimitives

/// An ephemeral key of an earlier handshake that a fallback pattern continues with; Noise §10.
package enum CarriedEphemeral: Sendable {
    /// The key pair of this party, which was the initiator.
    case local(DHKeyPair)
    /// The peer's public key, from the first message, which this party could not read.
    case remote([UInt8])
}

extension HandshakeState {
    /// Throws unless the keys are exactly those that the pattern needs.
    static func check(
        _ name: ProtocolName, role: Role, localStatic: DHKeyPair?, remoteStatic: [UInt8]?,
        psks: [PreSharedKey], carried: CarriedEphemeral?
    ) throws(NoiseError) {
        let pattern = name.pattern
        if pattern.requiresLocalStatic(role) {
            guard let localStatic else { throw .missingKey(.localStatic) }
            guard localStatic.curve == name.curve else { throw .wrongKey(.localStatic) }
        }
        if pattern.requiresRemoteStatic(role) {
            guard let remoteStatic else { throw .missingKey(.remoteStatic) }
            guard name.curve.isCanonical(remoteStatic.span) else { throw .wrongKey(.remoteStatic) }
        } else if remoteStatic != nil {
            // A caller who passes a key expects it to be checked, and this pattern would not check
            // it.
            throw .unexpectedKey(.remoteStatic)
        }
        guard psks.count == pattern.pskCount else {
            throw .wrongPSKCount(expected: pattern.pskCount, given: psks.count)
        }
        let needsLocal = pattern.preMessage(of: role).contains(.e)
        let needsRemote = pattern.preMessage(of: role.peer).contains(.e)
        switch carried {
        case .local(let ephemeral):
            guard needsLocal else { throw .unexpectedKey(.localEphemeral) }
            guard !needsRemote else { throw .missingKey(.remoteEphemeral) }
            guard ephemeral.curve == name.curve else { throw .wrongKey(.localEphemeral) }
        case .remote(let ephemeral):
            guard needsRemote else { throw .unexpectedKey(.remoteEphemeral) }
            guard !needsLocal else { throw .missingKey(.localEphemeral) }
            guard ephemeral.count == name.curve.keyLength else { throw .wrongKey(.remoteEphemeral) }
        case nil:
            guard !needsLocal else { throw .missingKey(.localEphemeral) }
            guard !needsRemote else { throw .missingKey(.remoteEphemeral) }
        }
    }

    /// MixHash() of every public key in the pre-messages, the initiator's first; `check` ensures
    /// that all keys are present.
    mutating func mixPreMessages() {
        for owner in Role.allCases {
            for token in pattern.preMessage(of: owner) {
                let isOurs = owner == role
                switch token {
                case .e:
                    let key = isOurs ? localEphemeral?.publicKey : remoteEphemeral
                    guard let key else { preconditionFailure("checked before") }
                    mixEphemeral(key)
                case .s:
                    let key = isOurs ? localStatic?.publicKey : remoteStatic
                    guard let key else { preconditionFailure("checked before") }
                    symmetricState.mixHash(key)
                case .ee, .es, .se, .ss, .psk:
                    preconditionFailure("a pre-message has keys alone")
                }
            }
        }
    }

    /// MixHash(e), and in a psk handshake MixKey(e) as well (Noise §9.2).
    mutating func mixEphemeral(_ publicKey: [UInt8]) {
        symmetricState.mixHash(publicKey)
        if pattern.pskCount > 0 { symmetricState.mixKey(publicKey.span) }
    }
}
