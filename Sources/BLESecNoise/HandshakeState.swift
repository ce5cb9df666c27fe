public import BLESecPrimitives

/// A handshake in progress; Noise §5.3.
///
/// The parties take turns with `writeMessage` and `readMessage`; when `isFinished`, `split()` turns
/// the state into transport. Any error ends it: its keys are wiped, and every later call throws
/// `NoiseError.failed`.
public struct HandshakeState: ~Copyable, Sendable {
    /// The protocol.
    public let protocolName: ProtocolName

    /// Our role, which is the same in a fallback as in the handshake before it.
    public let role: Role

    /// The peer's static public key, from the beginning or as soon as a message has brought it.
    ///
    /// It proves nothing until the handshake is finished.
    public internal(set) var remoteStatic: [UInt8]?

    /// The peer's ephemeral public key, as soon as a message has brought it.
    public internal(set) var remoteEphemeral: [UInt8]?

    /// How many messages are done.
    public internal(set) var messagesDone = 0

    /// Whether an error has ended the handshake.
    public internal(set) var isFailed = false

    var symmetricState: SymmetricState
    var localStatic: DHKeyPair?
    var localEphemeral: DHKeyPair?
    var psks: [PreSharedKey]
    /// An ephemeral for the next `e` that we write, in place of a fresh one: for vectors.
    var fixedEphemeral: DHKeyPair?

    /// Initialize(handshake_pattern, initiator, prologue, s, e, rs, re).
    ///
    /// - Parameters:
    ///   - protocolName: what is spoken; a fallback has initializers of its own.
    ///   - role: our side of it.
    ///   - prologue: what both parties should agree on already.
    ///   - localStatic: our static key pair; one that the pattern does not use is ignored.
    ///   - remoteStatic: the peer's static public key, for patterns in which it is known.
    ///   - psks: the pre-shared keys in the order in which the messages use them.
    /// - Throws: `NoiseError` for a key that is missing, unexpected or of another curve.
    public init(
        protocolName: ProtocolName, role: Role, prologue: Span<UInt8> = Span(),
        localStatic: DHKeyPair? = nil, remoteStatic: [UInt8]? = nil, psks: [PreSharedKey] = []
    ) throws(NoiseError) {
        try self.init(
            protocolName: protocolName, role: role, prologue: prologue, localStatic: localStatic,
            remoteStatic: remoteStatic, psks: psks, carried: nil)
    }

    /// The same, with the ephemeral that a fallback pattern goes on with.
    ///
    /// Not for everybody: an ephemeral that is used twice gives the session's keys away, and the
    /// initializers for a fallback see to it that the attempt before is gone.
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

    /// Our ephemeral public key, as soon as a message has carried it.
    public var localEphemeralPublicKey: [UInt8]? { localEphemeral?.publicKey }

    /// Whether the next step is our `writeMessage`.
    public var isMyTurn: Bool {
        !isFailed && !isFinished && pattern.messages[messagesDone].sender == role
    }

    /// Whether every message is done and `split()` is what is left.
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

    /// Split(): the transport state, once every message is done.
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

    /// Wipes what is secret; only public values stay.
    mutating func fail() {
        isFailed = true
        symmetricState.wipe()
        localEphemeral = nil
        fixedEphemeral = nil
        localStatic = nil
        psks = []
    }

    /// Uses `ephemeral` for our next `e` token: for test vectors alone, since an ephemeral that is
    /// used twice gives the session's keys away.
    package mutating func useFixedEphemeral(_ ephemeral: DHKeyPair) {
        fixedEphemeral = ephemeral
    }
}
