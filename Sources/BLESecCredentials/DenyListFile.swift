public import BLESecChannelCore
internal import BLESecLocking

/// A deny list as a text file: each line has a fingerprint and an optional explanation. A line that
/// begins with `#` is a comment.
public final class DenyListFile: Sendable {
    /// The path of the file.
    public let path: String
    /// The list for a trust policy; ``refresh()`` changes its content.
    public let list: DenyList
    private let version: Locked<ListFile.FileVersion>

    /// Reads the file.
    ///
    /// - Throws: `noSuchFile`, since a missing deny list would deny nobody; `permission` when the
    ///   system denies access; `limitExceeded` for a file that is too long; `badKey` for an invalid
    ///   line, or when other users may write the file.
    public init(_ path: String) throws(ChannelError) {
        let (version, keys) = try Self.read(path)
        self.path = path
        self.version = Locked(version)
        list = DenyList(keys)
    }

    /// Reads the file again if it has changed, and returns whether it has changed. A change ends
    /// the channels with peers whose keys are now listed. If the file cannot be read, this method
    /// throws and the list stays as it was.
    @discardableResult
    public func refresh() throws(ChannelError) -> Bool {
        let known = version.withLock { $0 }
        guard ListFile.version(of: path) != known else { return false }
        let (fresh, keys) = try Self.read(path)
        version.withLock { $0 = fresh }
        list.replace(with: keys)
        return true
    }

    private static func read(
        _ path: String
    ) throws(ChannelError) -> (ListFile.FileVersion, [Fingerprint]) {
        guard let listing = try ListFile(path) else {
            throw ChannelError(.noSuchFile, "\(path): no such file")
        }
        let keys = try ListFile.lines(of: listing.text).map {
            (number, words) throws(ChannelError) in
            guard let key = Fingerprint(String(words[0])) else {
                throw ListFile.malformed(
                    path, number, "a line begins with a fingerprint, SHA256: and 43 characters")
            }
            return key
        }
        return (listing.version, keys)
    }
}
