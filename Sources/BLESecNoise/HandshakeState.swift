public import BLESecPrimitives

/// A handshake in progress; Noise §5.3.
///
/// The parties take turns with `writeMessage` and `readMessage`; when `isFinished`, `split()`
/// returns the transport state. An error of `writeMessage` or `readMessage` ends the handshake: its
/// keys are wiped, and every later call throws `NoiseError.failed`.
public struct HandshakeState: ~Copyable, Sendable {
    /// The longest message in bytes, in the handshake and in transport (Noise §3).
    public static var maximumMessageLength: Int { 65_535 }

    /// The protocol.
    public let protocolName: ProtocolName
    /// This party's role, which is the same in a fallback as in the handshake before it.
    public let role: Role

    /// The peer's static public key, if it is known in advance or once a message has carried it.
    ///
    /// The key proves nothing until the handshake is finished.
    public private(set) var remoteStatic: [UInt8]?
    /// The peer's ephemeral public key, once a message has carried it.
    public private(set) var remoteEphemeral: [UInt8]?
    /// The number of messages that were written or read.
    public private(set) var messagesDone = 0
    /// Whether an error has ended the handshake.
    public private(set) var isFailed = false

    private var symmetricState: SymmetricState
    private var localStatic: DHKeyPair?
    private(set) var localEphemeral: DHKeyPair?
    /// The pre-shared keys that no message has used yet, in reverse order.
    private var psks: [PreSharedKey]
    /// The key pair for the next `e` that this party writes, instead of a new one; for test
    /// vectors.
    private var fixedEphemeral: DHKeyPair?

    /// Initialize(handshake_pattern, initiator, prologue, s, e, rs, re).
    ///
    /// - Parameters:
    ///   - protocolName: the protocol; for a fallback, use the initializers with `fallback`.
    ///   - role: this party's role.
    ///   - prologue: data that both parties must agree on.
    ///   - localStatic: this party's static key pair; ignored if the pattern does not use it.
    ///   - remoteStatic: the peer's static key; nil unless the pattern requires it in advance.
    ///   - psks: the pre-shared keys, in the order in which the messages use them.
    /// - Throws: `NoiseError` for a key that is missing, unexpected or wrong, or a wrong number of
    ///   psks.
    public init(
        protocolName: ProtocolName, role: Role, prologue: Span<UInt8> = Span(),
        localStatic: DHKeyPair? = nil, remoteStatic: [UInt8]? = nil, psks: [PreSharedKey] = []
    ) throws(NoiseError) {
        try self.init(
            protocolName: protocolName, role: role, prologue: prologue, localStatic: localStatic,
            remoteStatic: remoteStatic, psks: psks, carried: nil)
    }

    /// Does what the public initializer does. A fallback pattern continues with the ephemeral key
    /// `carried`.
    ///
    /// Not public: a caller could use one ephemeral key pair in two handshakes, which reveals
    /// session keys. The public initializer for the initiator's fallback prevents this, since it
    /// consumes the first handshake.
    package init(
        protocolName: ProtocolName, role: Role, prologue: Span<UInt8> = Span(),
        localStatic: DHKeyPair? = nil, remoteStatic: [UInt8]? = nil, psks: [PreSharedKey] = [],
        carried: CarriedEphemeral?
    ) throws(NoiseError) {
        let pattern = protocolName.pattern
        try protocolName.check(
            role, localStatic: localStatic, remoteStatic: remoteStatic, psks: psks,
            carried: carried)
        self.protocolName = protocolName
        self.role = role
        self.remoteStatic = remoteStatic
        self.localStatic = pattern.requiresLocalStatic(role) ? localStatic : nil
        self.psks = psks.reversed()
        switch carried {
        case .local(let ephemeral): localEphemeral = ephemeral
        case .remote(let ephemeral): remoteEphemeral = ephemeral
        case nil: break
        }
        symmetricState = SymmetricState(protocolName)
        symmetricState.mixHash(prologue)
        mixPreMessages()
    }

