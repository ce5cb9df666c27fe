internal import CBLESecLinux
internal import Glibc

/// The folder in which a receiver puts a tree together, out of sight. It remembers what belongs to
/// the tree, since an earlier version of the tree may have left files. Used on one thread.
final class TreeFolder {
    private let folder: Descriptor
    /// Whether nothing was there before.
    private let isFresh: Bool
    /// The hashes of the paths that belong to the tree.
    private var paths: Set<Int> = []
    /// The inodes of the files that were put here, unless the folder was fresh.
    private var stored: Set<UInt> = []
    /// The folder that was used last.
    private var last: (path: String, folder: Descriptor)?

    init(_ folder: Descriptor, isFresh: Bool) {
        self.folder = folder
        self.isFresh = isFresh
    }

    /// Makes everything durable, also the folders.
    func synchronize() throws(FileFailure) { try folder.synchronizeAll() }

    /// Counts a file as a part of the tree, and returns whether it is there. What an earlier version
    /// has in its place is removed.
    func take(_ entry: FileEntry, _ parts: [String]) throws(FileFailure) -> Bool {
        guard add(entry.path, parts) else {
            throw FileFailure(.badName, "the name is there twice")
        }
        let (place, name) = try place(of: entry.path)
        // Nothing is there that this transfer has not put there.
        guard !isFresh, let status = place.status(of: name) else { return false }
        // Where the case of letters does not count, another file may have the name.
        guard !stored.contains(status.st_ino) else {
            throw FileFailure(.badName, "the name is there in another form")
        }
        if Self.isSame(status, entry) { return true }
        FileFolder.removeAll(place, name)
        last = nil
        return false
    }

    /// Makes a folder, and those above it.
    func makeFolder(_ path: String, _ parts: [String]) throws(FileFailure) {
        _ = add(path, parts)
        last = (path, try folder(path))
    }

    /// Moves a complete file to its place, and returns the folder there.
    func put(
        _ name: String, from held: Descriptor, at path: String
    ) throws(FileFailure) -> Descriptor {
        let (place, final) = try place(of: path)
        guard try held.renameNew(name, to: place, final) else {
            throw FileFailure(.cannotWrite, "\(path) is there twice")
        }
        if !isFresh, let inode = place.status(of: final)?.st_ino { stored.insert(inode) }
        return place
    }

    /// Removes what does not belong to the tree.
    func removeOthers() { removeOthers(folder, "") }

    private func removeOthers(_ folder: Descriptor, _ prefix: String) {
        guard let names = try? folder.names() else { return }
        for name in names {
            let path = prefix.isEmpty ? name : "\(prefix)/\(name)"
            guard paths.contains(Self.hash(path)) else {
                FileFolder.removeAll(folder, name)
                continue
            }
            if folder.status(of: name)?.isFolder == true,
                let inner = try? folder.open(name, O_RDONLY | O_DIRECTORY)
            {
                removeOthers(inner, path)
            }
        }
    }

    /// Whether a file is the one that is announced. Some file systems keep times in steps of 10 ms,
    /// or of 2 s.
    private static func isSame(_ status: stat, _ entry: FileEntry) -> Bool {
        guard status.isRegular, UInt64(max(0, status.st_size)) == entry.size,
            (status.st_mode & S_IXUSR != 0) == entry.isExecutable
        else { return false }
        let seconds = Int(entry.seconds)
        if status.st_mtim.tv_sec == seconds, status.st_mtim.tv_nsec == Int(entry.nanoseconds) {
            return true
        }
        return status.st_mtim.tv_nsec % 10_000_000 == 0
            && (seconds - 2...seconds + 1).contains(status.st_mtim.tv_sec)
    }

    // MARK: - Paths

    /// Counts a path and those above it; returns whether the path is new.
    private func add(_ path: String, _ parts: [String]) -> Bool {
        let slash = path.utf8.lastIndex(of: UInt8(ascii: "/"))
        // The folder is that of the file before, most of the time.
        if let slash, last.map({ !FileName.areSame($0.path, path[..<slash]) }) ?? true {
            for count in 1..<parts.count {
                paths.insert(Self.hash(parts.prefix(count).joined(separator: "/")))
            }
        }
        return paths.insert(Self.hash(path)).inserted
    }

    /// Of the bytes: Swift takes different forms of a character for the same.
    private static func hash(_ path: String) -> Int { Array(path.utf8).hashValue }

    /// The folder of a path, which is made if it does not exist, and the last part.
    private func place(of path: String) throws(FileFailure) -> (Descriptor, String) {
        let slash = path.utf8.lastIndex(of: UInt8(ascii: "/"))
        let above = slash.map { path[..<$0] } ?? ""
        let name = slash.map { String(path[path.utf8.index(after: $0)...]) } ?? path
        if let last, FileName.areSame(last.path, above) { return (last.folder, name) }
        let made = try folder(String(above))
        last = (String(above), made)
        return (made, name)
    }

    /// A folder, which is made if it does not exist.
    private func folder(_ path: String) throws(FileFailure) -> Descriptor {
        var folder = folder
        for part in path.utf8.split(separator: UInt8(ascii: "/")) {
            let name = String(Substring(part))
            if !isFresh, folder.status(of: name)?.isFolder == false {
                // It was a file in an earlier version of the tree.
                folder.remove(name)
            }
            folder = try folder.folder(name, mode: 0o777)
        }
        return folder
    }
}
