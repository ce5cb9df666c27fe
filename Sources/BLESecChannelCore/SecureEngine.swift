package import BLESecPrimitives

/// How far an engine has come.
package enum EnginePhase: Sendable, Equatable {
    /// Handshake messages are outstanding, from one side or the other.
    case handshaking
    /// The peer has said who it is; nothing happens until `admit()` or `refuse()`.
    case awaitingTrustDecision(ClaimedIdentity)
    /// Records can be sealed and opened, and this is who the peer has proven to be, or proves to be
    /// with its first record: see ``SecureEngine/isPeerProven``.
    case established(PeerIdentity)
    /// The handshake has failed and its keys are wiped. What ``SecureEngine/nextHandshake()`` still
    /// gives is for the peer: it says that this side has given up, and not why.
    case failing(ChannelError)
    /// There is no engine any more, or no session in it: the keys are wiped, and every call throws.
    case failed
}

/// How an engine can tell a peer that it is refused.
package enum Refusal: Sendable, Equatable {
    /// The handshake may go on to its end, and a `reject` record follows.
    case byRecord
    /// The engine is ``EnginePhase/failing(_:)`` now, and its last handshake bytes say it.
    case byHandshake
    /// Nothing may be sent any more: it would show this side's identity to an unauthenticated peer.
    case silent
}

/// A record that `open` found at the start of the receive buffer.
package struct OpenedRecord: Sendable {
    /// The bytes of the receive buffer that are used up.
    package var consumed: Int
    /// Where in the receive buffer the record's plaintext now lies; `nil` where the bytes used up
    /// were the engine's own business, such as a change of key.
    package var plaintext: Range<Int>?

    /// A record of `plaintext` in the first `consumed` bytes of the buffer.
    package init(consumed: Int, plaintext: Range<Int>?) {
        self.consumed = consumed
        self.plaintext = plaintext
    }
}

/// A handshake and the record protection that comes out of it, without any input or output.
///
/// An engine takes bytes and gives bytes; it has no socket, clock or task. It is driven by one
/// caller at a time. Once a call that changes it throws, the engine must not be used again: its owner
/// drops it, and its `deinit` wipes the keys. Once established, no call allocates, whatever a library
/// underneath does for itself.
package protocol SecureEngine: ~Copyable {
    /// How far the engine has come.
    var phase: EnginePhase { get }

    /// Whether each handshake message travels behind a u16 length, and so comes in whole.
    var framesHandshake: Bool { get }

    /// Takes handshake bytes from the peer, one whole message where ``framesHandshake`` and any chunk
    /// otherwise, and returns how many of them are used up: all where ``framesHandshake``, fewer
    /// where more have to arrive or records begin.
    @discardableResult
    mutating func receiveHandshake(_ bytes: Span<UInt8>) throws(ChannelError) -> Int

    /// The next handshake bytes to send, without a length; `nil` when it is the peer's turn.
    mutating func nextHandshake() throws(ChannelError) -> [UInt8]?

    /// Lets a handshake that is `awaitingTrustDecision` go on.
    mutating func admit() throws(ChannelError)

    /// Says how a handshake that is `awaitingTrustDecision` can tell the peer that it is refused.
    mutating func refuse() -> Refusal

    /// Whether the engine tells its peer of a change of key by itself, so that no `rekey` record does.
    var announcesRekey: Bool { get }

    /// Whether an empty record without a type is a proven end of what its sender has to say.
    var provesEnd: Bool { get }

    /// Whether the peer of an established engine has proven its identity. Where it has not, the first
    /// record that is opened is the proof.
    var isPeerProven: Bool { get }

    /// Whether the peer of an established engine has no proof of this side's identity yet, so that
    /// the first record that is sealed will be the proof.
    var owesProof: Bool { get }

    /// The payload of a record when there is much to send.
    var bulkPayload: Int { get }

    /// The bytes that a record of `count` bytes of plaintext takes when it is sealed.
    func sealedLength(_ count: Int) -> Int

    /// Seals the plaintext `type` (where there is one) followed by `payload` as one record, written
    /// straight to `output`, which has room for ``sealedLength(_:)``.
    mutating func seal(
        _ type: UInt8?, _ payload: Span<UInt8>, into output: inout OutputSpan<UInt8>
    ) throws(ChannelError)

    /// Opens the record at the start of `buffer` in place, or returns `nil` while it is incomplete.
    ///
    /// The buffer is what the last call left behind the bytes that it used up, as it left it, and
    /// what has arrived since.
    mutating func open(_ buffer: inout MutableSpan<UInt8>) throws(ChannelError) -> OpenedRecord?

    /// Changes the key for what is sent, from the next record on.
    mutating func rekeySending() throws(ChannelError)

    /// Changes the key for what is received, from the next record on.
    mutating func rekeyReceiving() throws(ChannelError)

    /// Bytes bound to this session and `label`, equal on both sides, unchanged by a rekey.
    func export(
        label: String, context: [UInt8], count: Int
    ) throws(ChannelError) -> SecretBytes

    /// The hash over the whole handshake, which names the session.
    var handshakeHash: [UInt8] { get }
}

extension SecureEngine where Self: ~Copyable {
    /// A `rekey` record says it.
    package var announcesRekey: Bool { false }
    /// Nothing is proven by an empty record.
    package var provesEnd: Bool { false }
    /// Established is proven.
    package var isPeerProven: Bool { true }
    /// Nothing is owed.
    package var owesProof: Bool { false }
    /// ``Record/bulkPayload``.
    package var bulkPayload: Int { Record.bulkPayload }
}
