package import BLESecChannelCore
internal import Glibc

/// Where peers were reached last, as a text file: a line each, with the fingerprint and the address in
/// the written form of names (``KnownPeersFile``). An address proves nothing; the file saves a search.
///
/// The file has mode 0600 and is replaced in one step and under a lock. Files that others can write
/// are refused. Beyond ``maximumPeers`` the peers whose addresses were noted longest ago are forgotten.
package final class LastAddressesFile: Sendable {
    /// How many peers are kept.
    package static let maximumPeers = 1_000
    /// The longest address in bytes of UTF-8.
    package static let maximumAddressLength = PeerName.maximumLength

    /// Where the file is. It need not exist before something is noted.
    package let path: String

    /// The file at `path`, which is read whenever it is asked.
    package init(_ path: String) { self.path = path }

    /// Where the peer was reached last; nil when that is not known.
    ///
    /// - Throws: `badKey` with the file and line that cannot be understood, or when others may change
    ///   the file; `permission`; `limitExceeded`.
    package func address(of key: Fingerprint) throws(ChannelError) -> String? {
        guard let listing = try KeyListing(path) else { return nil }
        return try parse(listing).last { $0.key == key }?.address
    }

    /// Reads the file; throws what ``address(of:)`` would.
    func check() throws(ChannelError) {
        if let listing = try KeyListing(path) { _ = try parse(listing) }
    }

    /// Notes where the peer was reached, instead of what was noted before.
    ///
    /// - Throws: `configuration` for an address that is empty or too long; `cannotCreate`; `timedOut`
    ///   when another process keeps the file locked; what reading it throws.
    package func note(_ address: String, of key: Fingerprint) throws(ChannelError) {
        guard (1...Self.maximumAddressLength).contains(address.utf8.count) else {
            throw ChannelError(
                .configuration, "an address has 1 to \(Self.maximumAddressLength) bytes")
        }
        let lock = try FileLock(path)
        guard let listing = try KeyListing(lock.path) else {
            throw ChannelError(.noSuchFile, "\(path) vanished while it was being changed")
        }
        var lines = try parse(listing)
        if let last = lines.last, last.key == key, last.address == address {
            return lock.release()
        }
        lines.removeAll { $0.key == key }
        lines.append((key, address))
        let text = lines.suffix(Self.maximumPeers)
            .map { "\($0.key) \(PeerName.escape($0.address))\n" }.joined()
        try NewFile.replace(lock.path, Array(text.utf8).span)
        lock.release()
    }

    private func parse(
        _ listing: KeyListing
    ) throws(ChannelError) -> [(key: Fingerprint, address: String)] {
        var found: [(key: Fingerprint, address: String)] = []
        for (number, words) in KeyListing.lines(of: listing.text) {
            guard words.count == 2, let key = Fingerprint(String(words[0])),
                let address = PeerName.unescape(words[1])
            else {
                throw KeyListing.malformed(
                    path, number, "a line is a fingerprint and an address; remove it")
            }
            found.append((key, address))
        }
        return found
    }
}
