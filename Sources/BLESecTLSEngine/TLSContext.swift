public import BLESecChannelCore
internal import CBLESecOpenSSL

/// What the TLS channels of one configuration share: identity, authorities, revocations, and
/// sessions to resume. Making a context costs more than a handshake, so share it.
@safe public final class TLSContext: @unchecked Sendable {
    // Unchecked: OpenSSL's context counts references atomically and is not changed once it is made.
    let pointer: OpaquePointer

    /// The name of TLS 1.3 among the protocols that a channel offers.
    public static let protocolName = "TLS1.3"
    /// The application protocol that both sides agree on in negotiated mode (RFC 7301).
    static let applicationProtocol = Array("blesec/1".utf8)
    /// The longest certificate list that a side may send, in bytes of the Certificate message:
    /// enough for an RSA key of 2,048 bits and two intermediates. OpenSSL decodes all certificates
    /// of the message before any of them is checked, and an unauthenticated peer may have sent
    /// many small ones.
    static let longestChain = 4 << 10
    /// The longest body of a handshake message that a peer may send, in bytes. Usual messages are
    /// shorter: a ClientHello has about 250 bytes, and up to 2,000 with key shares of ML-KEM.
    static let longestMessage = longestChain
    /// The most certificates that a side may send.
    static let mostCertificates = 8

    /// The length of a Certificate message with these certificates (RFC 8446 §4.4.2). The message
    /// has an empty context (1 byte), the list's length (3 bytes), and for each certificate its
    /// length (3 bytes), its DER form, and an empty list of extensions (2 bytes).
    static func chainLength(of certificates: [Certificate]) -> Int {
        certificates.reduce(1 + 3) { $0 + 3 + $1.length + 2 }
    }

    /// The cipher suites, the faster one first, assuming that the processor has AES instructions.
    private static let suites = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
    /// OpenSSL's security level: keys and signatures of 112 bits of security or more.
    private static let securityLevel: Int32 = 2
    /// The bits of security of ``securityLevel``. OpenSSL applies the level to a peer's key only
    /// when it verifies the path to an authority, so ``PeerCertificate`` checks every key itself.
    static let leastSecurityBits: Int32 = 112
    /// The signature algorithms: those of Ed25519 and P-256 first, then others of the security
    /// level. Each one adds four bytes to a handshake, two in each direction.
    private static let signatures =
        "ed25519:ecdsa_secp256r1_sha256:ecdsa_secp384r1_sha384:ecdsa_secp521r1_sha512:ed448:"
        + "rsa_pss_rsae_sha256"

    /// The identity of this side.
    public let identity: TLSIdentity
    /// The authorities. Each peer's certificate must lead to one of them, whatever the trust policy
    /// is. With `nil`, the trust policy decides alone.
    public let authorities: CertificateAuthorities?
    let revoked: (any RevocationSource)?
    let clock: @Sendable () -> Int64
    let sessions: TLSSessionStore?

    /// Makes a context.
    ///
    /// - Throws: `configuration` if `options` names no group, or names a group that the linked
    ///   OpenSSL lacks, or for `revoked` without `authorities`; `internal` when OpenSSL fails.
    public init(
        identity: TLSIdentity, authorities: CertificateAuthorities? = nil,
        revoked: (any RevocationSource)? = nil, options: TLSOptions = TLSOptions()
    ) throws(ChannelError) {
        // A revocation list names a certificate by its serial number and its issuer. The issuer is
        // the next certificate of a verified path. Without authorities there is no such path, so no
        // entry of the list could match.
        guard revoked == nil || authorities != nil else {
            throw ChannelError(
                .configuration,
                "revocation lists have no effect without authorities: give the authorities, or "
                    + "refuse single keys by a deny list")
        }
        ERR_clear_error()
        guard let context = unsafe SSL_CTX_new(TLS_method()) else { throw .tlsContext() }
        unsafe pointer = context
        self.identity = identity
        self.authorities = authorities
        self.revoked = revoked
        clock = options.clock
        sessions = options.resumes ? TLSSessionStore() : nil
        try useProfile()
        try use(options.groups)
        try useCertificates()
        TLSSession.installCallbacks(on: self)
        if options.resumes { TLSSession.installResumption(on: self) }
    }

