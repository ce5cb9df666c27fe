internal import BLESecNoise
internal import BLESecPrimitives

/// One side of a vector's handshake: its role, and its keys for one protocol.
struct VectorSide {
    let party: NoiseVector.Party
    let localStatic: DHKeyPair?
    let ephemeral: DHKeyPair?
    private let role: Role
    private let name: ProtocolName

    /// The side of `role`.
    ///
    /// - Throws: `VectorFailure` for a missing key, a key of wrong length, or a `remote_static` that
    ///   is not the other side's key.
    init(_ vector: NoiseVector, _ role: Role, _ name: ProtocolName) throws(VectorFailure) {
        let party = vector[role]
        func pair(
            _ key: [UInt8]?, of role: Role, _ suffix: String
        ) throws(VectorFailure) -> DHKeyPair {
            let key = try Self.requireKey(key, role, suffix, name)
            return try VectorFailure.wrapping(.vector, "\(Self.member(role, suffix)): ") {
                try DHKeyPair(curve: name.curve, privateKey: SecretBytes(copying: key.span))
            }
        }
        // Keys that the pattern does not use have to be valid, too.
        for (key, suffix) in [
            (party.staticKey, "static"), (party.ephemeral, "ephemeral"),
            (party.remoteStatic, "remote_static"),
        ] where key != nil { _ = try Self.requireKey(key, role, suffix, name) }
        // In an attempt before a fallback, the initiator's `remote_static` is not the responder's
        // key: otherwise the responder could read the attempt.
        let remoteStaticMayDiffer = vector.attemptedPattern != nil && role == .initiator
        if let remoteStatic = party.remoteStatic, let peerKey = vector[role.peer].staticKey,
            !remoteStaticMayDiffer,
            try pair(peerKey, of: role.peer, "static").publicKey != remoteStatic
        {
            throw VectorFailure(
                "\(Self.member(role, "remote_static")) is not the public key of "
                    + Self.member(role.peer, "static"))
        }
        localStatic =
            name.pattern.requiresLocalStatic(role)
            ? try pair(party.staticKey, of: role, "static") : nil
        ephemeral =
            name.pattern.usesEphemeral(of: role)
            ? try pair(party.ephemeral, of: role, "ephemeral") : nil
        self.party = party
        self.role = role
        self.name = name
    }

    /// This side's handshake with `peer`, before the first message.
    func handshake(with peer: VectorSide) throws(VectorFailure) -> HandshakeState {
        let pattern = name.pattern
        // An ephemeral key from an earlier handshake, for fallback patterns.
        var carried: CarriedEphemeral?
        if pattern.preMessage(of: role).contains(.e), let ephemeral { carried = .local(ephemeral) }
        if pattern.preMessage(of: role.peer).contains(.e), let ephemeral = peer.ephemeral {
            carried = .remote(ephemeral.publicKey)
        }
        if pattern.requiresRemoteStatic(role) {
            _ = try Self.requireKey(party.remoteStatic, role, "remote_static", name)
        }
        let psks = try psks()
        // The error may be about any member of this role, so its text has only their common prefix:
        // `init_…` or `resp_…`.
        return try VectorFailure.wrapping(.vector, "\(Self.member(role, "…")): ") {
            var state = try HandshakeState(
                protocolName: name, role: role, prologue: party.prologue.span,
                localStatic: localStatic, remoteStatic: remoteStatic, psks: psks,
                carried: carried)
            if let ephemeral, !pattern.preMessage(of: role).contains(.e) {
                state.useFixedEphemeral(ephemeral)
            }
            return state
        }
    }

    /// The peer's static key; nil if the pattern does not need it, even if the vector has it.
    var remoteStatic: [UInt8]? {
        name.pattern.requiresRemoteStatic(role) ? party.remoteStatic : nil
    }

    func psks() throws(VectorFailure) -> [PreSharedKey] {
        try party.psks.enumerated().map { index, psk throws(VectorFailure) in
            try VectorFailure.wrapping(.vector, "\(Self.member(role, "psks"))[\(index)]: ") {
                try PreSharedKey(SecretBytes(copying: psk.span))
            }
        }
    }

    private static func requireKey(
        _ key: [UInt8]?, _ role: Role, _ suffix: String, _ name: ProtocolName
    ) throws(VectorFailure) -> [UInt8] {
        guard let key else {
            throw VectorFailure("\(member(role, suffix)) is missing, and \(name.pattern) needs it")
        }
        guard key.count == name.curve.keyLength else {
            throw VectorFailure(
                "\(member(role, suffix)) has \(key.count) bytes, and a key has "
                    + "\(name.curve.keyLength)")
        }
        return key
    }

    /// The name of a member in the file: the prefix of `role`, then `suffix`.
    private static func member(_ role: Role, _ suffix: String) -> String {
        (role == .initiator ? "init_" : "resp_") + suffix
    }
}

extension HandshakePattern {
    /// Whether `role` has an ephemeral key, newly generated or from an earlier handshake.
    func usesEphemeral(of role: Role) -> Bool {
        preMessage(of: role).contains(.e)
            || messages.contains { $0.sender == role && $0.tokens.contains(.e) }
    }
}
