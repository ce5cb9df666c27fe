internal import BLESecPrimitives

/// The two directions of a finished handshake; Noise §5.3's pair of cipher states.
///
/// Messages must arrive in order and without gaps: a message that cannot be decrypted ends the
/// receiving direction. For datagrams see `StatelessTransport`.
public struct TransportState: ~Copyable, Sendable {
    /// The difference between the lengths of a message and its plaintext: the tag, in bytes.
    public static var overhead: Int { AEADAlgorithm.tagLength }
    /// The longest plaintext in bytes.
    public static var maximumPlaintextLength: Int { HandshakeState.maximumMessageLength - overhead }

    /// This party's role in the handshake.
    public let role: Role
    /// Whether only the initiator sends (Noise §7.4).
    public let isOneWay: Bool
    /// `h` of the finished handshake, which identifies the session (Noise §11.2).
    public let handshakeHash: [UInt8]
    /// The peer's static public key, if the pattern has one.
    public let remoteStatic: [UInt8]?
    /// Keys for other layers, unchanged by a rekey.
    public let additionalKeys: AdditionalSymmetricKeys

    var sending: CipherState
    var receiving: CipherState

    init(
        _ keys: consuming SplitKeys, isFirstWriter: Bool, role: Role, isOneWay: Bool,
        handshakeHash: [UInt8], remoteStatic: [UInt8]?
    ) {
        if isFirstWriter {
            sending = keys.first
            receiving = keys.second
        } else {
            sending = keys.second
            receiving = keys.first
        }
        additionalKeys = keys.additional
        self.role = role
        self.isOneWay = isOneWay
        self.handshakeHash = handshakeHash
        self.remoteStatic = remoteStatic
    }

    /// The nonce of the next message to send.
    public var sendingNonce: UInt64 { sending.nonce }
    /// The nonce of the next message to receive.
    public var receivingNonce: UInt64 { receiving.nonce }
    /// Whether an error or ``wipe()`` has ended either direction.
    public var isFailed: Bool { sending.isFailed || receiving.isFailed }

    /// Encrypts `count` bytes of `buffer` from `offset` on, in place; the 16-byte tag follows them.
    ///
    /// - Throws: `NoiseError.messageTooLong` above 65,519 bytes, and `.outputTooSmall` without room
    ///   for the tag; these two do not change the state. Also `.nonceExhausted`, `.oneWay`,
    ///   `.failed`.
    public mutating func encrypt(
        inPlace buffer: inout MutableSpan<UInt8>, at offset: Int = 0, count: Int
    ) throws(NoiseError) {
        guard !isOneWay || role == .initiator else { throw .oneWay }
        try Self.requireRoom(for: count, at: offset, in: buffer.count)
        try sending.encryptWithAd([], &buffer, at: offset, count: count)
    }

    /// Throws `.messageTooLong` if `count` is above ``maximumPlaintextLength``, and
    /// `.outputTooSmall` unless `count` bytes and their tag fit at `offset` into a buffer of
    /// `length` bytes.
    static func requireRoom(
        for count: Int, at offset: Int, in length: Int
    ) throws(NoiseError) {
        guard count <= maximumPlaintextLength else {
            throw .messageTooLong(min(count, Int.max - overhead) + overhead)
        }
        let (needed, isTooMuch) = offset.addingReportingOverflow(count + overhead)
        guard offset >= 0, count >= 0, !isTooMuch, needed <= length else {
            throw .outputTooSmall(needed: isTooMuch ? .max : needed)
        }
    }

    /// Throws `.messageTooLong` if `count` is above `HandshakeState.maximumMessageLength`, and
    /// `.messageTooShort` if `count` is less than a tag, or if a buffer of `length` bytes has fewer
    /// than `count` bytes from `offset` on.
    static func requireMessage(
        of count: Int, at offset: Int, in length: Int
    ) throws(NoiseError) {
        guard count <= HandshakeState.maximumMessageLength else { throw .messageTooLong(count) }
        guard count >= overhead else { throw .messageTooShort(count) }
        let available = (0...length).contains(offset) ? length - offset : 0
        guard count <= available else { throw .messageTooShort(available) }
    }

