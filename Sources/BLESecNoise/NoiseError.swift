public import BLESecPrimitives

/// An error of a handshake, of transport, or of their setup; Noise §5.
///
/// The details are only for the local side: a peer should not be able to distinguish the errors.
public enum NoiseError: Error, Sendable, Hashable {
    /// An earlier error ended the state; its keys are wiped.
    case failed
    /// It is the other party's turn to write.
    case outOfTurn
    /// All messages of the handshake are done; only `split()` remains.
    case handshakeFinished
    /// `split()` was called before the last message.
    case handshakeUnfinished
    /// The message has more than 65,535 bytes (Noise §3).
    case messageTooLong(Int)
    /// The message is shorter than its keys and tags, or extends beyond the given buffer.
    case messageTooShort(Int)
    /// The output has room for fewer bytes than needed.
    case outputTooSmall(needed: Int)
    /// A tag is wrong: the parties have different keys, psks, prologues or handshake histories, or
    /// the message was modified.
    case authenticationFailed
    /// A public key of low order, or a received static public key that is not canonical.
    case invalidPublicKey
    /// A key that the pattern needs was not given.
    case missingKey(Key)
    /// A key was given that the pattern does not use.
    case unexpectedKey(Key)
    /// A given key has the wrong curve or length, or is not canonical.
    case wrongKey(Key)
    /// The number of pre-shared keys is wrong.
    case wrongPSKCount(expected: Int, given: Int)
    /// All nonces up to 2^64 − 2 were used (Noise §5.1).
    case nonceExhausted
    /// The nonce was used before with this key.
    case nonceUsed
    /// In a one-way pattern the responder sends nothing, and the initiator receives nothing.
    case oneWay
    /// A cryptographic library failed.
    case crypto(CryptoError)

    /// The keys that a handshake can be given: `s`, `rs`, `e` and `re` of Noise §5.3.
    public enum Key: Sendable, Hashable {
        /// This party's static key pair.
        case localStatic
        /// The peer's static public key.
        case remoteStatic
        /// This party's ephemeral key pair.
        case localEphemeral
        /// The peer's ephemeral public key.
        case remoteEphemeral
    }
}

extension NoiseError {
    init(_ error: CryptoError) {
        switch error {
        case .lowOrderPoint: self = .invalidPublicKey
        case .authenticationFailed: self = .authenticationFailed
        case .wrongLength, .libraryFailure: self = .crypto(error)
        }
    }
}

extension NoiseError: CustomStringConvertible {
    /// The error as text.
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
        case .wrongKey(let key): "\(key.words) is not a key of this protocol's curve"
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
