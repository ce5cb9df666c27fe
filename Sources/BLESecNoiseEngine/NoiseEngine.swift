package import BLESecChannelCore
internal import BLESecNoise
package import BLESecPrimitives

/// A channel engine for Noise: any interactive protocol, with a u16 length before each message.
///
/// The engine sends empty handshake payloads, and ignores the payloads in the peer's handshake
/// messages: no data is accepted before both sides are proven. ``SecureEngine`` describes the
/// members.
package struct NoiseEngine: ~Copyable, SecureEngine {
    /// The overhead of a sealed record in bytes: the length and the tag.
    package static let overhead = lengthSize + 16

    private static let lengthSize = 2

    private var handshake: HandshakeState?
    private var transport: TransportState?
    private let plan: NoisePlan
    /// The identity that the peer claims; the trust policy decides about it.
    private var identity: PeerIdentity?
    private var isAdmitted = false
    package private(set) var isPeerProven = false
    package private(set) var owesProof = false

    /// Begins a handshake for one offer.
    package init(_ plan: NoisePlan, prologue: [UInt8]) throws(ChannelError) {
        self.init(
            plan,
            try translatingErrors { () throws(NoiseError) in
                try HandshakeState(
                    protocolName: plan.name, role: plan.role.noiseRole, prologue: prologue.span,
                    localStatic: plan.identity?.keyPair, remoteStatic: plan.remoteStatic,
                    psks: plan.presharedKeys)
            })
    }

    /// As an acceptor, answers an unreadable first message with a fallback, which uses the
    /// message's ephemeral key.
    package init(
        fallback plan: NoisePlan, answering firstMessage: [UInt8], prologue: [UInt8]
    ) throws(ChannelError) {
        self.init(
            plan,
            try translatingErrors { () throws(NoiseError) in
                try HandshakeState(
                    fallback: plan.name, answering: firstMessage.span, prologue: prologue.span,
                    localStatic: plan.identity?.keyPair)
            })
    }

    private init(_ plan: NoisePlan, _ handshake: consuming HandshakeState) {
        self.plan = plan
        self.handshake = consume handshake
        if let ephemeral = plan.fixedEphemeral { self.handshake?.useFixedEphemeral(ephemeral) }
    }

    /// Continues a dialer's failed attempt with a fallback, which uses the ephemeral key that the
    /// attempt has sent.
    package mutating func fallBack(to plan: NoisePlan, prologue: [UInt8]) throws(ChannelError) {
        guard let sent = handshake.take() else { throw .outOfPlace }
        do throws(NoiseError) {
            let handshake = try HandshakeState(
                fallback: plan.name, after: sent, prologue: prologue.span,
                localStatic: plan.identity?.keyPair)
            self = NoiseEngine(plan, handshake)
        } catch {
            throw ChannelError(noise: error)
        }
    }

    package var framesHandshake: Bool { true }

    package var phase: EnginePhase {
        guard let identity else { return .handshaking }
        guard isAdmitted else { return .awaitingTrustDecision(ClaimedIdentity(identity)) }
        return transport == nil ? .handshaking : .established(identity)
    }

    package var handshakeHash: [UInt8] {
        switch transport {
        case .some(let transport): transport.handshakeHash
        case nil: []
        }
    }

    // MARK: - Handshake

    @discardableResult
    package mutating func receiveHandshake(_ bytes: Span<UInt8>) throws(ChannelError) -> Int {
        guard handshake != nil, identity == nil || isAdmitted else { throw .outOfPlace }
        _ = try translatingErrors { () throws(NoiseError) in
            try [UInt8](capacity: bytes.count) { payload throws(NoiseError) in
                try handshake?.readMessage(bytes, payload: &payload)
            }
        }
        if identity == nil, let key = handshake?.remoteStatic {
            identity = .publicKey(key, curve: plan.name.curve)
        }
        if let pattern = handshake?.pattern, let count = handshake?.messagesDone {
            isPeerProven = pattern.isProven(plan.role.noiseRole.peer, after: count)
        }
        try splitIfFinished()
        return bytes.count
    }

    package mutating func nextHandshake() throws(ChannelError) -> [UInt8]? {
        guard handshake?.isMyTurn == true, identity == nil || isAdmitted else { return nil }
        let message = try translatingErrors { () throws(NoiseError) in
            let length = try handshake?.messageLength(forPayload: 0) ?? 0
            return try [UInt8](capacity: length) { output throws(NoiseError) in
                try handshake?.writeMessage(into: &output)
            }
        }
        try splitIfFinished()
        return message
    }

    package mutating func admit() throws(ChannelError) {
        guard case .awaitingTrustDecision = phase else { throw .outOfPlace }
        isAdmitted = true
    }

    package mutating func refuse() -> Refusal {
        switch handshake {
        case nil: return .byRecord
        case .some(let handshake):
            // A `reject` record can be sent only after the handshake. To finish the handshake, a
            // dialer would have to send its last message, and an acceptor perhaps its static key. A
            // refused peer gets neither.
            let keyMessageIndex = handshake.pattern.messageCarryingStatic(of: plan.role.noiseRole)
            let hasOwnKeyToSend = (keyMessageIndex ?? -1) >= handshake.messagesDone
            return plan.role == .dialer || hasOwnKeyToSend ? .silent : .byRecord
        }
    }

    private mutating func splitIfFinished() throws(ChannelError) {
        guard handshake?.isFinished == true, let finished = handshake.take() else { return }
        if identity == nil { identity = plan.name.pattern.pskCount > 0 ? .group : .anonymous }
        let (pattern, role) = (finished.pattern, plan.role.noiseRole)
        isPeerProven = pattern.isProven(role.peer, after: pattern.messages.count)
        owesProof = !pattern.isProven(role, after: pattern.messages.count)
        do throws(NoiseError) {
            transport = try finished.split()
        } catch {
            throw ChannelError(noise: error)
        }
    }

    // MARK: - Records

    package static func sealedLength(_ count: Int) -> Int { count + overhead }
    package func sealedLength(_ count: Int) -> Int { Self.sealedLength(count) }

    package mutating func seal(
        _ head: Span<UInt8>, _ payload: Span<UInt8>, into output: inout OutputSpan<UInt8>
    ) throws(ChannelError) {
        // Without keys, the record would be plaintext.
        guard transport != nil else { throw .outOfPlace }
        let count = head.count + payload.count
        let messageLength = count + Self.overhead - Self.lengthSize
        precondition(output.freeCapacity >= sealedLength(count), "too little room for a record")
        output.append(UInt8(truncatingIfNeeded: messageLength >> 8))
        output.append(UInt8(truncatingIfNeeded: messageLength))
        do throws(NoiseError) {
            try transport?.encrypt(head, payload, into: &output)
        } catch {
            output.removeLast(Self.lengthSize)
            throw ChannelError(noise: error)
        }
        owesProof = false
    }

    /// The length in bytes of the first record, with its length field; `nil` if that field is
    /// incomplete.
    private func recordLength(_ bytes: Span<UInt8>) throws(ChannelError) -> Int? {
        guard bytes.count >= Self.lengthSize else { return nil }
        let length = Int(bytes[0]) << 8 | Int(bytes[1])
        guard length >= Self.overhead - Self.lengthSize else {
            throw ChannelError(.protocolViolation, "the peer's record is shorter than its tag")
        }
        return Self.lengthSize + length
    }

    package mutating func open(
        _ buffer: inout MutableSpan<UInt8>
    ) throws(ChannelError) -> OpenedRecord? {
        guard transport != nil else { throw .outOfPlace }
        guard let length = try recordLength(buffer.span), buffer.count >= length else { return nil }
        let plaintextLength: Int
        do throws(NoiseError) {
            plaintextLength =
                try transport?.decrypt(
                    inPlace: &buffer, at: Self.lengthSize, count: length - Self.lengthSize) ?? 0
        } catch {
            throw ChannelError(noise: error)
        }
        isPeerProven = true
        return OpenedRecord(
            consumed: length,
            plaintext: Self.lengthSize..<Self.lengthSize + plaintextLength)
    }

    package mutating func rekeySending() throws(ChannelError) {
        guard transport != nil else { throw .outOfPlace }
        try translatingErrors { () throws(NoiseError) in try transport?.rekeySend() }
    }

    package mutating func rekeyReceiving() throws(ChannelError) {
        guard transport != nil else { throw .outOfPlace }
        try translatingErrors { () throws(NoiseError) in try transport?.rekeyReceive() }
    }

    package func export(
        label: String, context: [UInt8], count: Int
    ) throws(ChannelError) -> SecretBytes {
        guard (1...32 * 255).contains(count) else {
            throw ChannelError(.configuration, "an exported key has 1 to 8,160 bytes")
        }
        let name = Array("blesec/1 export".utf8) + [0] + sha256(Array(label.utf8)) + sha256(context)
        switch transport {
        case .some(let transport):
            return transport.additionalKeys.key(label: name.span, count: count)
        case nil: throw .outOfPlace
        }
    }
}

/// Calls `body`, and throws its Noise error as a channel error.
@discardableResult
private func translatingErrors<Value: ~Copyable>(
    _ body: () throws(NoiseError) -> Value
) throws(ChannelError) -> Value {
    do throws(NoiseError) {
        return try body()
    } catch {
        throw ChannelError(noise: error)
    }
}

extension ChannelError {
    fileprivate init(noise error: NoiseError) {
        switch error {
        case .authenticationFailed, .invalidPublicKey:
            self.init(
                .authenticationFailed,
                "the peer's message cannot be authenticated: the peer has other keys, or someone "
                    + "changed bytes on the way")
        case .messageTooLong, .messageTooShort, .outputTooSmall:
            self.init(.protocolViolation, "the peer's message has a wrong length: \(error)")
        case .missingKey, .unexpectedKey, .wrongKey, .wrongPSKCount:
            self.init(.configuration, "\(error)")
        case .nonceExhausted:
            self.init(.limitExceeded, "the session has used all its nonces; open a new channel")
        case .failed, .outOfTurn, .handshakeFinished, .handshakeUnfinished, .nonceUsed, .oneWay,
            .crypto:
            self.init(.internal, "\(error)")
        }
    }
}