    /// Decrypts the message that fills `buffer`, in place; the plaintext is its first bytes.
    ///
    /// - Returns: the plaintext's length.
    /// - Throws: `NoiseError`, such as `.authenticationFailed`. Every error except `.oneWay` ends
    ///   the receiving direction.
    public mutating func decrypt(
        inPlace buffer: inout MutableSpan<UInt8>
    ) throws(NoiseError) -> Int {
        let count = buffer.count
        return try decrypt(inPlace: &buffer, at: 0, count: count)
    }

    /// Decrypts the message of `count` bytes at `offset` in `buffer`, in place.
    ///
    /// - Returns: the length of the plaintext, which begins at `offset`.
    /// - Throws: as `decrypt(inPlace:)`. A message that is not entirely inside `buffer` is
    ///   `.messageTooShort`.
    public mutating func decrypt(
        inPlace buffer: inout MutableSpan<UInt8>, at offset: Int, count: Int
    ) throws(NoiseError) -> Int {
        guard !isOneWay || role == .responder else { throw .oneWay }
        guard !receiving.isFailed else { throw .failed }
        do throws(NoiseError) {
            try Self.requireMessage(of: count, at: offset, in: buffer.count)
        } catch {
            receiving.wipe()
            throw error
        }
        try receiving.decryptWithAd([], &buffer, at: offset, count: count)
        return count - Self.overhead
    }

    /// Encrypts `plaintext` and appends the message to `output`.
    ///
    /// - Throws: as `encrypt(inPlace:at:count:)`.
    public mutating func encrypt(
        _ plaintext: Span<UInt8>, into output: inout OutputSpan<UInt8>
    ) throws(NoiseError) {
        try encrypt(Span(), plaintext, into: &output)
    }

    /// Encrypts `head` and then `plaintext`, and appends the message to `output`. `head` has at
    /// most 1,024 bytes.
    ///
    /// - Throws: as `encrypt(inPlace:at:count:)`.
    package mutating func encrypt(
        _ head: Span<UInt8>, _ plaintext: Span<UInt8>, into output: inout OutputSpan<UInt8>
    ) throws(NoiseError) {
        let needed = head.count + plaintext.count + Self.overhead
        guard !isOneWay || role == .initiator else { throw .oneWay }
        guard needed <= HandshakeState.maximumMessageLength else { throw .messageTooLong(needed) }
        guard needed <= output.freeCapacity else { throw .outputTooSmall(needed: needed) }
        try sending.encrypt(head, plaintext, into: &output)
    }

    /// Decrypts `message` and appends the plaintext to `output`, which needs room for the message.
    ///
    /// - Throws: as `decrypt(inPlace:)`; `NoiseError.outputTooSmall`, which changes nothing.
    public mutating func decrypt(
        _ message: Span<UInt8>, into output: inout OutputSpan<UInt8>
    ) throws(NoiseError) {
        guard message.count <= output.freeCapacity else {
            throw .outputTooSmall(needed: message.count)
        }
        let start = output.count
        output.append(copying: message)
        var buffer = output.mutableSpan
        do throws(NoiseError) {
            _ = try decrypt(inPlace: &buffer, at: start, count: message.count)
        } catch {
            output.removeLast(message.count)
            throw error
        }
        output.removeLast(Self.overhead)
    }

    /// Changes the sending key; the nonce continues (Noise §11.3).
    public mutating func rekeySend() throws(NoiseError) { try sending.rekey() }

    /// Changes the receiving key; the nonce continues (Noise §11.3).
    public mutating func rekeyReceive() throws(NoiseError) { try receiving.rekey() }

    /// Wipes both keys; every later call throws `NoiseError.failed`.
    public mutating func wipe() {
        sending.wipe()
        receiving.wipe()
    }

    /// Sets the nonce of the next message to send, for tests of the last nonces.
    package mutating func setSendingNonce(_ nonce: UInt64) { sending.setNonce(nonce) }

    /// Sets the nonce of the next message to receive, for tests of the last nonces.
    package mutating func setReceivingNonce(_ nonce: UInt64) { receiving.setNonce(nonce) }
}
