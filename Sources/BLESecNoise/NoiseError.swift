public import BLESecPrimitives

/// What can go wrong in a handshake or in transport: where Noise §5 signals an error, and before.
///
/// The detail is for the local side alone: a peer should see no difference between them.
public enum NoiseError: Error, Sendable, Hashable {
    /// An earlier error ended this state; its keys are wiped.
    case failed
    /// It is the other party's turn to write.
    case outOfTurn
    /// The handshake's messages are all done: what is left is `split()`.
    case handshakeFinished
    /// `split()` before the last message.
    case handshakeUnfinished
    /// More than 65,535 bytes (Noise §3).
    case messageTooLong(Int)
    /// Fewer bytes than the message's keys and tags take.
    case messageTooShort(Int)
    /// The output has room for fewer bytes than that.
    case outputTooSmall(needed: Int)
    /// A tag is wrong: another key, psk, prologue or history, or a changed message.
    case authenticationFailed
    /// A public key of low order, or a static one that is not canonical.
    case invalidPublicKey
    /// A key that the pattern needs and nobody gave.
    case missingKey(Key)
    /// A key that the pattern has no use for.
    case unexpectedKey(Key)
    /// A key of another curve or length than the protocol's.
    case wrongKey(Key)
    /// As many pre-shared keys as the pattern takes, and how many were given.
    case wrongPSKCount(expected: Int, given: Int)
    /// All nonces up to 2^64 − 2 are used (Noise §5.1).
    case nonceExhausted
    /// A nonce that this key has been used with before.
    case nonceUsed
    /// In a one-way pattern the responder sends nothing, and the initiator receives nothing.
    case oneWay
    /// A cryptographic library failed.
    case crypto(CryptoError)

    /// The keys that a handshake can be given: Noise §5.3's `s`, `rs`, `e` and `re`.
    public enum Key: Sendable, Hashable {
        /// Our static key pair.
        case localStatic
        /// The peer's static public key.
        case remoteStatic
        /// Our ephemeral key pair.
        case localEphemeral
        /// The peer's ephemeral public key.
        case remoteEphemeral
    }
}

extension NoiseError {
    /// The handshake's view of a primitive's error.
    init(_ error: CryptoError) {
        switch error {
        case .lowOrderPoint: self = .invalidPublicKey
        case .authenticationFailed: self = .authenticationFailed
        case .wrongLength, .libraryFailure: self = .crypto(error)
        }
    }
}

extension NoiseError: CustomStringConvertible {
    /// The error in words.
    public var description: String {
        switch self {
        case .failed: "an earlier error ended this session"
        case .outOfTurn: "it is the other party's turn"
        case .handshakeFinished: "the handshake has no more messages"
        case .handshakeUnfinished: "the handshake is not finished"
        case .messageTooLong(let count): "\(count) bytes are more than a Noise message can have"
        case .messageTooShort(let count): "\(count) bytes are too few for this message"
        case .outputTooSmall(let needed): "the output needs room for \(needed) bytes"
        case .authenticationFailed: "authentication failed"
        case .invalidPublicKey: "the peer's public key is of low order or not canonical"
        case .missingKey(let key): "the pattern needs \(key.words)"
        case .unexpectedKey(let key): "the pattern has no use for \(key.words)"
        case .wrongKey(let key): "\(key.words) is not one of this protocol's curve"
        case .wrongPSKCount(let expected, let given):
            "the pattern takes \(expected) pre-shared keys, not \(given)"
        case .nonceExhausted: "every nonce of this key is used"
        case .nonceUsed: "the nonce was used with this key before"
        case .oneWay: "the pattern has no messages in this direction"
        case .crypto(let error): error.description
        }
    }
}

extension NoiseError.Key {
    fileprivate var words: String {
        switch self {
        case .localStatic: "a static key of our own"
        case .remoteStatic: "the peer's static key"
        case .localEphemeral: "our ephemeral key"
        case .remoteEphemeral: "the peer's ephemeral key"
        }
    }
}
