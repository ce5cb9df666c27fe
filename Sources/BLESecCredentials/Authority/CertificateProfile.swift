internal import BLESecPrimitives

/// The parts of certificates and revocation lists that an authority signs (TBSCertificate and
/// TBSCertList, RFC 5280), reduced to the necessary fields. Each parameter `key` or `authorityKey`
/// is a SubjectPublicKeyInfo in DER form.
///
/// Both ends of a handshake send their certificate over a slow radio, so a device certificate has
/// only fields that are needed. Its subject is empty, since the URI in the subjectAltName is the
/// name. Without basic constraints, it is not an authority's certificate. Without a key usage, its
/// key may sign. It has an authority key identifier, since strict verifiers refuse a certificate
/// without one; the identifier has only eight bytes. The authority's certificate is never sent.
enum CertificateProfile {
    /// A certificate's validity begins this many seconds before the certificate is issued: an hour,
    /// since a device's clock may be behind the authority's.
    static let backdating: Int64 = 3_600

    /// The certificate of an authority, which may issue certificates for devices, but not for other
    /// authorities.
    static func authority(
        name: [UInt8], serial: [UInt8], validity: ClosedRange<Int64>, key: [UInt8]
    ) -> [UInt8] {
        certificate(
            serial: serial, issuer: name, subject: name, validity: validity, key: key,
            extensions: [
                // basicConstraints: cA TRUE, pathLenConstraint 0.
                criticalField(0x13, DER.sequence([0x01, 0x01, 0xFF], DER.number(0))),
                // keyUsage: keyCertSign and cRLSign, bits 5 and 6.
                criticalField(0x0F, [0x03, 0x02, 0x01, 0x06]),
                extensionField(0x0E, DER.element(DER.octetString, keyIdentifier(key))),
            ])
    }

    /// The certificate of a device named `uri`, for both roles.
    static func device(
        uri: SubjectURI, serial: [UInt8], issuer: [UInt8], authorityKey: [UInt8],
        validity: ClosedRange<Int64>, key: [UInt8]
    ) -> [UInt8] {
        certificate(
            serial: serial, issuer: issuer, subject: DER.sequence(), validity: validity, key: key,
            extensions: [
                // subjectAltName, critical because the subject is empty (§4.2.1.6).
                criticalField(0x11, DER.sequence(DER.element(0x86, Array(uri.text.utf8)))),
                // extKeyUsage: a device both dials and listens.
                extensionField(0x25, DER.sequence(serverAuth, clientAuth)),
                authorityKeyIdentifier(authorityKey),
            ])
    }

    static func revocations(
        _ dates: [(serial: [UInt8], date: Int64)], number: UInt64, issuer: [UInt8],
        validity: ClosedRange<Int64>, key: [UInt8]
    ) -> [UInt8] {
        let entries = dates.map { DER.sequence($0.serial, DER.time($0.date)) }
        let extensions = [authorityKeyIdentifier(key), extensionField(0x14, DER.number(number))]
        return DER.sequence(
            DER.number(1), SigningKey.algorithm, issuer, DER.time(validity.lowerBound),
            DER.time(validity.upperBound),
            // An empty list of entries is left out (§5.1.2.6).
            entries.isEmpty ? [] : DER.sequence(Array(entries.joined())),
            DER.tagged(0, DER.sequence(Array(extensions.joined()))))
    }

    /// A Name (RFC 5280 §4.1.2.4) that consists of a common name.
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

    /// The extension 2.5.29.`arc`. `flag` is the encoded critical flag; without it, the extension
    /// is not critical.
    private static func extensionField(
        _ arc: UInt8, flag: [UInt8] = [], _ value: [UInt8]
    ) -> [UInt8] {
        DER.sequence(DER.identifier(0x55, 0x1D, arc), flag, DER.element(DER.octetString, value))
    }

    private static func criticalField(_ arc: UInt8, _ value: [UInt8]) -> [UInt8] {
        extensionField(arc, flag: [0x01, 0x01, 0xFF], value)
    }

    private static func authorityKeyIdentifier(_ key: [UInt8]) -> [UInt8] {
        extensionField(0x23, DER.sequence(DER.element(0x80, keyIdentifier(key))))
    }

    /// Eight bytes of a hash over the key. The shorter method of RFC 5280 (§4.2.1.2) also gives
    /// eight bytes; any value that distinguishes keys is allowed.
    private static func keyIdentifier(_ key: [UInt8]) -> [UInt8] { Array(sha256(key).prefix(8)) }
}
