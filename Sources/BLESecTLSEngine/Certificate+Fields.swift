internal import CBLESecOpenSSL
internal import Glibc

/// The fields that an authority reads in certificates that it issued.
extension Certificate {
    /// The certificate's serial number.
    package var serial: SerialNumber? { unsafe SerialNumber(X509_get0_serialNumber(pointer)) }

    /// The DER Name of the subject.
    package var subjectName: [UInt8] { unsafe Self.bytes(of: X509_get_subject_name(pointer)) }

    /// The first and the last second of the validity, since 1970; `nil` if it is malformed.
    package var validity: ClosedRange<Int64>? {
        guard let from = unsafe X509Time.seconds(X509_get0_notBefore(pointer)),
            let to = unsafe X509Time.seconds(X509_get0_notAfter(pointer)), from <= to
        else { return nil }
        return from...to
    }

    /// Whether `issuer` has signed the certificate; checks both its key and its name.
    package func isIssued(by issuer: Certificate) -> Bool {
        ERR_clear_error()
        defer { ERR_clear_error() }
        guard let key = unsafe X509_get0_pubkey(issuer.pointer) else { return false }
        let names = unsafe X509_NAME_cmp(
            X509_get_issuer_name(pointer), X509_get_subject_name(issuer.pointer))
        return unsafe names == 0 && X509_verify(pointer, key) == 1
    }

    private static func bytes(of name: OpaquePointer?) -> [UInt8] {
        let count = unsafe i2d_X509_NAME(name, nil)
        guard count > 0 else { return [] }
        return unsafe [UInt8](unsafeUninitializedCapacity: Int(count)) { buffer, used in
            var position = buffer.baseAddress
            used = unsafe Int(max(0, i2d_X509_NAME(name, &position)))
        }
    }
}

/// Reads the times in certificates and revocation lists.
enum X509Time {
    /// The time in seconds since 1970; `nil` if it is invalid.
    static func seconds(_ time: UnsafePointer<ASN1_TIME>?) -> Int64? {
        var parts = unsafe tm()
        guard let time = unsafe time, unsafe ASN1_TIME_to_tm(time, &parts) == 1 else { return nil }
        return unsafe Int64(timegm(&parts))
    }
}
