internal import BLESecPrimitives

/// Transport with an explicit nonce for each message, for datagrams that may be lost or reordered;
/// Noise §11.4.
///
/// The caller sends the nonce with the message, and must never send two messages with the same
/// nonce. Anyone can send a message that cannot be decrypted, so such a message does not end the
/// state.
/// *After* the decryption of a message, check with a `ReplayWindow` that its nonce is new.
public struct StatelessTransport: ~Copyable, Sendable {
    /// This party's role in the handshake.
    public let role: Role
    /// Whether only the initiator sends (Noise §7.4).
    public let isOneWay: Bool
    /// `h` of the finished handshake.
    public let handshakeHash: [UInt8]
    /// The peer's static public key, if the pattern has one.
    public let remoteStatic: [UInt8]?
    /// Keys for other layers.
    public let additionalKeys: AdditionalSymmetricKeys
    /// The lowest nonce for sending. Lower nonces were used before.
    public let firstNonce: UInt64
    /// The lowest nonce for receiving. Messages with lower nonces were received before, in order.
    public let firstReceivingNonce: UInt64

    private var sending: CipherState
    private var receiving: CipherState

    /// Takes the keys of `transport`. Nonces with which `transport` has sent or received cannot be
    /// used again in the same direction.
    public init(_ transport: consuming TransportState) {
        role = transport.role
        isOneWay = transport.isOneWay
        handshakeHash = transport.handshakeHash
        remoteStatic = transport.remoteStatic
        firstNonce = transport.sendingNonce
        firstReceivingNonce = transport.receivingNonce
        additionalKeys = transport.additionalKeys
        sending = transport.sending
        receiving = transport.receiving
    }

    /// Encrypts `count` bytes of `buffer` from `offset` on, in place; the tag follows them.
    ///
    /// - Throws: `NoiseError.messageTooLong`, `.outputTooSmall`, `.nonceUsed` below `firstNonce`,
    ///   `.nonceExhausted` for 2^64 − 1, `.oneWay`.
    public mutating func encrypt(
        inPlace buffer: inout MutableSpan<UInt8>, at offset: Int = 0, count: Int, nonce: UInt64
    ) throws(NoiseError) {
        guard !isOneWay || role == .initiator else { throw .oneWay }
        guard nonce >= firstNonce else { throw .nonceUsed }
        guard nonce <= CipherState.lastNonce else { throw .nonceExhausted }
        try TransportState.requireRoom(for: count, at: offset, in: buffer.count)
        sending.setNonce(nonce)
        try sending.encryptWithAd([], &buffer, at: offset, count: count)
    }

    /// Decrypts the message of `count` bytes at `offset` in `buffer`, in place.
    ///
    /// - Returns: the length of the plaintext, which begins at `offset`.
    /// - Throws: `NoiseError.authenticationFailed`; `.messageTooShort` if `count` is negative or
    ///   less than a tag, or the message is not entirely inside `buffer`; `.messageTooLong`;
    ///   `.nonceUsed` below `firstReceivingNonce`; `.nonceExhausted` for 2^64 − 1; `.oneWay`.
    public mutating func decrypt(
        inPlace buffer: inout MutableSpan<UInt8>, at offset: Int = 0, count: Int, nonce: UInt64
    ) throws(NoiseError) -> Int {
        guard !isOneWay || role == .responder else { throw .oneWay }
        guard nonce >= firstReceivingNonce else { throw .nonceUsed }
        guard nonce <= CipherState.lastNonce else { throw .nonceExhausted }
        try TransportState.requireMessage(of: count, at: offset, in: buffer.count)
        receiving.setNonce(nonce)
        try receiving.decryptWithAd(
            [], &buffer, at: offset, count: count, keepingKeyOnFailure: true)
        return count - TransportState.overhead
    }

    /// Changes the sending key (Noise §11.3).
    public mutating func rekeySend() throws(NoiseError) { try sending.rekey() }

    /// Changes the receiving key (Noise §11.3).
    public mutating func rekeyReceive() throws(NoiseError) { try receiving.rekey() }
}