    /// MixHash() of the pre-messages' keys, the initiator's first. `ProtocolName.check` has ensured
    /// that all of them exist.
    private mutating func mixPreMessages() {
        for owner in Role.allCases {
            let isOurs = owner == role
            let ephemeral = isOurs ? localEphemeral?.publicKey : remoteEphemeral
            let staticKey = isOurs ? localStatic?.publicKey : remoteStatic
            for token in pattern.preMessage(of: owner) {
                switch (token, ephemeral, staticKey) {
                case (.e, let key?, _): mixEphemeral(key)
                case (.s, _, let key?): symmetricState.mixHash(key)
                default: preconditionFailure("a pre-message has only keys that `check` required")
                }
            }
        }
    }

    /// MixHash(e), and in a psk handshake MixKey(e) as well (Noise §9.2).
    private mutating func mixEphemeral(_ publicKey: [UInt8]) {
        symmetricState.mixHash(publicKey)
        if pattern.pskCount > 0 { symmetricState.mixKey(publicKey.span) }
    }

    /// The pattern.
    public var pattern: HandshakePattern { protocolName.pattern }
    /// This party's ephemeral public key, once a message has carried it.
    public var localEphemeralPublicKey: [UInt8]? { localEphemeral?.publicKey }

    /// Whether the next step is this party's `writeMessage`.
    public var isMyTurn: Bool {
        !isFailed && !isFinished && pattern.messages[messagesDone].sender == role
    }

    /// Whether every message is done, so that only `split()` remains.
    public var isFinished: Bool { !isFailed && messagesDone == pattern.messages.count }
    /// `h`: after the last message it identifies the session, for channel binding (Noise §11.2).
    public var handshakeHash: [UInt8] { symmetricState.handshakeHash }

    /// The length of the next message in bytes, with a payload of `count` bytes; `Int.max` if it is
    /// greater than that.
    ///
    /// - Throws: `NoiseError.handshakeFinished`, `NoiseError.failed`.
    public func messageLength(forPayload count: Int) throws(NoiseError) -> Int {
        guard !isFailed else { throw .failed }
        guard !isFinished else { throw .handshakeFinished }
        let overhead = pattern.overhead(
            ofMessage: messagesDone, keyLength: protocolName.curve.keyLength)
        return min(count, Int.max - overhead) + overhead
    }

    /// Split(): returns the transport state, once every message is done.
    public consuming func split() throws(NoiseError) -> TransportState {
        guard !isFailed else { throw .failed }
        guard isFinished else { throw .handshakeUnfinished }
        let (pattern, handshakeHash) = (self.pattern, self.handshakeHash)
        return TransportState(
            symmetricState.split(), isFirstWriter: pattern.messages[0].sender == role, role: role,
            isOneWay: pattern.isOneWay, handshakeHash: handshakeHash, remoteStatic: remoteStatic)
    }

    /// Wipes all secrets; only public values remain.
    private mutating func fail() {
        isFailed = true
        symmetricState.wipe()
        localEphemeral = nil
        fixedEphemeral = nil
        localStatic = nil
        psks = []
    }

    /// Uses `ephemeral` for this party's next `e` token. Only for test vectors, since an ephemeral
    /// key that is used twice reveals the session's keys.
    package mutating func useFixedEphemeral(_ ephemeral: DHKeyPair) { fixedEphemeral = ephemeral }
}

// WriteMessage and ReadMessage, token by token.
extension HandshakeState {
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
            for token in pattern.messages[messagesDone].tokens { try write(token, into: &output) }
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
        case .ee, .es, .se, .ss, .psk: try mix(token)
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
        case .ee, .es, .se, .ss, .psk: try mix(token)
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

    /// MixKey() of a Diffie-Hellman product, or MixKeyAndHash() of the next psk; the same for the
    /// writer and the reader of a message.
    private mutating func mix(_ token: Token) throws(NoiseError) {
        guard let keys = token.dhKeys else {
            guard let psk = psks.popLast() else {
                throw .wrongPSKCount(expected: pattern.pskCount, given: 0)
            }
            return symmetricState.mixKeyAndHash(psk)
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
