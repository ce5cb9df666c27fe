package import BLESecChannelCore
internal import CBLESecOpenSSL

/// An X.509 certificate (RFC 5280), read from its DER form.
@safe package final class Certificate: @unchecked Sendable {
    // Unchecked: OpenSSL counts references atomically, and nothing changes the certificate.
    let pointer: OpaquePointer

    /// Takes ownership of a reference.
    private init(owning pointer: OpaquePointer) { unsafe self.pointer = pointer }

    deinit { unsafe X509_free(pointer) }

    /// Reads a certificate from `der`, which must hold its DER form and nothing after it.
    ///
    /// - Throws: `badKey`, with a reason that begins with a verb, so that callers can put the name
    ///   of a file before it.
    package convenience init(der: [UInt8]) throws(ChannelError) {
        ERR_clear_error()
        guard let pointer = unsafe DERForm.value(decodingAllOf: der.span, d2i_X509, X509_free)
        else {
            throw .openSSL(.badKey, "holds a damaged certificate")
        }
        unsafe self.init(owning: pointer)
    }

    /// Adds a reference to a certificate that OpenSSL also keeps.
    convenience init(sharing pointer: OpaquePointer) {
        unsafe X509_up_ref(pointer)
        unsafe self.init(owning: pointer)
    }

    /// The length of the DER form in bytes.
    var length: Int { Int(max(0, unsafe i2d_X509(pointer, nil))) }

    /// The DER SubjectPublicKeyInfo.
    package var subjectPublicKeyInfo: [UInt8] {
        guard let key = unsafe X509_get_X509_PUBKEY(pointer) else { return [] }
        return unsafe DERForm.bytes { unsafe i2d_X509_PUBKEY(key, $0) }
    }

    /// The URIs among the subject alternative names (RFC 5280 §4.2.1.6); `nil` if the extension is
    /// malformed or repeated, or if a URI contains a space or anything but printable ASCII.
    package var uris: [String]? {
        var state: Int32 = 0
        guard let names = unsafe X509_get_ext_d2i(pointer, NID_subject_alt_name, &state, nil) else {
            return state == -1 ? [] : nil
        }
        let list = OpaquePointer(names)
        defer { unsafe GENERAL_NAMES_free(list) }
        var uris: [String] = []
        for index in unsafe 0..<blesec_general_name_count(list) {
            guard let uri = unsafe blesec_general_name_uri(list, index) else { continue }
            let bytes = unsafe UnsafeBufferPointer(
                start: ASN1_STRING_get0_data(uri), count: Int(ASN1_STRING_length(uri)))
            // No valid URI contains a zero byte, a control character or a space.
            guard unsafe bytes.allSatisfy({ (0x21...0x7E).contains($0) }) else { return nil }
            unsafe uris.append(String(decoding: bytes, as: UTF8.self))
        }
        return uris
    }

    /// Whether the certificate's key may issue certificates.
    package var isAuthority: Bool { unsafe X509_check_ca(pointer) > 0 }
    /// Whether the key is accepted by ``KeyStrength``.
    var hasAcceptedStrength: Bool {
        defer { OpenSSLError.clear() }
        guard let key = unsafe X509_get0_pubkey(pointer) else { return false }
        return unsafe KeyStrength.isAccepted(key)
    }
    /// Whether the signature is accepted by ``SignatureStrength``. Also true for a certificate that
    /// is signed with its own key, since nothing depends on such a signature.
    var hasStrongSignature: Bool {
        defer { OpenSSLError.clear() }
        if unsafe X509_get_extension_flags(pointer) & UInt32(EXFLAG_SS) != 0 { return true }
        return unsafe SignatureStrength.isSufficient(
            X509_get_signature_nid(pointer), hash: blesec_certificate_hash(pointer))
    }
    /// Whether the key may sign, which TLS 1.3 requires.
    var maySign: Bool { unsafe X509_get_key_usage(pointer) & UInt32(KU_DIGITAL_SIGNATURE) != 0 }

    /// Whether the extended key usage allows a TLS role, client for a dialer and server for an
    /// acceptor; `nil` if the certificate has no extended key usage.
    func extendedUsage(allows role: ChannelRole) -> Bool? {
        guard unsafe X509_get_extension_flags(pointer) & UInt32(EXFLAG_XKUSAGE) != 0 else {
            return nil
        }
        let wanted = role == .dialer ? XKU_SSL_CLIENT : XKU_SSL_SERVER
        return unsafe X509_get_extended_key_usage(pointer) & UInt32(wanted) != 0
    }

    /// Why the certificate is not valid at `time`, in seconds since 1970, in words that can follow "a
    /// certificate that"; `nil` if it is valid. A certificate is valid from the first to the last
    /// second of its validity period (RFC 5280 §4.1.2.5).
    package func invalidity(at time: Int64) -> String? {
        var now = Int(time)
        // X509_cmp_time returns 0 for a time that is not in the form that RFC 5280 requires.
        guard unsafe X509_cmp_time(X509_get0_notBefore(pointer), &now) != 0,
            unsafe X509_cmp_time(X509_get0_notAfter(pointer), &now) != 0, let validity
        else { return "has a malformed validity" }
        if time < validity.lowerBound { return "is not valid yet" }
        return time > validity.upperBound ? "has expired" : nil
    }
}

extension Certificate {
    /// The serial number; `nil` if it cannot be encoded.
    package var serial: SerialNumber? { unsafe SerialNumber(X509_get0_serialNumber(pointer)) }

    /// The DER Name of the subject.
    package var subjectName: [UInt8] {
        let name = unsafe X509_get_subject_name(pointer)
        return unsafe DERForm.bytes { unsafe i2d_X509_NAME(name, $0) }
    }

    /// The first and the last second of the validity, since 1970; `nil` if it is malformed.
    package var validity: ClosedRange<Int64>? {
        guard let from = unsafe X509Time.seconds(X509_get0_notBefore(pointer)),
            let to = unsafe X509Time.seconds(X509_get0_notAfter(pointer)), from <= to
        else { return nil }
        return from...to
    }

    /// Whether the certificate names `issuer` as its issuer, and the issuer's key has signed it.
    package func isIssued(by issuer: Certificate) -> Bool {
        ERR_clear_error()
        defer { ERR_clear_error() }
        guard let key = unsafe X509_get0_pubkey(issuer.pointer) else { return false }
        let names = unsafe X509_NAME_cmp(
            X509_get_issuer_name(pointer), X509_get_subject_name(issuer.pointer))
        return unsafe names == 0 && X509_verify(pointer, key) == 1
    }
}
