internal import CBLESecOpenSSL

/// Checks that the hash of a signature is strong enough, by one rule for certificates and revocation
/// lists. OpenSSL checks no revocation list, and version 3.5 not every certificate.
enum SignatureStrength {
    /// Whether the hash is as strong as ``TLSContext/leastSecurityBits``: half of its length counts,
    /// since whoever finds two contents with one hash can exchange them. Both parameters are
    /// OpenSSL's numbers (NID).
    static func isSufficient(_ signature: Int32, hash: Int32) -> Bool {
        // These two have no hash besides their own.
        if [NID_ED25519, NID_ED448].contains(signature) { return true }
        guard let name = unsafe OBJ_nid2sn(hash), let digest = unsafe EVP_get_digestbyname(name)
        else { return false }
        return unsafe EVP_MD_get_size(digest) * 8 / 2 >= TLSContext.leastSecurityBits
    }
}
