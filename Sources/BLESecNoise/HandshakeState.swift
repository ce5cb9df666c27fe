public import BLESecPrimitives

/// A handshake in progress; Noise §5.3.
///
/// The parties take turns with `writeMessage` and `readMessage`; when `isFinished`, `split()`
/// returns the transport state. Any error ends the handshake: its keys are wiped, and every later
/// call throws `NoiseError.failed`.
public struct HandshakeState: ~Copyable, Sendable {
    /// The protocol.
    public let protocolName: ProtocolName

    /// This party's role, which is the same in a fallback as in the handshake before it.
    public let role: Role

    /// The peer's static public key, if it is known in advance or once a message has carried it.
    ///
    /// It proves nothing until the handshake is finished.
    public internal(set) var remoteStatic: [UInt8]?

    /// The peer's ephemeral public key, once a message has carried it.
    public internal(set) var remoteEphemeral: [UInt8]?

    /// The number of messages that were written or read.
    public internal(set) var messagesDone = 0

    /// Whether an error has ended the handshake.
    public internal(set) var isFailed = false

    var symmetricState: SymmetricState
    var localStatic: DHKeyPair?
    var localEphemeral: DHKeyPair?
    var psks: [PreSharedKey]
    /// The key pair for the next `e` that this party writes, instead of a fresh one; for test
    /// vectors.
    var fixedEphemeral: DHKeyPair?

    /// Initialize(handshake_pattern, initiator, prologue, s, e, rs, re).
    ///
    /// - Parameters:
    ///   - protocolName: the protocol; a fallback has initializers of its own.
    ///   - role: this party's role.
    ///   - prologue: data that both parties must agree on.
    ///   - localStatic: this party's static key pair; ignored if the pattern does not use it.
    ///   - remoteStatic: the peer's static public key, for patterns in which it is known.
    ///   - psks: the pre-shared keys, in the order in which the messages use them.
    /// - Throws: `NoiseError` for a key that is missing, unexpected or of another curve.
    public init(
        protocolName: ProtocolName, role: Role, prologue: Span<UInt8> = Span(),
        localStatic: DHKeyPair? = nil, remoteStatic: [UInt8]? = nil, psks: [PreSharedKey] = []
    ) throws(NoiseError) {
        try self.init(
            protocolName: protocolName, role: role, prologue: prologue, localStatic: localStatic,
            remoteStatic: remoteStatic, psks: psks, carried: nil)
    }

    /// The same, with the ephemeral key that a fallback pattern continues with.
    ///
    /// Not public: an ephemeral key that is used twice reveals the session's keys. The public
    /// initializers for a fallback ensure that the earlier attempt has ended.
    package init(
        protocolName: ProtocolName, role: Role, prologue: Span<UInt8> = Span(),
        localStatic: DHKeyPair? = nil, remoteStatic: [UInt8]? = nil, psks: [PreSharedKey] = [],
        carried: CarriedEphemeral?
    ) throws(NoiseError) {
        let pattern = protocolName.pattern
        try Self.check(
            protocolName, role: role, localStatic: localStatic, remoteStatic: remoteStatic,
            psks: psks, carried: carried)
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

    /// `h`: after the last message it identifies the session, and other protocols can be bound to
    /// it (Noise §11.2).
    public var handshakeHash: [UInt8] { symmetricState.handshakeHash }

    /// The length of the next message, with a payload of `count` bytes.
    ///
    /// - Throws: `NoiseError.handshakeFinished`, `NoiseError.failed`.
    public func messageLength(forPayload count: Int) throws(NoiseError) -> Int {
        guard !isFailed else { throw .failed }
        guard !isFinished else { throw .handshakeFinished }
        return count
            + pattern.overhead(ofMessage: messagesDone, keyLength: protocolName.curve.keyLength)
    }

    /// Split(): returns the transport state, once every message is done.
    public consuming func split() throws(NoiseError) -> TransportState {
        guard !isFailed else { throw .failed }
        guard isFinished else { throw .handshakeUnfinished }
        let isFirstWriter = pattern.messages[0].sender == role
        let handshakeHash = self.handshakeHash
        let isOneWay = pattern.isOneWay
        let role = self.role
        let remoteStatic = self.remoteStatic
        let keys = symmetricState.split()
        return TransportState(
            keys, isFirstWriter: isFirstWriter, role: role, isOneWay: isOneWay,
            handshakeHash: handshakeHash, remoteStatic: remoteStatic)
    }

    /// Wipes all secrets; only public values remain.
    mutating func fail() {
        isFailed = true
        symmetricState.wipe()
        localEphemeral = nil
        fixedEphemeral = nil
        localStatic = nil
        psks = []
    }

    /// Uses `ephemeral` for this party's next `e` token. Only for test vectors, since an ephemeral
    /// key that is used twice reveals the session's keys.
    package mutating func useFixedEphemeral(_ ephemeral: DHKeyPair) {
        fixedEphemeral = ephemeral
    }
}
