public import BLESecPrimitives

/// The ephemeral key of an earlier handshake, reused by a fallback pattern; Noise §10.
package enum CarriedEphemeral: Sendable {
    /// The key pair of this party, which was the initiator.
    case local(DHKeyPair)
    /// The peer's public key, from the first message, which this party could not read.
    case remote([UInt8])
}

/// Compound protocols; Noise §10.
///
/// The initiator, Alice, sends the first message of one handshake. The responder, Bob, cannot or
/// does not want to read this message. He answers with the first message of a fallback pattern, in
/// which Alice's ephemeral key is a pre-message. Alice stays the initiator, although Bob writes first.
extension HandshakeState {
    /// Alice's side: continues with the ephemeral key that `attempt` has sent.
    ///
    /// - Throws: `NoiseError.missingKey` if `attempt` does not belong to an initiator that has sent
    ///   its first message and has read nothing; and the errors of
    ///   `init(protocolName:role:prologue:localStatic:remoteStatic:psks:)`.
    public init(
        fallback name: ProtocolName, after attempt: consuming HandshakeState,
        prologue: Span<UInt8> = Span(), localStatic: DHKeyPair? = nil,
        remoteStatic: [UInt8]? = nil, psks: [PreSharedKey] = []
    ) throws(NoiseError) {
        // `attempt` must not be a fallback itself. In a fallback, the first message is the
        // responder's. So an initiator with one message done has read that message, and sent none.
        guard attempt.role == .initiator, !attempt.pattern.isFallback, attempt.messagesDone == 1,
            let ephemeral = attempt.localEphemeral
        else { throw .missingKey(.localEphemeral) }
        try self.init(
            protocolName: name, role: .initiator, prologue: prologue, localStatic: localStatic,
            remoteStatic: remoteStatic, psks: psks, carried: .local(ephemeral))
    }

    /// Bob's side: continues with the ephemeral key at the beginning of Alice's first message.
    ///
    /// If the first message of the attempted pattern is `e, s` in clear, it carries Alice's static
    /// key as well: pass that key as `remoteStatic`.
    /// - Throws: `NoiseError.messageTooShort` if `firstMessage` has no ephemeral key; and the
    ///   errors of `init(protocolName:role:prologue:localStatic:remoteStatic:psks:)`.
    public init(
        fallback name: ProtocolName, answering firstMessage: Span<UInt8>,
        prologue: Span<UInt8> = Span(), localStatic: DHKeyPair? = nil,
        remoteStatic: [UInt8]? = nil, psks: [PreSharedKey] = []
    ) throws(NoiseError) {
        let length = name.curve.keyLength
        guard firstMessage.count >= length else { throw .messageTooShort(firstMessage.count) }
        let ephemeral = [UInt8](capacity: length) { output in
            output.append(copying: firstMessage.extracting(first: length))
        }
        try self.init(
            protocolName: name, role: .responder, prologue: prologue, localStatic: localStatic,
            remoteStatic: remoteStatic, psks: psks, carried: .remote(ephemeral))
    }
}
