internal import CBLESecOpenSSL
internal import Glibc

/// Reads the times in certificates and revocation lists.
enum X509Time {
    /// The time in seconds since 1970; `nil` if it is invalid.
    static func seconds(_ time: UnsafePointer<ASN1_TIME>?) -> Int64? {
        var parts = unsafe tm()
        guard let time = unsafe time, unsafe ASN1_TIME_to_tm(time, &parts) == 1 else { return nil }
        return unsafe Int64(timegm(&parts))
    }
}
