internal import BLESecChannelCore
internal import BLESecNoise

extension ChannelError {
    /// Translates a Noise error into a channel error.
    init(noise error: NoiseError) {
        switch error {
        case .authenticationFailed, .invalidPublicKey:
            self.init(
                .authenticationFailed,
                "the peer's message does not authenticate: it holds other keys, or someone "
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

    /// The engine was called in a phase that does not allow the call.
    static var outOfPlace: ChannelError {
        ChannelError(.internal, "the engine was called in the wrong phase")
    }
}
