import BLESecChannelCore
import Testing

@testable import BLESecTLSEngine

@Suite struct OpenSSLErrorTests {
    /// The channel error's code for an error of OpenSSL's TLS library. OpenSSL's own code of the
    /// error consists of the library's number, 20, and the 23 bits of `reason`.
    private func code(_ reason: UInt) -> ChannelError.Code {
        ChannelError(tls: .openSSL(code: 20 << 23 | reason, text: "")).code
    }

    @Test("only an alert from the peer is reported as a refusal by the peer")
    func alerts() {
        // RFC 8446 §6: close_notify, bad_certificate, certificate_required; the greatest number.
        for alert: UInt in [0, 42, 116, 255] { #expect(code(1_000 + alert) == .refused) }
        // Errors of OpenSSL itself: ASN1_LIB (an undecodable certificate) and INTERNAL_ERROR; and
        // a reason just above those of alerts.
        for reason: UInt in [524_301, 786_691, 1_256] {
            #expect(code(reason) == .protocolViolation)
        }
    }
}
