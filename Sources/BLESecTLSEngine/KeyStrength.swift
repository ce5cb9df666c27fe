internal import BLESecPrimitives
internal import CBLESecOpenSSL

/// Checks that a key is strong enough for TLS, and that its signatures are verified quickly, by one
/// rule for this side's keys and the peer's.
package enum KeyStrength {
    /// What is wrong with a key that is not accepted: the end of a sentence that begins with "a key
    /// is".
    package static let reason =
        "too weak, or unusually large: RSA needs 2048 to 4096 bits, and an odd exponent that is at "
        + "least 3 and has at most \(longestExponent) bits; Ed25519 and Ed448 need a point that is "
        + "not of small order"

    /// The greatest length of an RSA key's public exponent in bits.
    private static let longestExponent: Int32 = 32

    /// Whether the key has at least ``TLSContext/leastSecurityBits``, and nobody can make its
    /// signatures without the private key. An RSA key also has to have a modulus of 2,048 to 4,096
    /// bits and a public exponent of at most 32 bits.
    ///
    /// OpenSSL rounds, and also reports 112 bits of security for an RSA modulus that is slightly
    /// shorter than 2,048 bits. The greatest lengths limit how long it takes to verify a signature
    /// of an unauthenticated peer, which chooses its own key.
    ///
    /// With the RSA exponent 1, and with a point of small order, anyone can make signatures. OpenSSL
    /// accepts such keys.
    package static func isAccepted(_ key: OpaquePointer) -> Bool {
        let hasAcceptedForm =
            switch unsafe EVP_PKEY_get_base_id(key) {
            case EVP_PKEY_RSA:
                unsafe (2_048...4_096).contains(EVP_PKEY_get_bits(key))
                    && blesec_rsa_is_valid(key, longestExponent)
            case EVP_PKEY_ED25519: unsafe EdwardsKey.isValidEd25519(rawForm(of: key))
            case EVP_PKEY_ED448: unsafe EdwardsKey.isValidEd448(rawForm(of: key))
            default: true
            }
        return unsafe hasAcceptedForm
            && EVP_PKEY_get_security_bits(key) >= TLSContext.leastSecurityBits
    }

    /// The bytes of a public key of Ed25519 or Ed448; empty if OpenSSL fails.
    private static func rawForm(of key: OpaquePointer) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: EdwardsKey.longestLength)
        var count = bytes.count
        guard unsafe EVP_PKEY_get_raw_public_key(key, &bytes, &count) == 1 else { return [] }
        return Array(bytes.prefix(count))
    }
}
