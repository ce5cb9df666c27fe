public import BLESecChannelCore

/// The certificates of the authorities that are accepted. The system's authorities are never used.
public final class CertificateAuthorities: Sendable {
    let certificates: [Certificate]

    /// Reads certificates in their DER form.
    ///
    /// - Throws: `badKey`, with a reason that begins with a verb, when one of these is true:
    ///   - There is no certificate.
    ///   - A certificate cannot be read, or may not issue certificates.
    ///   - A certificate's key is too weak, unusually large, or in an unusual encoding.
    public init(_ certificates: [[UInt8]]) throws(ChannelError) {
        guard !certificates.isEmpty else {
            throw .badKey("holds no certificate of an authority")
        }
        self.certificates = try certificates.map { der throws(ChannelError) in
            let certificate = try Certificate(der: der)
            guard certificate.isAuthority else {
                throw .badKey(
                    "holds a certificate that may not issue others, so it is no authority's")
            }
            guard certificate.hasCanonicalKey else {
                throw .badKey(
                    "holds an authority whose key is \(CanonicalKey.unusualEncodingReason)")
            }
            guard certificate.hasAcceptedStrength else {
                throw .badKey("holds an authority whose key is \(KeyStrength.reason)")
            }
            return certificate
        }
    }
}
