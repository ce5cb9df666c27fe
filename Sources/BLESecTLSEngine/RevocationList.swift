public import BLESecChannelCore

/// Certificates that no longer count, by their issuer and number or by their key.
public struct RevocationList: Sendable {
    private struct Entry: Sendable, Hashable {
        /// The issuer's key rather than its name, which can be encoded in more than one way.
        let issuer: Fingerprint
        let serial: SerialNumber
    }

    private let certificates: Set<Entry>
    private let keys: Set<Fingerprint>
    /// The last second, since 1970, for which every list in it speaks; `nil` for no end.
    public let expiry: Int64?

    /// Reads lists in their DER form (RFC 5280 §5), each signed by one of `authorities`, and adds
    /// keys that count no longer in whatever certificate they stand.
    ///
    /// - Throws: `badKey`, with a reason that begins with a verb: a list is damaged, is signed by
    ///   nobody of them, or is no whole list.
    public init(
        lists: [[UInt8]], keys: some Sequence<Fingerprint> = [], authorities: CertificateAuthorities
    ) throws(ChannelError) {
        var certificates: Set<Entry> = []
        var expiry: Int64?
        for der in lists {
            let list = try RevokedSerials(der: der, issuers: authorities.certificates)
            for serial in list.dates.keys {
                certificates.insert(Entry(issuer: list.issuer, serial: serial))
            }
            expiry = min(expiry ?? .max, list.validity.upperBound)
        }
        self.certificates = certificates
        self.keys = Set(keys)
        self.expiry = expiry
    }

    /// Whether a certificate is on it: by the number that the holder of the key `issuer` gave it, or
    /// by its own key.
    public func contains(serial: SerialNumber, issuer: Fingerprint, key: Fingerprint) -> Bool {
        keys.contains(key) || certificates.contains(Entry(issuer: issuer, serial: serial))
    }
}
