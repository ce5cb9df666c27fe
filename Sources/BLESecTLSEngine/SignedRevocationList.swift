package import BLESecChannelCore
internal import CBLESecOpenSSL

/// A certificate revocation list (RFC 5280 §5), read from its DER form and checked.
package struct SignedRevocationList: Sendable {
    /// The date on which the authority revoked each certificate, in seconds since 1970.
    package let dates: [SerialNumber: Int64]
    /// The list's CRL number, which counts the authority's lists; 0 if the list has no CRL number,
    /// nil if the number is negative or does not fit into 64 bits.
    package let number: UInt64?
    /// From the time when the authority wrote the list to the last second in which the list is up
    /// to date, in seconds since 1970.
    package let validity: ClosedRange<Int64>
    /// The fingerprint of the key that signed the list.
    package let issuer: Fingerprint

    /// Reads a list that one of `issuers` has signed.
    ///
    /// - Throws: `badKey`, with a reason that begins with a verb, so that a caller can put the file's
    ///   name before it, when one of these is true:
    ///   - The list is damaged, or has no end of its validity.
    ///   - The list is not signed by any of `issuers`, or is signed with a weak hash.
    ///   - The list covers only some certificates, or only changes, or certificates of other issuers.
    ///   - The list has a critical extension, which may change the list's meaning.
    package init(der: [UInt8], issuers: [Certificate]) throws(ChannelError) {
        ERR_clear_error()
        defer { ERR_clear_error() }
        guard let list = unsafe DERForm.value(decodingAllOf: der.span, d2i_X509_CRL, X509_CRL_free)
        else {
            throw .openSSL(.badKey, "holds a damaged revocation list")
        }
        defer { unsafe X509_CRL_free(list) }
        issuer = unsafe try Self.signer(of: list, among: issuers)
        guard
            unsafe SignatureStrength.isSufficient(
                X509_CRL_get_signature_nid(list), hash: blesec_crl_hash(list))
        else {
            throw .badKey("holds a revocation list that is signed with a weak hash, such as SHA-1")
        }
        guard unsafe !Self.hasCriticalExtension(list), unsafe Self.isWhole(list) else {
            throw .badKey(
                "holds a revocation list that is not whole, or has a critical extension: only "
                    + "whole lists are understood")
        }
        guard let from = unsafe X509Time.seconds(X509_CRL_get0_lastUpdate(list)),
            let to = unsafe X509Time.seconds(X509_CRL_get0_nextUpdate(list)), from <= to
        else {
            throw .badKey("holds a revocation list without the end of its validity")
        }
        validity = from...to
        number = unsafe Self.number(of: list)
        dates = unsafe try Self.entries(of: list)
    }

    private static func signer(
        of list: OpaquePointer, among issuers: [Certificate]
    ) throws(ChannelError) -> Fingerprint {
        for issuer in issuers {
            // An authority whose key usage excludes revocation lists must not sign one.
            guard let key = unsafe X509_get0_pubkey(issuer.pointer),
                unsafe X509_get_key_usage(issuer.pointer) & UInt32(KU_CRL_SIGN) != 0
            else { continue }
            if unsafe X509_CRL_verify(list, key) == 1 {
                return Fingerprint(subjectPublicKeyInfo: issuer.subjectPublicKeyInfo)
            }
            ERR_clear_error()
        }
        throw .badKey(
            "holds a revocation list that none of the authorities has signed: if an intermediate "
                + "has signed it, add its certificate to those of the authorities")
    }

    /// Whether the list contains all revocations of its issuer, and none of another issuer. Three
    /// extensions mark a list that contains only changes, only a part of the certificates, or
    /// entries of other issuers (§5.2.4, §5.2.5, §5.3.3). Some authorities do not mark these
    /// extensions as critical, although they must.
    private static func isWhole(_ list: OpaquePointer) -> Bool {
        for kind in [NID_delta_crl, NID_issuing_distribution_point]
        where unsafe X509_CRL_get_ext_by_NID(list, kind, -1) >= 0 { return false }
        return unsafe (0..<max(0, blesec_revoked_count(list))).allSatisfy { index in
            let entry = unsafe blesec_revoked_entry(list, index)
            return unsafe X509_REVOKED_get_ext_by_NID(entry, NID_certificate_issuer, -1) < 0
        }
    }

    private static func hasCriticalExtension(_ list: OpaquePointer) -> Bool {
        for index in unsafe 0..<X509_CRL_get_ext_count(list)
        where unsafe X509_EXTENSION_get_critical(X509_CRL_get_ext(list, index)) != 0 { return true }
        for entryIndex in unsafe 0..<max(0, blesec_revoked_count(list)) {
            let entry = unsafe blesec_revoked_entry(list, entryIndex)
            for index in unsafe 0..<X509_REVOKED_get_ext_count(entry)
            where unsafe X509_EXTENSION_get_critical(X509_REVOKED_get_ext(entry, index)) != 0 {
                return true
            }
        }
        return false
    }

    private static func number(of list: OpaquePointer) -> UInt64? {
        guard let found = unsafe X509_CRL_get_ext_d2i(list, NID_crl_number, nil, nil) else {
            return 0
        }
        let integer = unsafe found.assumingMemoryBound(to: ASN1_INTEGER.self)
        defer { unsafe ASN1_INTEGER_free(integer) }
        var number: UInt64 = 0
        return unsafe ASN1_INTEGER_get_uint64(&number, integer) == 1 ? number : nil
    }

    private static func entries(
        of list: OpaquePointer
    ) throws(ChannelError) -> [SerialNumber: Int64] {
        var dates: [SerialNumber: Int64] = [:]
        for index in unsafe 0..<max(0, blesec_revoked_count(list)) {
            let entry = unsafe blesec_revoked_entry(list, index)
            guard let serial = unsafe SerialNumber(X509_REVOKED_get0_serialNumber(entry)),
                let date = unsafe X509Time.seconds(X509_REVOKED_get0_revocationDate(entry))
            else { throw .badKey("holds a revocation list with a damaged entry") }
            dates[serial] = date
        }
        return dates
    }
}
