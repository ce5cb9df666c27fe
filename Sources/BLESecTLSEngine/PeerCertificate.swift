internal import BLESecChannelCore
internal import CBLESecOpenSSL

/// Evaluates trust in a peer's certificate, and in the path from it to an accepted authority.
struct PeerCertificate {
    /// This side's context.
    let context: TLSContext
    /// The peer's role.
    let role: ChannelRole

    /// Evaluates trust in the certificate of `verification`, an `X509_STORE_CTX`, and returns the
    /// peer's identity.
    func evaluateTrust(_ verification: OpaquePointer) throws(ChannelError) -> PeerIdentity {
        guard let leaf = unsafe X509_STORE_CTX_get0_cert(verification) else {
            throw ChannelError(CertificateFault.missing)
        }
        let certificate = unsafe Certificate(sharing: leaf)
        let now = context.clock()
        var path = [certificate]
        var uri: String?
        do throws(CertificateFault) {
            guard unsafe Self.allSent(verification, { unsafe X509_get0_pubkey($0) != nil }) else {
                // OpenSSL has not decoded a key: the key is malformed, its algorithm is unknown, or
                // the algorithm was changed because of ``CanonicalKey/offsetsOfRefusedECKeys(in:)``.
                throw .unusualKey
            }
            // This check comes before all calls that make OpenSSL prepare the certificates'
            // extensions: OpenSSL then copies the issuer's whole name for each relative
            // distribution point.
            guard
                unsafe Self.allSent(
                    verification, { unsafe !blesec_certificate_has_relative_point($0) })
            else { throw .relativeDistributionPoint }
            try checkLeaf(certificate, now: now)
            if context.authorities != nil {
                path = unsafe try findPath(verification, now: now)
            }
            // Deny and revocation lists contain fingerprints of the canonical encoding only, so
            // other encodings are refused first.
            guard path.allSatisfy(\.hasCanonicalKey) else { throw .unusualKey }
            guard path.allSatisfy(\.hasAcceptedStrength) else { throw .keyStrength }
            // Nothing depends on how the certificate of an accepted authority is signed.
            let signed = path.dropLast(context.authorities == nil ? 0 : 1)
            guard signed.allSatisfy(\.hasStrongSignature) else { throw .keyStrength }
            if context.authorities != nil { uri = try certificate.onlyURI() }
        } catch {
            throw ChannelError(error)
        }
        try checkRevocation(path, now: now)
        return .certificate(subjectPublicKeyInfo: certificate.subjectPublicKeyInfo, uri: uri)
    }

    /// Whether `condition` holds for all certificates that the peer has sent.
    private static func allSent(
        _ verification: OpaquePointer, _ condition: (OpaquePointer?) -> Bool
    ) -> Bool {
        defer { OpenSSLError.clear() }
        let sent = unsafe X509_STORE_CTX_get0_untrusted(verification)
        return unsafe (0..<max(0, blesec_certificate_count(sent))).allSatisfy { index in
            unsafe condition(blesec_certificate(sent, index))
        }
    }

    /// Checks the leaf certificate without regard to its issuer.
    private func checkLeaf(_ leaf: Certificate, now: Int64) throws(CertificateFault) {
        guard let validity = leaf.validity else { throw .malformedValidity }
        guard now >= validity.lowerBound else { throw .notYetValid }
        guard now <= validity.upperBound else { throw .expired }
        let needsAuthority = context.authorities != nil
        if needsAuthority, leaf.isAuthority { throw .authorityAsLeaf }
        guard leaf.maySign else { throw .wrongKeyUsage }
        // The extended key usage must name the peer's role; without authorities, it may be absent.
        guard leaf.extendedUsage(allows: role) ?? !needsAuthority else {
            throw .wrongExtendedKeyUsage(role)
        }
    }

    /// Builds the path to an accepted authority and verifies it (RFC 5280 §6): signatures,
    /// validity, basic constraints, path length, key usages.
    private func findPath(
        _ verification: OpaquePointer, now: Int64
    ) throws(CertificateFault) -> [Certificate] {
        let parameters = unsafe X509_STORE_CTX_get0_param(verification)
        unsafe X509_VERIFY_PARAM_set_time(parameters, Int(now))
        // A configured authority is accepted even if its certificate is not self-signed.
        unsafe X509_VERIFY_PARAM_set_flags(parameters, UInt(X509_V_FLAG_PARTIAL_CHAIN))
        ERR_clear_error()
        defer { ERR_clear_error() }
        guard unsafe X509_verify_cert(verification) == 1 else {
            throw CertificateFault(verification: unsafe X509_STORE_CTX_get_error(verification))
        }
        let path = unsafe X509_STORE_CTX_get0_chain(verification)
        return unsafe (0..<blesec_certificate_count(path)).compactMap { index in
            unsafe blesec_certificate(path, index).map { unsafe Certificate(sharing: $0) }
        }
    }

    /// Throws if a certificate of the path, or an accepted authority above it, is revoked.
    ///
    /// In the path, each certificate is followed by its issuer's certificate. The path ends at the
    /// first accepted authority, and other accepted authorities may have issued that authority's
    /// certificate, as a root does for an intermediate. Their lists count as well. A self-signed
    /// authority's own list counts for its own certificate, too.
    private func checkRevocation(_ path: [Certificate], now: Int64) throws(ChannelError) {
        guard let list = try context.revoked?.current(at: now) else { return }
        for (certificate, issuer) in zip(path, path.dropFirst()) {
            try check(certificate, issuedBy: issuer.keyFingerprint, list)
        }
        // The loop appends further authorities, whose certificates are checked after the earlier ones.
        var authorities = Array(path.suffix(1))
        var index = 0
        while index < authorities.count {
            let authority = authorities[index]
            let key = authority.keyFingerprint
            if authority.isIssued(by: authority) {
                try check(authority, issuedBy: key, list)
            } else if list.contains(key: key) {
                throw ChannelError(CertificateFault.revoked)
            }
            for issuer in context.authorities?.certificates ?? [] {
                let issuerKey = issuer.keyFingerprint
                guard issuerKey != key, authority.isIssued(by: issuer) else { continue }
                try check(authority, issuedBy: issuerKey, list)
                if !authorities.contains(where: { $0 === issuer }) { authorities.append(issuer) }
            }
            index += 1
        }
    }

    /// Throws if `list` names the certificate's key, or its serial number among those of `issuer`.
    private func check(
        _ certificate: Certificate, issuedBy issuer: Fingerprint, _ list: RevocationList
    ) throws(ChannelError) {
        guard let serial = certificate.serial else {
            throw ChannelError(CertificateFault.malformedSerial)
        }
        guard !list.contains(serial: serial, issuer: issuer, key: certificate.keyFingerprint)
        else { throw ChannelError(CertificateFault.revoked) }
    }
}

extension Certificate {
    fileprivate var keyFingerprint: Fingerprint {
        Fingerprint(subjectPublicKeyInfo: subjectPublicKeyInfo)
    }

    fileprivate func onlyURI() throws(CertificateFault) -> String {
        guard let uris else { throw .malformedNames }
        guard let uri = uris.first else { throw .noURI }
        guard uris.count == 1 else { throw .severalURIs }
        return uri
    }
}
