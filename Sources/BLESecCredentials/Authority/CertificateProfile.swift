internal import BLESecPrimitives

/// What an authority's certificates and lists say (RFC 5280), and nothing more than that.
///
/// Both ends of a handshake send their certificate over a slow radio, so a device's has no field that
/// nobody needs: an empty subject, since the URI is the name; no basic constraints and no key usage,
/// whose absence means the same; the authority's key identifier, without which strict verifiers refuse
/// it, and in eight bytes. The authority's certificate is never sent.
enum CertificateProfile {
    /// The clock of a device may be behind the authority's by so many seconds: an hour.
    static let backdating: Int64 = 3_600

    /// The certificate of an authority, which may issue devices' certificates but no authorities'.
    static func authority(
        name: [UInt8], serial: [UInt8], validity: ClosedRange<Int64>, key: [UInt8]
    ) -> [UInt8] {
        certificate(
            serial: serial, issuer: name, subject: name, validity: validity, key: key,
            extensions: [
                // basicConstraints: cA TRUE, pathLenConstraint 0.
                critical(0x13, DER.sequence([0x01, 0x01, 0xFF], DER.number(0))),
                // keyUsage: keyCertSign and cRLSign, bits 5 and 6.
                critical(0x0F, [0x03, 0x02, 0x01, 0x06]),
                optional(0x0E, DER.element(DER.octetString, keyIdentifier(key))),
            ])
    }

    /// The certificate of a device that is called `uri`, for both roles.
    static func device(
        uri: SubjectURI, serial: [UInt8], issuer: [UInt8], authorityKey: [UInt8],
        validity: ClosedRange<Int64>, key: [UInt8]
    ) -> [UInt8] {
        certificate(
            serial: serial, issuer: issuer, subject: DER.sequence(), validity: validity, key: key,
            extensions: [
                // subjectAltName, critical because the subject is empty (§4.2.1.6).
                critical(0x11, DER.sequence(DER.element(0x86, Array(uri.text.utf8)))),
                // extKeyUsage: a device dials and listens.
                optional(0x25, DER.sequence(serverAuth, clientAuth)),
                authorityKeyIdentifier(authorityKey),
            ])
    }

    /// A list of what is revoked.
    static func revocations(
        _ dates: [(serial: [UInt8], date: Int64)], number: UInt64, issuer: [UInt8],
        validity: ClosedRange<Int64>, key: [UInt8]
    ) -> [UInt8] {
        let entries = dates.map { DER.sequence($0.serial, DER.time($0.date)) }
        let extensions = [
            authorityKeyIdentifier(key),
            optional(0x14, DER.number(number)),
        ]
        return DER.sequence(
            DER.number(1), SigningKey.algorithm, issuer, DER.time(validity.lowerBound),
            DER.time(validity.upperBound),
            // An empty list of entries is left out (§5.1.2.6).
            entries.isEmpty ? [] : DER.sequence(Array(entries.joined())),
            DER.tagged(0, DER.sequence(Array(extensions.joined()))))
    }

    /// Puts a signature behind what it is over.
    static func signed(_ content: [UInt8], _ signature: [UInt8]) -> [UInt8] {
        DER.sequence(content, SigningKey.algorithm, DER.bitString(signature))
    }

    /// A Name with a common name alone.
    static func name(_ text: String) -> [UInt8] {
        let attribute = DER.sequence(
            DER.identifier(0x55, 0x04, 0x03), DER.element(DER.utf8String, Array(text.utf8)))
        return DER.sequence(DER.element(DER.set, attribute))
    }

    private static let serverAuth = DER.identifier(0x2B, 6, 1, 5, 5, 7, 3, 1)
    private static let clientAuth = DER.identifier(0x2B, 6, 1, 5, 5, 7, 3, 2)

    private static func certificate(
        serial: [UInt8], issuer: [UInt8], subject: [UInt8], validity: ClosedRange<Int64>,
        key: [UInt8], extensions: [[UInt8]]
    ) -> [UInt8] {
        DER.sequence(
            DER.tagged(0, DER.number(2)), serial, SigningKey.algorithm, issuer,
            DER.sequence(DER.time(validity.lowerBound), DER.time(validity.upperBound)), subject,
            key, DER.tagged(3, DER.sequence(Array(extensions.joined()))))
    }

    /// An extension under the arc 2.5.29.
    private static func optional(_ arc: UInt8, _ value: [UInt8]) -> [UInt8] {
        DER.sequence(DER.identifier(0x55, 0x1D, arc), DER.element(DER.octetString, value))
    }

    private static func critical(_ arc: UInt8, _ value: [UInt8]) -> [UInt8] {
        DER.sequence(
            DER.identifier(0x55, 0x1D, arc), [0x01, 0x01, 0xFF],
            DER.element(DER.octetString, value))
    }

    private static func authorityKeyIdentifier(_ key: [UInt8]) -> [UInt8] {
        optional(0x23, DER.sequence(DER.element(0x80, keyIdentifier(key))))
    }

    /// Eight bytes of a hash over the key, as many as the shorter of RFC 5280's own methods
    /// (§4.2.1.2) has; anything that tells keys apart will do.
    private static func keyIdentifier(_ key: [UInt8]) -> [UInt8] { Array(sha256(key).prefix(8)) }
}
