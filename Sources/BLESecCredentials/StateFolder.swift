package import BLESecChannelCore
internal import Glibc

/// What a program remembers of its peers between two runs: a directory that only its owner may enter.
///
/// It holds `known_peers`, the names that were given to keys, and `last_addresses`, where each of them
/// was reached last. Both are text, mode 0600, replaced in one step, and refused when others could have
/// written them or when a line makes no sense.
package struct StateFolder: Sendable {
    /// Where it is.
    package let path: String
    /// Names, and the keys that they stand for.
    package let knownPeers: KnownPeersFile
    /// Where keys were reached last.
    package let lastAddresses: LastAddressesFile

    /// `blesec` in `$XDG_STATE_HOME`, or in `~/.local/state`; nil where there is neither.
    package static var standardPath: String? {
        if let state = variable("XDG_STATE_HOME") { return state + "/blesec" }
        return variable("HOME").map { $0 + "/.local/state/blesec" }
    }

    /// Opens the folder at `path`, which has to be there.
    ///
    /// - Throws: `noSuchFile`; `permission`; `badKey` when it is someone else's, or open to others, or
    ///   others may change what is above it.
    package init(_ path: String) throws(ChannelError) {
        var trimmed = path[...]
        while trimmed.count > 1, trimmed.last == "/" { trimmed.removeLast() }
        self.path = String(trimmed)
        knownPeers = KnownPeersFile(self.path + "/known_peers")
        lastAddresses = LastAddressesFile(self.path + "/last_addresses")
        try requireClosed()
    }

    /// Opens the folder at `path`, and makes it first where it is missing, with those above it.
    ///
    /// - Throws: `cannotCreate`, and what ``init(_:)`` throws.
    package static func make(_ path: String) throws(ChannelError) -> StateFolder {
        try makeDirectory(path[...])
        return try StateFolder(path)
    }

    /// Reads both files, and throws what is wrong with either: before a peer is dialed is the time to
    /// say so.
    package func check() throws(ChannelError) {
        _ = try knownPeers.peers()
        try lastAddresses.check()
    }

    private func requireClosed() throws(ChannelError) {
        do throws(TrustedFile.Failure) {
            _ = try TrustedFile(closedDirectory: path)
        } catch {
            guard case .system(ENOTDIR) = error else { throw error.error(path) }
            throw .system(.badKey, "\(path) is no state folder", ENOTDIR)
        }
    }

    private static func makeDirectory(_ path: Substring) throws(ChannelError) {
        guard unsafe mkdir(String(path), 0o700) != 0 else { return }
        let number = errno
        if number == EEXIST { return }
        guard number == ENOENT, let slash = path.lastIndex(of: "/"), slash > path.startIndex else {
            throw .system(.cannotCreate, "\(path) cannot be created", number)
        }
        try makeDirectory(path[..<slash])
        guard unsafe mkdir(String(path), 0o700) == 0 || errno == EEXIST else {
            throw .system(.cannotCreate, "\(path) cannot be created", errno)
        }
    }

    /// An absolute path in the environment; relative ones count as unset (XDG Base Directory).
    private static func variable(_ name: String) -> String? {
        guard let value = unsafe getenv(name) else { return nil }
        let text = unsafe String(cString: value)
        return text.hasPrefix("/") ? text : nil
    }
}
