internal import CBLESecOpenSSL

/// Checks that a key is strong enough for TLS, by one rule for this side's keys and the peer's.
package enum KeyStrength {
    /// Whether the key has at least ``TLSContext/leastSecurityBits``. An RSA modulus must have at
    /// least 2,048 bits: OpenSSL rounds, and also reports 112 bits of security for a slightly shorter
    /// modulus.
    package static func isSufficient(_ key: OpaquePointer) -> Bool {
        if unsafe EVP_PKEY_get_base_id(key) == EVP_PKEY_RSA, unsafe EVP_PKEY_get_bits(key) < 2_048 {
            return false
        }
        return unsafe EVP_PKEY_get_security_bits(key) >= TLSContext.leastSecurityBits
    }
}
