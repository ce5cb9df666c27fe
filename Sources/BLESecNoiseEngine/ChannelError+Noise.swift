internal import BLESecChannelCore
internal import BLESecNoise

extension ChannelError {
    /// A Noise error in the channel's terms.
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

    /// An engine that was called in a phase that has no such call.
    static var outOfPlace: ChannelError {
        ChannelError(.internal, "the engine was called in the wrong phase")
    }
}
