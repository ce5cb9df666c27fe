internal import BLESecChannelCore
@testable internal import BLESecCredentials
internal import BLESecNoise
internal import BLESecPrimitives
internal import BLESecTLSEngine

/// The keys and certificates of all targets. They never change, so that an input has the same
/// effect in every run.
enum Devices {
    /// The time at which every target runs, in seconds since 1970.
    static let now: Int64 = 1_800_000_000
    /// The validity of all certificates and revocation lists: a day before and a day after ``now``.
    static let validity = now - 86_400...now + 86_400

    /// A secret of `count` bytes, whose values count up from `first`.
    static func secret(_ first: UInt8, count: Int = 32) -> SecretBytes {
        let bytes = (0..<count).map { first &+ UInt8(truncatingIfNeeded: $0) }
        return SecretBytes(copying: bytes.span)
    }

    static func keyPair(_ first: UInt8, _ curve: Curve = .x25519) -> DHKeyPair {
        must { try DHKeyPair(curve: curve, privateKey: secret(first, count: curve.keyLength)) }
    }

    static let dialer = IdentityKey(keyPair(0x00))
    static let acceptor = IdentityKey(keyPair(0x20))
    /// A key that no device has any more.
    static let lost = IdentityKey(keyPair(0x80))
    static let ephemerals: [ChannelRole: DHKeyPair] = [
        .dialer: keyPair(0x40), .acceptor: keyPair(0x60),
    ]
    static let preSharedKeys = (0..<6).map { index in
        must {
            let key = secret(UInt8(0xA0 + index))
            return try PreSharedKey(key)
        }
    }

    static func identity(_ role: ChannelRole) -> IdentityKey { role == .dialer ? dialer : acceptor }

    // MARK: - Certificates

    /// The PKCS#8 form of the Ed25519 private key whose bytes count up from `first`.
    static func signingKeyInfo(_ first: UInt8) -> SecretBytes {
        let prefix: [UInt8] = [
            0x30, 0x2E, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x70, 0x04, 0x22,
            0x04, 0x20,
        ]
        let info = prefix + secret(first).span.array
        return SecretBytes(copying: info.span)
    }

    static func signingKey(_ first: UInt8) -> SigningKey {
        must { try SigningKey(signingKeyInfo(first)) }
    }

    static let authorityName = CertificateProfile.name("fuzz")
    /// The first byte of the authority's private key.
    private static let authorityKeyStart: UInt8 = 0xC0

    /// `unsigned` with the authority's signature: a certificate or revocation list, if `unsigned`
    /// is a valid TBSCertificate or TBSCertList (RFC 5280).
    static func signed(_ unsigned: [UInt8]) -> [UInt8] {
        let key = signingKey(authorityKeyStart)
        return must { try key.signed(unsigned) }
    }

    /// The authority's own certificate without its signature.
    static var unsignedAuthority: [UInt8] {
        CertificateProfile.authority(
            name: authorityName, serial: [2, 1, 1], validity: validity,
            key: signingKey(authorityKeyStart).subjectPublicKeyInfo)
    }

    static let authority = signed(unsignedAuthority)
    static let authorities = must { try CertificateAuthorities([authority]) }

    /// The first byte of the private key for a device's certificate.
    private static func deviceKeyStart(_ role: ChannelRole) -> UInt8 {
        role == .dialer ? 0xD0 : 0xE0
    }

    /// A device's certificate without its signature.
    static func unsignedCertificate(_ role: ChannelRole) -> [UInt8] {
        CertificateProfile.device(
            uri: must { try SubjectURI("blesec://devices/\(role)") },
            serial: [2, 1, 2 + role.rawValue], issuer: authorityName,
            authorityKey: signingKey(authorityKeyStart).subjectPublicKeyInfo, validity: validity,
            key: signingKey(deviceKeyStart(role)).subjectPublicKeyInfo)
    }

    /// A revocation list without its signature; it revokes one certificate, which no device has.
    static var unsignedRevocations: [UInt8] {
        CertificateProfile.revocations(
            [([2, 1, 9], now)], number: 1, issuer: authorityName, validity: validity,
            key: signingKey(authorityKeyStart).subjectPublicKeyInfo)
    }

    static let signedRevocations = signed(unsignedRevocations)
    static let revocations = must {
        try RevocationList(lists: [signedRevocations], authorities: authorities)
    }

    /// The PKCS#8 form of a device's key.
    static func keyInfo(_ role: ChannelRole) -> SecretBytes { signingKeyInfo(deviceKeyStart(role)) }

    /// The TLS context of a device.
    static func tls(_ role: ChannelRole) -> TLSContext { role == .dialer ? dialerTLS : acceptorTLS }

    private static let dialerTLS = context(.dialer)
    private static let acceptorTLS = context(.acceptor)

    private static func context(_ role: ChannelRole) -> TLSContext {
        var options = TLSOptions()
        options.clock = { now }
        let certificate = signed(unsignedCertificate(role))
        return must {
            let key = keyInfo(role)
            let identity = try TLSIdentity(certificate: certificate, privateKey: key, now: now)
            return try TLSContext(
                identity: identity, authorities: authorities, revoked: revocations,
                options: options)
        }
    }
}
