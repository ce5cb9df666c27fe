internal import CBLESecOpenSSL

/// Checks that a public key is in the only accepted encoding.
///
/// A fingerprint is the hash of a SubjectPublicKeyInfo, and X.509 can encode one key as several
/// SubjectPublicKeyInfos: points can be compressed, curve parameters explicit, RSA's parameters
/// absent. A denied or revoked key in another encoding would have a fingerprint that is on no list.
package enum CanonicalKey {
    /// The accepted encodings of keys that have a fixed length: the DER bytes before the key, and
    /// the key's length in bytes. Each encoding has a named curve and an uncompressed point (RFC
    /// 5480 §2), or no parameters (RFC 8410 §3).
    private static let forms: [(head: [UInt8], count: Int)] = [
        ([0x30, 0x2A, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x70, 0x03, 0x21, 0x00], 32),  // Ed25519
        ([0x30, 0x43, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x71, 0x03, 0x3A, 0x00], 57),  // Ed448
        (
            [0x30, 0x59, 0x30, 0x13] + ecPublicKey
                + [0x06, 0x08, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07]  // P-256
                + [0x03, 0x42, 0x00, 0x04], 64
        ),
        (
            [0x30, 0x76, 0x30, 0x10] + ecPublicKey
                + [0x06, 0x05, 0x2B, 0x81, 0x04, 0x00, 0x22]  // P-384
                + [0x03, 0x62, 0x00, 0x04], 96
        ),
        (
            [0x30, 0x81, 0x9B, 0x30, 0x10] + ecPublicKey
                + [0x06, 0x05, 0x2B, 0x81, 0x04, 0x00, 0x23]  // P-521
                + [0x03, 0x81, 0x86, 0x00, 0x04], 132
        ),
    ]
    private static let ecPublicKey: [UInt8] =
        [0x06, 0x07, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01]

    /// What is wrong with a key in another encoding, and the remedy: the end of a sentence that
    /// begins with "a key is".
    package static let unusualEncodingReason =
        "in an unusual encoding: use Ed25519, Ed448, RSA, or P-256, P-384 or P-521 as a named "
        + "curve with an uncompressed point (`openssl ec -conv_form uncompressed "
        + "-param_enc named_curve`)"

    /// Whether a DER SubjectPublicKeyInfo has the accepted encoding, and an algorithm accepted for
    /// TLS.
    package static func matches(_ subjectPublicKeyInfo: [UInt8]) -> Bool {
        for form in forms where subjectPublicKeyInfo.starts(with: form.head) {
            return subjectPublicKeyInfo.count == form.head.count + form.count
        }
        // RSA keys have no fixed length, so the key is decoded and encoded again: OpenSSL always
        // writes the same encoding.
        return rsaForm(of: subjectPublicKeyInfo) == subjectPublicKeyInfo
    }

    /// The algorithms whose keys OpenSSL decodes as points of a curve: the contents of the object
    /// identifiers id-ecPublicKey and SM2.
    private static let curveAlgorithms: [[UInt8]] = [
        [0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01],
        [0x2A, 0x81, 0x1C, 0xCF, 0x55, 0x01, 0x82, 0x2D],
    ]

    /// Finds the EC keys of a Certificate message that do not have the accepted encoding. Returns,
    /// for each such key, the offset of the last byte of its algorithm's object identifier.
    ///
    /// OpenSSL decodes the keys of all certificates of a message before anything is checked. For a
    /// compressed point it computes a square root. On a curve that the peer has chosen, this takes
    /// up to 0.1 s, so these keys must not be decoded. The bytes are searched for the object
    /// identifier, which has only one encoding. The structure around it is not parsed, because
    /// OpenSSL accepts other encodings of the structure besides DER.
    static func offsetsOfRefusedECKeys(in message: [UInt8]) -> [Int] {
        var found: [Int] = []
        var index = 0
        while index < message.count {
            let rest = message[index...]
            switch message[index] {
            case 0x30:
                // The head of an accepted encoding contains the object identifier, so it is skipped.
                if let form = forms.first(where: { rest.starts(with: $0.head) }) {
                    index += form.head.count
                    continue
                }
            case 0x2A:
                if let name = curveAlgorithms.first(where: { rest.starts(with: $0) }) {
                    found.append(index + name.count - 1)
                }
            default: break
            }
            index += 1
        }
        return found
    }

    private static func rsaForm(of info: [UInt8]) -> [UInt8]? {
        OpenSSLError.clear()
        defer { OpenSSLError.clear() }
        guard let key = unsafe DERForm.value(decodingAllOf: info.span, d2i_PUBKEY, EVP_PKEY_free)
        else {
            return nil
        }
        defer { unsafe EVP_PKEY_free(key) }
        guard unsafe EVP_PKEY_get_id(key) == EVP_PKEY_RSA else { return nil }
        return unsafe DERForm.bytes { unsafe i2d_PUBKEY(key, $0) }
    }
}

extension Certificate {
    /// Whether the certificate's key has the accepted encoding.
    var hasCanonicalKey: Bool { CanonicalKey.matches(subjectPublicKeyInfo) }
}
