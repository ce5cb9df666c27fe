package import BLESecChannelCore
package import BLESecTLSEngine

/// A certificate that an authority issued.
package struct IssuedCertificate: Sendable {
    /// What has become of it.
    package enum State: String, Sendable { case valid, expired, revoked }

    package let serial: SerialNumber
    /// The device's name.
    package let uri: String
    /// The fingerprint of the device's key, by which it can be pinned as well.
    package let fingerprint: Fingerprint
    /// The first and the last second in which it is valid, since 1970.
    package let validity: ClosedRange<Int64>
    /// When it was revoked.
    package internal(set) var revocation: Int64?

    /// Reads a certificate of this authority's; `revocations` is what it has revoked.
    init(
        _ certificate: Certificate, revocations: [SerialNumber: Int64] = [:]
    ) throws(ChannelError) {
        guard let serial = certificate.serial, let validity = certificate.validity,
            let uris = certificate.uris, uris.count == 1
        else { throw ChannelError(.badKey, "is not a device's certificate") }
        self.serial = serial
        self.validity = validity
        uri = uris[0]
        fingerprint = Fingerprint(subjectPublicKeyInfo: certificate.subjectPublicKeyInfo)
        revocation = revocations[serial]
    }

    package func state(at now: Int64) -> State {
        if revocation != nil { return .revoked }
        return validity.upperBound < now ? .expired : .valid
    }

    /// A time of the validity or the revocation as people read one, such as 2026-11-21T19:13:37Z.
    package static func text(_ time: Int64) -> String { CalendarTime(time).text }
}
