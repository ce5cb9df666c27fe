internal import BLESecChannelCore
internal import CBLESecOpenSSL

/// Why a peer's certificate is not accepted. The reason is not sent to the peer.
enum CertificateFault: Error, Equatable {
    case missing  // The peer sent no certificate.
    case expired, notYetValid, malformedValidity
    case wrongKeyUsage, authorityAsLeaf
    case wrongExtendedKeyUsage(ChannelRole)  // The peer's role.
    case selfSigned, unknownAuthority, badSignature, pathTooLong, issuerMayNotIssue
    case keyStrength, unusualKey, relativeDistributionPoint
    case revoked, malformedSerial
    case noURI, severalURIs, malformedNames
    case other(code: Int32, text: String)

    /// Translates the error of a failed `X509_verify_cert`.
    init(verification code: Int32) {
        switch code {
        case X509_V_ERR_CERT_HAS_EXPIRED: self = .expired
        case X509_V_ERR_CERT_NOT_YET_VALID: self = .notYetValid
        case X509_V_ERR_ERROR_IN_CERT_NOT_AFTER_FIELD, X509_V_ERR_ERROR_IN_CERT_NOT_BEFORE_FIELD:
            self = .malformedValidity
        case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT: self = .selfSigned
        case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT,
            X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
            X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE, X509_V_ERR_CERT_UNTRUSTED:
            self = .unknownAuthority
        case X509_V_ERR_CERT_SIGNATURE_FAILURE: self = .badSignature
        case X509_V_ERR_PATH_LENGTH_EXCEEDED, X509_V_ERR_CERT_CHAIN_TOO_LONG: self = .pathTooLong
        case X509_V_ERR_INVALID_CA, X509_V_ERR_KEYUSAGE_NO_CERTSIGN, X509_V_ERR_INVALID_PURPOSE:
            self = .issuerMayNotIssue
        case X509_V_ERR_EE_KEY_TOO_SMALL, X509_V_ERR_CA_KEY_TOO_SMALL, X509_V_ERR_CA_MD_TOO_WEAK:
            self = .keyStrength
        case X509_V_ERR_EC_KEY_EXPLICIT_PARAMS: self = .unusualKey
        default:
            let text = unsafe String(cString: X509_verify_cert_error_string(Int(code)))
            self = .other(code: code, text: text)
        }
    }

    /// The fault, as the end of a sentence that begins with "the peer's certificate".
    fileprivate var text: String {
        switch self {
        case .missing: "is missing"
        case .expired: "has expired, or one of its issuers has"
        case .notYetValid: "is not valid yet, or one of its issuers is not"
        case .malformedValidity: "has a malformed validity"
        case .wrongKeyUsage: "may not be used to sign, as TLS does"
        case .wrongExtendedKeyUsage(.dialer): "does not name TLS client in its extended key usage"
        case .wrongExtendedKeyUsage(.acceptor): "does not name TLS server in its extended key usage"
        case .authorityAsLeaf: "is an authority's, and not a device's"
        case .selfSigned: "is signed with its own key, and not by an authority"
        case .unknownAuthority: "leads to no authority that is accepted here"
        case .badSignature: "carries a signature that is not its issuer's"
        case .pathTooLong: "is at the end of a longer path than its authority permits"
        case .issuerMayNotIssue: "has an issuer that may not issue it"
        case .keyStrength:
            "has a key or a hash that is too weak, or an unusually large key, or one of its "
                + "issuers has"
        case .unusualKey:
            "has its key in an unusual encoding, or a certificate that came with it has: only "
                + "named curves and uncompressed points are accepted"
        case .relativeDistributionPoint:
            "names the place of a revocation list relative to its issuer's name or unreadably, or a "
                + "certificate that came with it does"
        case .revoked: "is revoked, or one of its issuers is"
        case .malformedSerial: "has a malformed serial number"
        case .noURI: "names no URI, and other names do not count"
        case .severalURIs: "names several URIs, but must name exactly one"
        case .malformedNames: "has a malformed list of names"
        case .other(_, let text): "does not verify: \(text)"
        }
    }
}

extension ChannelError {
    /// The local error of a refusal; the peer always gets the same alert.
    init(_ fault: CertificateFault) {
        self.init(.untrusted, "the peer's certificate \(fault.text)")
    }
}
