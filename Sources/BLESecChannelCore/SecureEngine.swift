package import BLESecPrimitives

/// The phase of an engine.
package enum EnginePhase: Sendable, Equatable {
    /// At least one side still has to send handshake messages.
    case handshaking
    /// The peer has claimed an identity; the engine waits for `admit()` or `refuse()`.
    case awaitingTrustDecision(ClaimedIdentity)
    /// Records can be sealed and opened. The peer has proven this identity, or proves it with its
    /// first record: see ``SecureEngine/isPeerProven``.
    case established(PeerIdentity)
    /// The handshake has failed and its keys are wiped. ``SecureEngine/nextHandshake()`` may still
    /// return bytes for the peer, which tell it that this side has given up, but not why.
    case failing(ChannelError)
    /// The engine has ended: the keys are wiped, and every call throws.
    case failed
}

/// How a refused peer learns of the refusal.
package enum Refusal: Sendable, Equatable {
    /// The handshake continues to its end, and a `reject` record follows.
    case byRecord
    /// The engine is now ``EnginePhase/failing(_:)``, and its last handshake bytes tell the peer.
    case byHandshake
    /// Not at all: whatever this side sent would reveal its identity to an unauthenticated peer.
    case silent
}

/// A record that `open` found at the start of the receive buffer.
package struct OpenedRecord: Sendable {
    /// The number of bytes that the caller must remove from the start of the receive buffer.
    package var consumed: Int
    /// The position of the record's plaintext in the receive buffer; `nil` if the bytes were for
    /// the engine alone, such as a change of key.
    package var plaintext: Range<Int>?

    package init(consumed: Int, plaintext: Range<Int>?) {
        self.consumed = consumed
        self.plaintext = plaintext
    }
}

/// A handshake and the record protection that results from it, without I/O.
///
/// An engine takes and returns bytes; it has no socket, clock or task. Only one caller at a time may
/// use an engine. Once a mutating call throws, the engine must not be used again: its owner drops it, and the
/// engine's `deinit` wipes the keys. Sealing and opening allocate nothing, except in the underlying
/// library.
package protocol SecureEngine: ~Copyable {
    /// The engine's phase.
    var phase: EnginePhase { get }
    /// Whether a u16 length precedes each handshake message on the link. The channel adds and
    /// removes these lengths, so the engine gets whole messages.
    var framesHandshake: Bool { get }

    /// Takes handshake bytes from the peer and returns how many were consumed. If
    /// ``framesHandshake``, the bytes are one whole message, and all are consumed. Otherwise they
    /// are any part of a stream; incomplete messages and later records are not consumed.
    @discardableResult
    mutating func receiveHandshake(_ bytes: Span<UInt8>) throws(ChannelError) -> Int

    /// The next handshake bytes to send, without a length; `nil` if this side has none to send now.
    mutating func nextHandshake() throws(ChannelError) -> [UInt8]?

    /// Continues a handshake that is `awaitingTrustDecision`.
    mutating func admit() throws(ChannelError)

    /// Refuses the peer of a handshake that is `awaitingTrustDecision`; returns how the peer learns
    /// of the refusal.
    mutating func refuse() -> Refusal

    /// Whether the engine itself announces a change of key, so that no `rekey` record is sent.
    var announcesRekey: Bool { get }
    /// Whether, in direct mode, a peer that sends no more always says so with an empty record. If
    /// so, the end of the link before such a record means that the link was cut.
    var provesEnd: Bool { get }
    /// Whether the peer has proven the identity that it claims. If this is false when the engine is
    /// established, the peer's first record is the proof.
    var isPeerProven: Bool { get }
    /// Whether the peer of an established engine has no proof of this side's identity yet. If so,
    /// the first record that this side seals is the proof.
    var owesProof: Bool { get }
    /// The payload length in bytes of a bulk record; see ``Record/bulkPayload``.
    var bulkPayload: Int { get }

    /// The length of a sealed record with `count` bytes of plaintext.
    func sealedLength(_ count: Int) -> Int

    /// Seals the plaintext `head` (such as the record's type) followed by `payload` as one record.
    /// Writes the record directly to `output`, which has room for ``sealedLength(_:)``. `head` has
    /// at most 1,024 bytes.
    mutating func seal(
        _ head: Span<UInt8>, _ payload: Span<UInt8>, into output: inout OutputSpan<UInt8>
    ) throws(ChannelError)

    /// Opens the record at the start of `buffer` in place, or returns `nil` while the record is
    /// incomplete.
    ///
    /// The buffer must begin with the bytes that the last call did not consume, unchanged.
    mutating func open(_ buffer: inout MutableSpan<UInt8>) throws(ChannelError) -> OpenedRecord?

    /// Changes the sending key, from the next record on.
    mutating func rekeySending() throws(ChannelError)

    /// Changes the receiving key, from the next record on.
    mutating func rekeyReceiving() throws(ChannelError)

    /// Derives bytes from this session, `label` and `context`: equal on both sides, and the same
    /// after a rekey.
    func export(label: String, context: [UInt8], count: Int) throws(ChannelError) -> SecretBytes

    /// The hash over the whole handshake, which identifies the session.
    var handshakeHash: [UInt8] { get }
}

extension SecureEngine where Self: ~Copyable {
    /// False: a `rekey` record announces a change of key.
    package var announcesRekey: Bool { false }
    /// False: in direct mode, a peer may end the link without an empty record.
    package var provesEnd: Bool { false }
    /// True: the peer of an established engine is proven.
    package var isPeerProven: Bool { true }
    /// False: this side has already given its proof.
    package var owesProof: Bool { false }
    /// ``Record/bulkPayload``.
    package var bulkPayload: Int { Record.bulkPayload }
}

extension ChannelError {
    /// The engine was called in a phase that does not allow the call.
    package static var outOfPlace: ChannelError {
        ChannelError(.internal, "the engine was called in the wrong phase")
    }
}
