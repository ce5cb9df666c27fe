internal import CBLESecOpenSSL

/// Checks that the hash of a signature is strong enough, by one rule for certificates and
/// revocation lists. OpenSSL checks this for no revocation list and, in version 3.5, not for every
/// certificate.
enum SignatureStrength {
    /// Whether the hash has at least the strength ``TLSContext/leastSecurityBits``. A hash is as
    /// strong as half of its length: an attacker who finds two contents with the same hash can
    /// replace one by the other. Both parameters are OpenSSL's numbers (NID).
    static func isSufficient(_ signature: Int32, hash: Int32) -> Bool {
        // Ed25519 and Ed448 have no separate hash, and their own hash is strong enough.
        if [NID_ED25519, NID_ED448].contains(signature) { return true }
        guard let name = unsafe OBJ_nid2sn(hash), let digest = unsafe EVP_get_digestbyname(name)
        else { return false }
        return unsafe EVP_MD_get_size(digest) * 8 / 2 >= TLSContext.leastSecurityBits
    }
}
