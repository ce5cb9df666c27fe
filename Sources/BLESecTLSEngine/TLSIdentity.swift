public import BLESecChannelCore
public import BLESecPrimitives
internal import CBLESecOpenSSL

/// A certificate, its private key, and the intermediate certificates that are sent with it.
@safe public final class TLSIdentity: @unchecked Sendable {
    // Unchecked: OpenSSL counts references atomically, and nothing changes the key.
    let key: OpaquePointer
    let certificate: Certificate
    let intermediates: [Certificate]

    /// The DER SubjectPublicKeyInfo of the certificate.
    public let subjectPublicKeyInfo: [UInt8]
    /// The certificate's URI, if it has exactly one.
    public let uri: String?
    /// The fingerprint with which other devices pin this identity.
    public var fingerprint: Fingerprint { Fingerprint(subjectPublicKeyInfo: subjectPublicKeyInfo) }

    /// Makes and checks an identity from certificates and a PKCS#8 private key, all in DER form.
    ///
    /// `now` is the time in seconds since 1970 at which the leaf has to be valid.
    /// - Throws: `badKey`, with a reason that begins with a verb, so that callers can put the name
    ///   of a file before it, when one of these is true:
    ///   - A certificate or the private key cannot be read.
    ///   - The private key does not belong to the leaf.
    ///   - The leaf has expired or is not valid yet, or its key usage forbids TLS.
    ///   - An intermediate may not issue certificates.
    ///   - A key is in an unusual encoding, too weak or unusually large.
    ///   - A signature is too weak.
    ///   - The certificates are longer or more than peers accept.
    public init(
        certificate: [UInt8], intermediates: [[UInt8]] = [], privateKey: borrowing SecretBytes,
        now: Int64
    ) throws(ChannelError) {
        let leaf = try Certificate(der: certificate)
        let chain = try intermediates.map { der throws(ChannelError) in try Certificate(der: der) }
        if let fault = leaf.invalidity(at: now) { throw Self.unusable(fault) }
        guard leaf.maySign else { throw Self.unusable("has a key usage without digital signature") }
        if leaf.extendedUsage(allows: .dialer) == false,
            leaf.extendedUsage(allows: .acceptor) == false
        {
            throw Self.unusable("has an extended key usage without TLS client and server")
        }
        guard chain.allSatisfy(\.isAuthority) else {
            throw .badKey("holds an intermediate that may not issue certificates")
        }
        guard leaf.hasCanonicalKey, chain.allSatisfy(\.hasCanonicalKey) else {
            throw .badKey("holds a certificate whose key is \(CanonicalKey.unusualEncodingReason)")
        }
        let length = TLSContext.chainLength(of: [leaf] + chain)
        guard length <= TLSContext.longestChain else {
            throw .badKey(
                "holds certificates of \(length) bytes together, and peers accept at most "
                    + "\(TLSContext.longestChain): leave out the authority's and others that are "
                    + "not needed")
        }
        guard 1 + chain.count <= TLSContext.mostCertificates else {
            throw .badKey(
                "holds \(1 + chain.count) certificates, and peers accept at most "
                    + "\(TLSContext.mostCertificates): leave out those that are not needed")
        }
        ERR_clear_error()
        guard let key = unsafe DERForm.privateKey(privateKey) else {
            throw .openSSL(.badKey, "comes with a private key that cannot be read")
        }
        ERR_clear_error()
        guard unsafe X509_check_private_key(leaf.pointer, key) == 1 else {
            unsafe EVP_PKEY_free(key)
            throw .openSSL(.badKey, "does not belong to the private key")
        }
        ERR_clear_error()
        guard ([leaf] + chain).allSatisfy({ $0.hasAcceptedStrength && $0.hasStrongSignature }),
            TLSContext.canSend(leaf, chain)
        else {
            unsafe EVP_PKEY_free(key)
            throw .openSSL(
                .badKey,
                "holds a certificate with a key or a signature that is too weak, or with an "
                    + "unusually large key: have a new one issued")
        }
        unsafe self.key = key
        self.certificate = leaf
        self.intermediates = chain
        subjectPublicKeyInfo = leaf.subjectPublicKeyInfo
        let uris = leaf.uris ?? []
        uri = uris.count == 1 ? uris[0] : nil
    }

    deinit { unsafe EVP_PKEY_free(key) }

    /// Whether the certificate may be used in a role: if it has an extended key usage, that must
    /// allow the role.
    public func allows(_ role: ChannelRole) -> Bool {
        certificate.extendedUsage(allows: role) ?? true
    }

    private static func unusable(_ fault: String) -> ChannelError {
        .badKey("holds a certificate that \(fault): have a new one issued")
    }
}
