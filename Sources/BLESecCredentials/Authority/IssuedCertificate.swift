package import BLESecChannelCore
package import BLESecTLSEngine

/// A certificate that an authority issued.
package struct IssuedCertificate: Sendable {
    package enum State: String, Sendable {
        case valid, expired, revoked
        /// The validity begins later, for example because the certificate was issued while the
        /// clock was ahead.
        case future
    }

    package let serial: SerialNumber
    /// The device's URI.
    package let uri: String
    /// The fingerprint of the device's key, which can also be pinned.
    package let fingerprint: Fingerprint
    /// The first and the last second of the validity, in seconds since 1970.
    package let validity: ClosedRange<Int64>
    /// When the certificate was revoked, in seconds since 1970; nil if it was not revoked.
    package internal(set) var revocation: Int64?

    /// Reads a certificate that the authority issued. `revocations` are the dates, in seconds since
    /// 1970, on which the authority revoked certificates.
    init(
        _ certificate: Certificate, revocations: [SerialNumber: Int64] = [:]
    ) throws(ChannelError) {
        guard let serial = certificate.serial, let validity = certificate.validity,
            let uris = certificate.uris, uris.count == 1
        else { throw .badKey("is not a device's certificate") }
        self.serial = serial
        self.validity = validity
        uri = uris[0]
        fingerprint = Fingerprint(subjectPublicKeyInfo: certificate.subjectPublicKeyInfo)
        revocation = revocations[serial]
    }

    package func state(at now: Int64) -> State {
        if revocation != nil { return .revoked }
        if now < validity.lowerBound { return .future }
        return validity.upperBound < now ? .expired : .valid
    }

    /// A time in seconds since 1970 as text, such as 2026-11-21T19:13:37Z.
    package static func timeText(_ time: Int64) -> String { CalendarTime(time).text }
}
