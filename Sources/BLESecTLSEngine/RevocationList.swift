public import BLESecChannelCore

/// The revoked certificates, by issuer and serial number or by key.
public struct RevocationList: Sendable {
    private struct Entry: Sendable, Hashable {
        /// The issuer's key. The issuer's name is not used, since it can be encoded in several
        /// ways.
        let issuer: Fingerprint
        let serial: SerialNumber
    }

    private let certificates: Set<Entry>
    private let keys: Set<Fingerprint>
    /// The keys that have signed the lists.
    package let issuers: Set<Fingerprint>
    /// The last second, in Unix time, in which all lists are up to date; `nil` without lists.
    public let expiry: Int64?

    /// Reads lists in their DER form (RFC 5280 §5), each signed by one of `authorities`. Every
    /// certificate with one of `keys` is revoked as well.
    ///
    /// - Throws: `badKey` if a list is damaged, is not signed by any of `authorities`, has no end
    ///   of its validity, or is not a complete list. The reason begins with a verb, so that a
    ///   caller can put the file's path before it.
    public init(
        lists: [[UInt8]], keys: some Sequence<Fingerprint> = [], authorities: CertificateAuthorities
    ) throws(ChannelError) {
        var certificates: Set<Entry> = []
        var issuers: Set<Fingerprint> = []
        var expiry: Int64?
        for der in lists {
            let list = try SignedRevocationList(der: der, issuers: authorities.certificates)
            certificates.formUnion(list.dates.keys.map { Entry(issuer: list.issuer, serial: $0) })
            issuers.insert(list.issuer)
            expiry = min(expiry ?? .max, list.validity.upperBound)
        }
        self.certificates = certificates
        self.issuers = issuers
        self.keys = Set(keys)
        self.expiry = expiry
    }

    /// Whether a certificate is revoked. `serial` is its serial number, `issuer` is the fingerprint
    /// of its issuer's key, and `key` is the fingerprint of its own key.
    public func contains(serial: SerialNumber, issuer: Fingerprint, key: Fingerprint) -> Bool {
        contains(key: key) || certificates.contains(Entry(issuer: issuer, serial: serial))
    }

    /// Whether every certificate with this key is revoked.
    func contains(key: Fingerprint) -> Bool { keys.contains(key) }
}
