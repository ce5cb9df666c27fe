internal import CBLESecOpenSSL

/// Checks that a key is strong enough for TLS, and that its signatures are verified quickly, by one
/// rule for this side's keys and the peer's.
package enum KeyStrength {
    /// What is wrong with a key that is not accepted: the end of a sentence that begins with "a key
    /// is".
    static let reason =
        "too weak, or unusually large: RSA needs 2048 to 4096 bits, and an exponent of at most 32"

    /// Whether the key has at least ``TLSContext/leastSecurityBits`` and, if it is an RSA key, a
    /// modulus of 2,048 to 4,096 bits and a public exponent of at most 32 bits.
    ///
    /// OpenSSL rounds, and also reports 112 bits of security for an RSA modulus that is slightly
    /// shorter than 2,048 bits. The greatest lengths limit how long it takes to verify a signature
    /// of an unauthenticated peer, which chooses its own key.
    package static func isAccepted(_ key: OpaquePointer) -> Bool {
        if unsafe EVP_PKEY_get_base_id(key) == EVP_PKEY_RSA {
            guard (2_048...4_096).contains(unsafe EVP_PKEY_get_bits(key)),
                (1...32).contains(unsafe blesec_rsa_exponent_bits(key))
            else { return false }
        }
        return unsafe EVP_PKEY_get_security_bits(key) >= TLSContext.leastSecurityBits
    }
}
