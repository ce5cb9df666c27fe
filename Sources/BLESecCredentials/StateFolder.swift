package import BLESecChannelCore
internal import Glibc

/// The directory in which a program keeps its knowledge of peers between runs. Only its owner may
/// enter it.
///
/// Besides this side's own identity, it contains three text files: `known_peers`, the peers' names
/// and keys; `known_peers.pending`, the pairings that are not complete; and `last_addresses`, the
/// address at which each key was last reached. Each of the three has mode 0600 and is replaced
/// atomically. A file that other users could have written, or that has an invalid line, is refused.
package struct StateFolder: Sendable {
    package let path: String
    /// ``path`` without symbolic links.
    package let realPath: String
    package let knownPeers: KnownPeersFile
    package let lastAddresses: LastAddressesFile
    /// The path of the file with this side's own identity, which pairing makes.
    package var identityPath: String { path + "/identity" }

    /// `blesec` in `$XDG_STATE_HOME`, or else in `$HOME/.local/state`; nil if neither variable has
    /// an absolute path, or if there is no directory `$HOME`. For a user without a home, `$HOME` is
    /// often `/nonexistent`, a directory that a process of root would otherwise make.
    ///
    /// - Throws: `configuration` when the path in the variable is not UTF-8.
    package static var standardPath: String? {
        get throws(ChannelError) {
            if let state = try absolutePath(inVariable: "XDG_STATE_HOME") {
                return state + "/blesec"
            }
            guard let home = try absolutePath(inVariable: "HOME"), unsafe access(home, F_OK) == 0
            else { return nil }
            return home + "/.local/state/blesec"
        }
    }

    /// Opens the folder at `path`, which has to exist.
    ///
    /// - Throws: `noSuchFile`; `permission` when the folder cannot be opened; `badKey` when keys in
    ///   the folder cannot be trusted: the folder is not a directory, belongs to another user or
    ///   gives others any permission, or other users may change a directory above the folder.
    package init(_ path: String) throws(ChannelError) {
        self.path = NewFile.withoutTrailingSlashes(path)
        knownPeers = KnownPeersFile(self.path + "/known_peers")
        lastAddresses = LastAddressesFile(self.path + "/last_addresses")
        do throws(TrustedFile.Failure) {
            realPath = try TrustedFile(privateDirectory: self.path).path
        } catch {
            guard case .system(ENOTDIR) = error else { throw error.channelError(for: self.path) }
            throw .system(.badKey, "\(self.path) is no directory", ENOTDIR)
        }
    }

    /// Opens the folder at `path`. If the folder or a directory above it is missing, makes it first.
    ///
    /// - Throws: `cannotCreate`, and the errors of ``init(_:)``.
    package static func make(_ path: String) throws(ChannelError) -> StateFolder {
        try NewFile.makeDirectory(path)
        return try StateFolder(path)
    }

    /// Reads the three files, and throws the first error. So the error is reported before a peer is
    /// dialed.
    package func check() throws(ChannelError) {
        _ = try knownPeers.peers()
        _ = try knownPeers.pendingPeers()
        try lastAddresses.check()
    }

    /// The path in an environment variable; nil if the variable is unset, or if the path is relative
    /// (XDG Base Directory Specification).
    private static func absolutePath(
        inVariable name: String
    ) throws(ChannelError) -> String? {
        guard let value = unsafe getenv(name), unsafe value.pointee == CChar(UInt8(ascii: "/"))
        else { return nil }
        // A `String` made by replacing the bytes that are not UTF-8 would name another folder.
        guard let text = unsafe String(validatingCString: value) else {
            throw ChannelError(
                .configuration,
                "the path in the variable \(name) is not UTF-8: set it to another path")
        }
        return text
    }
}
