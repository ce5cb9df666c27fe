internal import BLESecChannelCore
internal import BLESecPrimitives
internal import BLESecTLSEngine
internal import CBLESecOpenSSL

/// An Ed25519 key (RFC 8032, RFC 8410) of an authority or a device.
struct SigningKey: ~Copyable {
    /// The AlgorithmIdentifier of keys and signatures.
    static let algorithm: [UInt8] = DER.sequence(DER.identifier(0x2B, 0x65, 0x70))
    private static let length = 32
    private static let prefix = PrivateKeyInfo.prefix(0x70, keyLength: length)

    /// The private key in DER form.
    let privateKeyInfo: SecretBytes
    /// The public key in DER form.
    let subjectPublicKeyInfo: [UInt8]

    static func generate() throws(ChannelError) -> SigningKey {
        var info = SecretBytes(count: prefix.count + length)
        var target = info.mutableSpan
        randomBytes(into: &target)
        for index in prefix.indices { target[index] = prefix[index] }
        return try SigningKey(info)
    }

    /// Reads a PrivateKeyInfo, which must be in the canonical encoding.
    ///
    /// - Throws: `badKey`. Its reason begins with a verb; callers prefix it with the file's path.
    init(_ info: consuming SecretBytes) throws(ChannelError) {
        let prefix = Self.prefix
        guard info.count == prefix.count + Self.length,
            constantTimeEqual(info.span.extracting(..<prefix.count), prefix.span)
        else { throw .badKey("is not the Ed25519 key of an authority") }
        let key = unsafe try Self.pkey(info)
        defer { unsafe EVP_PKEY_free(key) }
        var point = [UInt8](repeating: 0, count: Self.length)
        var count = point.count
        guard unsafe EVP_PKEY_get_raw_public_key(key, &point, &count) == 1, count == point.count
        else { throw Self.failure }
        subjectPublicKeyInfo = DER.sequence(Self.algorithm, DER.bitString(point))
        privateKeyInfo = info
    }

    /// The DER form of a certificate or revocation list: `tbs` (the TBSCertificate or TBSCertList),
    /// the algorithm, and the signature over `tbs`.
    func signed(_ tbs: [UInt8]) throws(ChannelError) -> [UInt8] {
        let key = unsafe try Self.pkey(privateKeyInfo)
        defer { unsafe EVP_PKEY_free(key) }
        let context = unsafe EVP_MD_CTX_new()
        defer { unsafe EVP_MD_CTX_free(context) }
        var signature = [UInt8](repeating: 0, count: 64)
        var count = signature.count
        guard unsafe EVP_DigestSignInit(context, nil, nil, nil, key) == 1,
            unsafe EVP_DigestSign(context, &signature, &count, tbs, tbs.count) == 1,
            count == signature.count
        else { throw Self.failure }
        return DER.sequence(tbs, Self.algorithm, DER.bitString(signature))
    }

    /// OpenSSL's copy of the key, which `EVP_PKEY_free` wipes.
    private static func pkey(_ info: borrowing SecretBytes) throws(ChannelError) -> OpaquePointer {
        OpenSSLError.clear()
        let key = unsafe info.withUnsafeBytes { bytes in
            unsafe EVP_PKEY_new_raw_private_key(
                EVP_PKEY_ED25519, nil, bytes.baseAddress.map { unsafe $0 + prefix.count }, length)
        }
        guard let key = unsafe key else { throw failure }
        return unsafe key
    }

    private static var failure: ChannelError {
        .openSSL(.internal, "OpenSSL cannot use an Ed25519 key")
    }
}