    deinit { unsafe SSL_CTX_free(pointer) }

    /// Whether the linked OpenSSL has a key exchange group of this name.
    public static func supports(group: String) -> Bool {
        // OpenSSL reads `group` as a list of groups. A name consists of letters, digits, `-` and
        // `_`. Other characters separate names, or mark the name that follows: with `?`, OpenSSL
        // skips a group that it lacks. A `-` in front of a name removes that group from the list.
        // From 3.5 on, the name DEFAULT means several groups.
        guard let first = group.utf8.first, isLetterOrDigit(first),
            group.utf8.allSatisfy({ isLetterOrDigit($0) || $0 == 0x2D || $0 == 0x5F }),
            group.lowercased() != "default"
        else { return false }
        guard let context = unsafe SSL_CTX_new(TLS_method()) else { return false }
        defer {
            unsafe SSL_CTX_free(context)
            ERR_clear_error()
        }
        return unsafe blesec_ssl_context_groups(context, group) == 1
    }

    private static func isLetterOrDigit(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte)
            || (0x61...0x7A).contains(byte)
    }

    /// Whether OpenSSL lets a context send these certificates. If not, OpenSSL's error queue has
    /// the reason: a key or a signature is below the security level.
    static func canSend(_ leaf: Certificate, _ intermediates: [Certificate]) -> Bool {
        guard let context = unsafe SSL_CTX_new(TLS_method()) else { return false }
        defer { unsafe SSL_CTX_free(context) }
        unsafe SSL_CTX_set_security_level(context, securityLevel)
        return unsafe use(leaf, intermediates, in: context)
    }

    private static func use(
        _ leaf: Certificate, _ intermediates: [Certificate], in context: OpaquePointer
    ) -> Bool {
        unsafe SSL_CTX_use_certificate(context, leaf.pointer) == 1
            && intermediates.allSatisfy {
                unsafe blesec_ssl_context_add_intermediate(context, $0.pointer) == 1
            }
    }

    /// Sets what all contexts have in common, such as versions, suites, signature algorithms and limits.
    private func useProfile() throws(ChannelError) {
        let name = Self.applicationProtocol
        guard unsafe blesec_ssl_context_profile(pointer, Self.longestChain) == 1,
            unsafe SSL_CTX_set_ciphersuites(pointer, Self.suites) == 1,
            unsafe blesec_ssl_context_signatures(pointer, Self.signatures) == 1,
            unsafe SSL_CTX_set_num_tickets(pointer, 0) == 1,
            unsafe SSL_CTX_set_session_id_context(pointer, name, UInt32(name.count)) == 1
        else { throw .tlsContext() }
        unsafe SSL_CTX_set_security_level(pointer, Self.securityLevel)
    }

    private func use(_ groups: [String]) throws(ChannelError) {
        guard !groups.isEmpty else {
            throw ChannelError(.configuration, "TLS needs at least one key exchange group")
        }
        guard Set(groups).count == groups.count else {
            throw ChannelError(.configuration, "a key exchange group is named twice")
        }
        if let missing = groups.first(where: { !Self.supports(group: $0) }) {
            throw ChannelError(
                .configuration, "the linked OpenSSL has no key exchange group \(missing)")
        }
        guard unsafe blesec_ssl_context_groups(pointer, groups.joined(separator: ":")) == 1 else {
            throw .tlsContext()
        }
    }

    private func useCertificates() throws(ChannelError) {
        let store = unsafe SSL_CTX_get_cert_store(pointer)
        guard unsafe Self.use(identity.certificate, identity.intermediates, in: pointer),
            unsafe SSL_CTX_use_PrivateKey(pointer, identity.key) == 1,
            (authorities?.certificates ?? []).allSatisfy({
                unsafe X509_STORE_add_cert(store, $0.pointer) == 1
            })
        else { throw .tlsContext() }
    }
}
