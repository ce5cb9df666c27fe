internal import BLESecChannelCore
internal import BLESecPrimitives
internal import BLESecTLSEngine
internal import CBLESecOpenSSL

/// Private keys for X25519 and X448 as PKCS#8 (RFC 5958, RFC 8410 §7), plain and encrypted.
enum PrivateKeyInfo {
    struct Key: ~Copyable {
        let curve: Curve
        let bytes: SecretBytes
    }

    /// scrypt's N, r and p. One derivation needs 16 MiB and about a quarter of a second. N is the
    /// largest power of two that ``KeyDerivation/maximumMemory`` permits with this r. p is more than
    /// 1, so that the derivation takes long enough although N is small.
    static let scrypt: (n: UInt64, r: UInt64, p: UInt64) = (1 << 14, 8, 5)

    /// The DER bytes before a raw private key in a PrivateKeyInfo (RFC 8410 §7), for the algorithm
    /// 1.3.101.`arc`.
    static func prefix(_ arc: UInt8, keyLength: Int) -> [UInt8] {
        let length = UInt8(keyLength)
        return [0x30, 14 + length, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, arc]
            + [0x04, 2 + length, 0x04, length]
    }

    /// The DER form of a raw private key.
    static func encode(_ key: Span<UInt8>, curve: Curve) -> SecretBytes {
        let prefix = prefix(curve == .x25519 ? 0x6E : 0x6F, keyLength: curve.keyLength)
        var encoded = SecretBytes(count: prefix.count + key.count)
        var target = encoded.mutableSpan
        for index in prefix.indices { target[index] = prefix[index] }
        for index in key.indices { target[prefix.count + index] = key[index] }
        return encoded
    }

    /// Reads the DER form. An error's reason begins with a verb: the caller puts the file's path
    /// before the reason.
    static func decode(_ encoded: Span<UInt8>) throws(ChannelError) -> Key {
        OpenSSLError.clear()
        let info = unsafe DERForm.value(
            decodingAllOf: encoded, d2i_PKCS8_PRIV_KEY_INFO, PKCS8_PRIV_KEY_INFO_free)
        guard let info = unsafe info else {
            throw .openSSL(.badKey, "is not a PKCS#8 private key")
        }
        // OpenSSL wipes the key in `info` when `info` is freed.
        defer { unsafe PKCS8_PRIV_KEY_INFO_free(info) }
        return try unsafe key(of: info)
    }

    /// Encrypts the DER form: PBES2 (RFC 8018) with scrypt (RFC 7914) and AES-256-CBC.
    static func encrypt(
        _ encoded: Span<UInt8>, passphrase: borrowing SecretBytes
    ) throws(ChannelError) -> [UInt8] {
        OpenSSLError.clear()
        let encrypted = unsafe passphrase.withUnsafeBytes { passphrase in
            unsafe encoded.withUnsafeBufferPointer { unsafe encrypt($0, passphrase) }
        }
        guard let encrypted else {
            throw .openSSL(.internal, "the key could not be encrypted")
        }
        return encrypted
    }

    /// Decrypts an EncryptedPrivateKeyInfo and reads the key in it.
    static func decrypt(
        _ encrypted: Span<UInt8>, passphrase: borrowing SecretBytes
    ) throws(ChannelError) -> Key {
        let info = unsafe try decrypted(encrypted, passphrase)
        defer { unsafe PKCS8_PRIV_KEY_INFO_free(info) }
        return try unsafe key(of: info)
    }

    /// Decrypts an EncryptedPrivateKeyInfo, and returns the DER form of its key. The key may be of
    /// any algorithm.
    static func decryptedDER(
        _ encrypted: Span<UInt8>, passphrase: borrowing SecretBytes
    ) throws(ChannelError) -> SecretBytes {
        let info = unsafe try decrypted(encrypted, passphrase)
        defer { unsafe PKCS8_PRIV_KEY_INFO_free(info) }
        let count = unsafe i2d_PKCS8_PRIV_KEY_INFO(info, nil)
        guard count > 0 else { throw .badKey("is not a PKCS#8 private key") }
        var encoded = SecretBytes(count: Int(count))
        unsafe encoded.withUnsafeMutableBytes { buffer in
            var position = buffer.baseAddress
            _ = unsafe i2d_PKCS8_PRIV_KEY_INFO(info, &position)
        }
        return encoded
    }

