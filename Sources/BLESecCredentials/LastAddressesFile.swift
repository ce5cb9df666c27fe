package import BLESecChannelCore
internal import Glibc

/// A text file with the address at which each peer was last reached. Each line has the fingerprint
/// and the address, escaped like a name in ``KnownPeersFile``. An address proves nothing; it only
/// makes a scan unnecessary.
///
/// The file has mode 0600 and is replaced in one step and under a lock. A file that other users can
/// write is refused. Beyond ``maximumPeers`` the addresses recorded longest ago are removed.
package final class LastAddressesFile: Sendable {
    package static let maximumPeers = 1_000
    /// The longest address in bytes of UTF-8.
    package static let maximumAddressLength = PeerName.maximumLength

    /// The path of the file. The file need not exist before the first address is recorded.
    package let path: String

    /// Makes an object for the file at `path`. Nothing is kept in memory: each method reads the
    /// file.
    package init(_ path: String) { self.path = path }

    /// The address at which the peer was last reached; nil when it is unknown.
    ///
    /// - Throws: `badKey`, whose reason names the line, when a line cannot be parsed; `badKey` when
    ///   other users may change the file; `permission`; `limitExceeded`.
    package func address(of key: Fingerprint) throws(ChannelError) -> String? {
        guard let listing = try ListFile(path) else { return nil }
        return try parse(listing).last { $0.key == key }?.address
    }

    /// The last address of every peer that has one; throws the errors of ``address(of:)``.
    package func addresses() throws(ChannelError) -> [Fingerprint: String] {
        guard let listing = try ListFile(path) else { return [:] }
        return Dictionary(try parse(listing).map { ($0.key, $0.address) }) { $1 }
    }

    /// Reads the file; throws the errors of ``address(of:)``.
    func check() throws(ChannelError) {
        if let listing = try ListFile(path) { _ = try parse(listing) }
    }

    /// Records the address at which the peer was reached, in place of an earlier address.
    ///
    /// - Throws: `configuration` for an address that is empty or too long; `cannotCreate`;
    ///   `timedOut` when the file stays locked; the errors of reading the file.
    package func record(_ address: String, of key: Fingerprint) throws(ChannelError) {
        guard (1...Self.maximumAddressLength).contains(address.utf8.count) else {
            throw ChannelError(
                .configuration, "an address has 1 to \(Self.maximumAddressLength) bytes")
        }
        try ListFile.change(path) { listing throws(ChannelError) in
            var lines = try parse(listing)
            if let last = lines.last, last.key == key, last.address == address { return nil }
            lines.removeAll { $0.key == key }
            lines.append((key, address))
            return text(lines.suffix(Self.maximumPeers))
        }
    }

    /// Removes the peer's address; false when there is none.
    ///
    /// - Throws: `cannotCreate`; `timedOut` when the file stays locked; the errors of reading the
    ///   file.
    package func remove(_ key: Fingerprint) throws(ChannelError) -> Bool {
        // Checked without the lock, because taking the lock would create a missing file.
        guard try address(of: key) != nil else { return false }
        var isChanged = false
        try ListFile.change(path) { listing throws(ChannelError) in
            var lines = try parse(listing)
            let count = lines.count
            lines.removeAll { $0.key == key }
            isChanged = lines.count < count
            return isChanged ? text(lines[...]) : nil
        }
        return isChanged
    }

    private func text(_ lines: ArraySlice<(key: Fingerprint, address: String)>) -> [UInt8] {
        Array(lines.map { "\($0.key) \(PeerName.escape($0.address))\n" }.joined().utf8)
    }

    private func parse(
        _ listing: ListFile
    ) throws(ChannelError) -> [(key: Fingerprint, address: String)] {
        try ListFile.lines(of: listing.text, in: path).map { (number, words) throws(ChannelError) in
            guard words.count == 2, let key = Fingerprint(String(words[0])),
                let address = PeerName.unescape(words[1])
            else {
                throw ListFile.malformed(
                    path, number, "a line has a fingerprint and an address: remove this line")
            }
            return (key, address)
        }
    }
}
