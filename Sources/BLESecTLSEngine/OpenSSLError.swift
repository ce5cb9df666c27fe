package import BLESecChannelCore
internal import CBLESecOpenSSL

/// OpenSSL's error queue of the current thread.
package enum OpenSSLError {
    /// Empties the queue. The queue is usually empty already, and checking that costs much less
    /// than clearing it.
    package static func clear() { if ERR_peek_error() != 0 { ERR_clear_error() } }

    /// The first error since the queue was cleared; the first error is nearest to the cause.
    /// Empties the queue.
    package static func take() -> ChannelError.Underlying? { take(ERR_peek_error()) }

    /// The first error of TLS since the queue was cleared; if there is none, the first error.
    /// Empties the queue. From OpenSSL 3.5 on, the error of a cryptographic primitive may come
    /// before the error of TLS that it has caused. In this case the queue's first error does not
    /// show what is wrong with the handshake.
    package static func takeTLS() -> ChannelError.Underlying? {
        let first = ERR_peek_error()
        while true {
            let code = ERR_peek_error()
            guard code != 0 else { return take(first) }
            guard blesec_error_is_tls(code) == 0 else { return take(code) }
            _ = ERR_get_error()
        }
    }

    /// The last error, which belongs to the last call even if the queue was not cleared before that
    /// call. Empties the queue.
    package static func takeLast() -> ChannelError.Underlying? { take(ERR_peek_last_error()) }

    private static func take(_ code: UInt) -> ChannelError.Underlying? {
        ERR_clear_error()
        guard code != 0 else { return nil }
        var text = [CChar](repeating: 0, count: 256)
        unsafe ERR_error_string_n(code, &text, text.count)
        let bytes = text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
        return .openSSL(code: code, text: String(decoding: bytes, as: UTF8.self))
    }
}

extension ChannelError {
    /// An error whose cause is OpenSSL's first error; empties OpenSSL's queue.
    package static func openSSL(_ code: Code, _ reason: String) -> ChannelError {
        ChannelError(code, reason, underlying: OpenSSLError.take())
    }

    /// Translates OpenSSL's error after a failed call.
    ///
    /// If `peerAlertEndsSession` is true, an alert from the peer means that the peer has ended the
    /// session. If it is false, the peer has not sent application data yet, and an alert means that
    /// the peer refuses this side.
    init(tls error: Underlying?, peerAlertEndsSession: Bool = false) {
        guard case .openSSL(let code, _) = error else {
            self.init(.protocolViolation, "the peer's bytes are not those of TLS")
            return
        }
        self = Self.translated(code, peerAlertEndsSession: peerAlertEndsSession)
        underlying = error
    }

    private static func translated(_ code: UInt, peerAlertEndsSession: Bool) -> ChannelError {
        guard blesec_error_is_alert(code) == 0 else {
            return peerAlertEndsSession
                ? ChannelError(.protocolViolation, "the peer ended the TLS session with an alert")
                : ChannelError(
                    .refused, "the peer refused this side's certificate or its TLS parameters")
        }
        return switch blesec_error_reason(code) {
        case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE: ChannelError(CertificateFault.missing)
        case SSL_R_BAD_SIGNATURE, SSL_R_DIGEST_CHECK_FAILED,
            SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC, SSL_R_BAD_RECORD_TYPE:
            ChannelError(
                .authenticationFailed,
                "the peer's message cannot be authenticated: the peer has other keys, or someone "
                    + "changed bytes on the way")
        case SSL_R_EXCESSIVE_MESSAGE_SIZE: .tooLongMessage
        case SSL_R_UNSUPPORTED_PROTOCOL, SSL_R_WRONG_SSL_VERSION, SSL_R_WRONG_VERSION_NUMBER,
            SSL_R_VERSION_TOO_LOW:
            ChannelError(.noCommonProtocol, "the peer does not speak TLS 1.3")
        case SSL_R_NO_SHARED_CIPHER, SSL_R_NO_SHARED_GROUPS, SSL_R_NO_SUITABLE_KEY_SHARE,
            SSL_R_NO_SUITABLE_GROUPS, SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM,
            SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS, SSL_R_WRONG_SIGNATURE_TYPE:
            ChannelError(
                .noCommonProtocol, "the two sides share no TLS suite, group or signature algorithm")
        default: ChannelError(.protocolViolation, "the peer broke TLS")
        }
    }

    /// The two sides do not agree on blesec/1 as the application protocol, or only one of them is
    /// in negotiated mode.
    static var otherApplication: ChannelError {
        ChannelError(
            .noCommonProtocol, "the peer's TLS is not for blesec/1: it may be in another mode")
    }

    /// A TLS message of the peer is longer than ``TLSContext/longestMessage``, or has a list that is
    /// longer than usual.
    static var tooLongMessage: ChannelError {
        ChannelError(
            .limitExceeded,
            "the peer's TLS message is too long; a message may have "
                + "\(TLSContext.longestMessage) bytes")
    }

    /// An acceptor completes handshakes without the dialer's certificate.
    static var noCertificateRequest: ChannelError {
        ChannelError(
            .noCommonProtocol,
            "the peer does not request a certificate: it has to authenticate both sides, as in "
                + "mutual TLS")
    }

    /// OpenSSL has sent an empty list of certificates to an acceptor that requests one.
    static var noAcceptedSignature: ChannelError {
        ChannelError(
            .noCommonProtocol,
            "the peer accepts no signature algorithm of this side's key or certificate")
    }

    /// The peer has sent more certificates than ``TLSContext/mostCertificates``.
    static var tooManyCertificates: ChannelError {
        ChannelError(
            .limitExceeded,
            "the peer sends too many certificates: at most \(TLSContext.mostCertificates) are "
                + "accepted")
    }

    /// OpenSSL could not make or configure a context or a connection.
    static func tlsContext() -> ChannelError {
        .openSSL(.internal, "OpenSSL cannot set up TLS with this configuration")
    }

    /// OpenSSL could not write a TLS record after the handshake. If OpenSSL gives no reason, the
    /// fault is not the peer's.
    static func tlsWrite() -> ChannelError {
        guard let error = OpenSSLError.takeLast() else {
            return ChannelError(.internal, "OpenSSL cannot write a TLS record")
        }
        return ChannelError(tls: error, peerAlertEndsSession: true)
    }

    static var malformedRecord: ChannelError {
        ChannelError(.protocolViolation, "the peer's bytes are not a TLS record")
    }
}
