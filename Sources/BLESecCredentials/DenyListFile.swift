public import BLESecChannelCore
internal import BLESecLocking

/// A deny list as a text file: each line has a fingerprint and an optional explanation. A line that
/// begins with `#` is a comment.
public final class DenyListFile: Sendable {
    /// The path of the file.
    public let path: String
    /// The list for a trust policy. Only ``refresh()`` may change its content.
    public let list: DenyList
    /// The content of the file when it was last read. ``refresh()`` holds the lock from before it
    /// reads the file until it has set ``list``. So of two simultaneous calls, the call that has
    /// read older content cannot set the list last.
    private let content: Locked<Content>

    private struct Content: Sendable {
        /// Nil if the file has to be read again.
        var version: ListFile.FileVersion?
        var keys: Set<Fingerprint>
    }

    /// Reads the file.
    ///
    /// - Throws: `noSuchFile`, since a missing deny list would deny nobody; `permission` when the
    ///   system denies access; `limitExceeded` for a file that is too long; `badKey` for an invalid
    ///   line, or when other users may write the file.
    public init(_ path: String) throws(ChannelError) {
        let content = try Self.read(path)
        self.path = path
        self.content = Locked(content)
        list = DenyList(content.keys)
    }

    /// Reads the file again if it may have changed, and returns whether its keys have changed. A
    /// change ends the channels with peers whose keys are now listed. If the file cannot be read,
    /// this method throws and the list stays as it was.
    @discardableResult
    public func refresh() throws(ChannelError) -> Bool {
        try content.withLock { content throws(ChannelError) -> Bool in
            guard !ListFile.isUnchanged(path, since: content.version) else { return false }
            let fresh = try Self.read(path)
            let hasChanged = fresh.keys != content.keys
            content = fresh
            if hasChanged { list.replace(with: fresh.keys) }
            return hasChanged
        }
    }

    private static func read(_ path: String) throws(ChannelError) -> Content {
        guard let listing = try ListFile(path) else {
            throw ChannelError(.noSuchFile, "\(path): no such file")
        }
        let keys = try ListFile.lines(of: listing.text, in: path).map {
            (number, words) throws(ChannelError) in
            guard let key = Fingerprint(String(words[0])) else {
                throw ListFile.malformed(
                    path, number, "a line begins with a fingerprint, SHA256: and 43 characters")
            }
            try ListFile.refuseSecondKey(words, path, number)
            return key
        }
        return Content(version: listing.version, keys: Set(keys))
    }
}
