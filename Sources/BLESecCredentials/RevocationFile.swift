public import BLESecChannelCore
internal import BLESecLocking
public import BLESecTLSEngine

/// The revocations of authorities, from a file that is read again when it has changed.
///
/// The file contains revocation lists (RFC 5280 §5): one in DER form, or any number as PEM blocks
/// `X509 CRL`, as `blesec ca` and `openssl ca -gencrl` write them. Each line outside the blocks is
/// a comment that begins with `#`, or the fingerprint of a revoked key with an optional
/// explanation. If a file is cut between two lists or lines, nothing shows that the rest is missing,
/// so replace the file in one step.
public final class RevocationFile: RevocationSource {
    /// The longest file that is read, in bytes; it has room for about 28,000 revocations.
    public static let maximumLength = ListFile.maximumLength

    private struct Cache: Sendable {
        /// Nil if the file has to be read again.
        var version: ListFile.FileVersion?
        var list: RevocationList
    }

    /// The path of the file.
    public let path: String
    private let authorities: CertificateAuthorities
    private let cache: Locked<Cache>

    /// Reads the file; its lists must be signed by `authorities`.
    ///
    /// - Throws: `noSuchFile`, since a missing file must not count as an empty list; `permission`;
    ///   `limitExceeded`; `badKey` when other users may write the file, or part of it is invalid.
    ///   The reason names the file.
    public init(_ path: String, authorities: CertificateAuthorities) throws(ChannelError) {
        self.path = path
        self.authorities = authorities
        cache = Locked(try Self.read(path, authorities))
    }

    /// The present revocations in the file; `now` is in seconds since 1970.
    ///
    /// - Throws: the errors of ``init(_:authorities:)``; `badKey` when a list is out of date, or
    ///   when the file has lost the list of one of the authorities. Such an authority is still
    ///   accepted, so without its list the certificates that it has revoked would be accepted too.
    ///   After any error the caller must accept no peer.
    public func current(at now: Int64) throws(ChannelError) -> RevocationList {
        var known = cache.withLock { $0 }
        if !ListFile.isUnchanged(path, since: known.version) {
            let issuers = known.list.issuers
            known = try Self.read(path, authorities)
            guard known.list.issuers.isSuperset(of: issuers) else {
                throw .badKey(
                    "\(path) has lost the revocation list of an authority that is still accepted: "
                        + "put it back; if the authority has been removed, start the program again")
            }
            cache.withLock { [known] in $0 = known }
        }
        do throws(ChannelError) {
            return try known.list.current(at: now)
        } catch {
            throw ChannelError(error.code, "\(path): \(error.reason)")
        }
    }

    private static func read(
        _ path: String, _ authorities: CertificateAuthorities
    ) throws(ChannelError) -> Cache {
        guard let listing = try ListFile(path) else {
            throw ChannelError(.noSuchFile, "\(path): no such file")
        }
        // The DER form begins with the tag of a SEQUENCE, and no valid line of text does.
        let isDER = listing.text.first == 0x30
        let parts =
            isDER ? RevocationParts(lists: [listing.text]) : try RevocationParts(listing.text, path)
        // A file with neither a list nor a fingerprint is refused: it may have been truncated.
        guard !parts.lists.isEmpty || !parts.keys.isEmpty else {
            throw .badKey(
                "\(path) revokes nothing: a revocation list begins with \(RevocationParts.begin), "
                    + "and a revoked key with SHA256:")
        }
        return try withPathInErrors(path) { () throws(ChannelError) in
            let list = try RevocationList(
                lists: parts.lists, keys: parts.keys, authorities: authorities)
            return Cache(version: listing.version, list: list)
        }
    }
}

/// The content of a revocation file: lists in DER form, and fingerprints of revoked keys.
struct RevocationParts: Sendable {
    static let begin = "-----BEGIN X509 CRL-----"
    private static let end = "-----END X509 CRL-----"

    var lists: [[UInt8]] = []
    var keys: [Fingerprint] = []
}

extension RevocationParts {
    /// Reads every line. An invalid line is an error, since it may be a damaged revocation.
    init(_ text: [UInt8], _ path: String) throws(ChannelError) {
        var block: [UInt8] = []
        // The number of the block's first line; nil outside a block.
        var start: Int?
        for (number, words) in try ListFile.lines(of: text, in: path) {
            let line = words.joined(separator: " ")
            if start != nil || line == Self.begin {
                start = start ?? number
                block += Array((line + "\n").utf8)
                guard line == Self.end else { continue }
                guard let list = CertificateFile.revocationList(block) else {
                    throw ListFile.malformed(
                        path, start ?? number, "the revocation list is damaged")
                }
                lists.append(list)
                block = []
                start = nil
            } else if let key = Fingerprint(String(words[0])) {
                try ListFile.refuseSecondKey(words, path, number)
                keys.append(key)
            } else {
                throw ListFile.malformed(
                    path, number, "neither a revocation list in PEM form nor a fingerprint")
            }
        }
        if let start { throw ListFile.malformed(path, start, "the revocation list is cut off") }
    }
}