    /// The decrypted key as OpenSSL's PKCS8_PRIV_KEY_INFO, which the caller frees.
    private static func decrypted(
        _ encrypted: Span<UInt8>, _ passphrase: borrowing SecretBytes
    ) throws(ChannelError) -> OpaquePointer {
        OpenSSLError.clear()
        let encryptedInfo = unsafe DERForm.value(
            decodingAllOf: encrypted, d2i_X509_SIG, X509_SIG_free)
        guard let encryptedInfo = unsafe encryptedInfo else {
            throw .openSSL(.badKey, "is not an encrypted PKCS#8 private key")
        }
        defer { unsafe X509_SIG_free(encryptedInfo) }
        unsafe try KeyDerivation.check(encryptedInfo)
        let info = unsafe passphrase.withUnsafeBytes { passphrase in
            unsafe PKCS8_decrypt(
                encryptedInfo,
                UnsafeRawPointer(passphrase.baseAddress)?.assumingMemoryBound(
                    to: CChar.self), Int32(passphrase.count))
        }
        guard let info = unsafe info else {
            throw .openSSL(
                .badKey, "cannot be decrypted: the passphrase is wrong, or the file is damaged")
        }
        return unsafe info
    }

    private static func encrypt(
        _ encoded: UnsafeBufferPointer<UInt8>, _ passphrase: UnsafeBufferPointer<UInt8>
    ) -> [UInt8]? {
        var position = encoded.baseAddress
        guard let info = unsafe d2i_PKCS8_PRIV_KEY_INFO(nil, &position, encoded.count) else {
            return nil
        }
        defer { unsafe PKCS8_PRIV_KEY_INFO_free(info) }
        var salt = randomBytes(count: 16)
        var algorithm = unsafe PKCS5_pbe2_set_scrypt(
            EVP_aes_256_cbc(), &salt, Int32(salt.count), nil, scrypt.n, scrypt.r, scrypt.p)
        defer { unsafe X509_ALGOR_free(algorithm) }
        let characters = unsafe UnsafeRawPointer(passphrase.baseAddress)?.assumingMemoryBound(
            to: CChar.self)
        guard unsafe algorithm != nil,
            let encryptedInfo = unsafe PKCS8_set0_pbe(
                characters, Int32(passphrase.count), info, algorithm)
        else { return nil }
        unsafe algorithm = nil  // `encryptedInfo` owns the algorithm now.
        defer { unsafe X509_SIG_free(encryptedInfo) }
        let bytes = unsafe DERForm.bytes { unsafe i2d_X509_SIG(encryptedInfo, $0) }
        return bytes.isEmpty ? nil : bytes
    }

    private static func key(of info: OpaquePointer) throws(ChannelError) -> Key {
        var object: OpaquePointer?
        var start: UnsafePointer<UInt8>?
        var count: Int32 = 0
        guard unsafe PKCS8_pkey_get0(&object, &start, &count, nil, info) == 1,
            let object = unsafe object, let start = unsafe start
        else { throw .badKey("is not a PKCS#8 private key") }
        let curve: Curve
        switch unsafe OBJ_obj2nid(object) {
        case NID_X25519: curve = .x25519
        case NID_X448: curve = .x448
        case let other:
            throw .badKey(
                "holds a key for \(unsafe name(of: object, other)), but an identity "
                    + "needs one for X25519 or X448; keys cannot be converted: make a new one with "
                    + "`blesec keygen`")
        }
        // CurvePrivateKey: an OCTET STRING inside the OCTET STRING.
        let octets = unsafe UnsafeBufferPointer(start: start, count: Int(count))
        guard octets.count == curve.keyLength + 2, unsafe octets[0] == 0x04,
            unsafe octets[1] == UInt8(curve.keyLength)
        else { throw .badKey("holds a damaged key") }
        let bytes = unsafe UnsafeBufferPointer(rebasing: octets[2...])
        return unsafe Key(curve: curve, bytes: SecretBytes(copying: Span(_unsafeElements: bytes)))
    }

    private static func name(of object: OpaquePointer, _ nid: Int32) -> String {
        if nid != NID_undef, let name = unsafe OBJ_nid2sn(nid) {
            return unsafe String(cString: name)
        }
        var text = [CChar](repeating: 0, count: 80)
        unsafe OBJ_obj2txt(&text, Int32(text.count), object, 1)
        let bytes = text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
        return String(decoding: bytes, as: UTF8.self)
    }
}
