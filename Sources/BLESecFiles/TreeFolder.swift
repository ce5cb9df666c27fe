internal import CBLESecLinux
internal import Glibc

/// The folder in which a receiver assembles a tree until the tree gets its final name. The object
/// records which paths belong to the tree, since an earlier version of the tree may have left other
/// files in the folder. Used on one thread.
final class TreeFolder {
    private let folder: Descriptor
    /// Whether nothing of the offer was held before this transfer; the folder was then empty.
    private let isFresh: Bool
    /// The space for the tree; each new folder takes some.
    private let reservation: SpaceReservation
    /// The hashes of the paths of the files that belong to the tree.
    private var files: Set<Int> = []
    /// The hashes of the paths of the folders that belong to the tree.
    private var folders: Set<Int> = []
    /// The inodes of the tree's files and folders; empty if ``isFresh``.
    ///
    /// What is found in the folder belongs to the tree if its path or its inode is recorded. The
    /// path alone is not enough: some file systems change the form of a name, or ignore the case of
    /// letters. The inode alone is not enough either: on some file systems, inodes change.
    private var inodes: Set<UInt> = []
    /// The folder inside the tree that was used last.
    private var lastUsed: (path: String, folder: Descriptor)?

    init(_ folder: Descriptor, isFresh: Bool, _ reservation: SpaceReservation) {
        self.folder = folder
        self.isFresh = isFresh
        self.reservation = reservation
    }

    /// Makes all files and folders durable.
    func synchronize() throws(FileFailure) { try folder.synchronizeAll() }

    /// Records that a file belongs to the tree, and returns whether it is already in its place.
    /// A file there that may be the announced one is moved to the folder `held`, under the name
    /// `partialName`: there its bytes are compared, as those of an incomplete file. Anything else
    /// that an earlier version of the tree has left in that place is removed.
    func addFile(
        _ entry: FileEntry, _ parts: [String], held: Descriptor, partialName: String
    ) throws(FileFailure) -> Bool {
        try addFoldersAbove(entry.path, parts)
        let hash = Self.hash(entry.path)
        guard !folders.contains(hash), files.insert(hash).inserted else {
            throw Self.duplicateName
        }
        let (parent, name) = try parent(of: entry.path)
        // A fresh folder has nothing of an earlier version.
        guard !isFresh, let status = parent.status(of: name) else { return false }
        try requireNotInTree(status)
        switch Self.compare(status, entry) {
        case .same:
            inodes.insert(status.st_ino)
            return true
        case .maybeSame:
            if try parent.renameNoReplace(name, to: held, partialName) {
                held.setExecutable(partialName, entry.isExecutable)
                return false
            }
        case .different: break
        }
        parent.removeAll(name)
        // That may have removed the folder that was used last.
        lastUsed = nil
        return false
    }

    /// Makes a folder, and the missing folders above it.
    func makeFolder(_ path: String, _ parts: [String]) throws(FileFailure) {
        let hash = Self.hash(path)
        // A sender may repeat a folder, which then has no effect.
        guard !folders.contains(hash) else { return }
        try addFoldersAbove(path, parts)
        try addFolder(hash)
        do throws(FileFailure) {
            lastUsed = (path, try folder(path))
        } catch {
            folders.remove(hash)
            throw error
        }
    }

    /// Throws if the file or folder with this status belongs to the tree already. Then two names in
    /// the tree are the same name for the file system, which may ignore the case of letters.
    private func requireNotInTree(_ status: stat) throws(FileFailure) {
        guard inodes.contains(status.st_ino) else { return }
        throw FileFailure(.badName, "for the file system, another file has the same name")
    }

    /// Moves a complete file from the folder `held` to its path in the tree, and returns the
    /// folder that contains it then.
    func put(
        _ name: String, from held: Descriptor, at path: String
    ) throws(FileFailure) -> Descriptor {
        let (parent, final) = try parent(of: path)
        guard try held.renameNoReplace(name, to: parent, final) else {
            throw FileFailure(.cannotWrite, "another file has the place of \(path)")
        }
        addInode(of: parent.status(of: final))
        return parent
    }

    /// Records that the file or folder with this status belongs to the tree.
    private func addInode(of status: stat?) {
        if !isFresh, let status { inodes.insert(status.st_ino) }
    }

    /// Removes what an earlier version of the tree has left and this version does not contain.
    func removeOthers() throws(FileFailure) { if !isFresh { try removeOthers(folder, "") } }

    private func removeOthers(_ folder: Descriptor, _ prefix: String) throws(FileFailure) {
        for name in try folder.names() {
            guard let status = folder.status(of: name) else { continue }
            let path = prefix.isEmpty ? name : "\(prefix)/\(name)"
            let hash = Self.hash(path)
            if !files.contains(hash), !folders.contains(hash), !inodes.contains(status.st_ino) {
                folder.removeAll(name)
                guard folder.status(of: name) == nil else {
                    throw FileFailure(.cannotWrite, "\(path) cannot be removed")
                }
            } else if status.isFolder {
                try removeOthers(try folder.open(name, O_RDONLY | O_DIRECTORY), path)
            }
        }
    }

    private enum Comparison { case same, maybeSame, different }

    /// The size of the smallest file whose bytes are compared, in bytes. A comparison takes a round
    /// trip; a smaller file is sent again in about the same time.
    static let leastCompared: UInt64 = 32 << 10

    /// Compares a file's size, time and mode with those of the announced file. Some file systems
    /// round times to 10 ms or to 2 s, and some give all files one mode. There, a file with another
    /// time or mode may be the announced one, or an earlier version of it.
    private static func compare(_ status: stat, _ entry: FileEntry) -> Comparison {
        guard status.isRegular, UInt64(max(0, status.st_size)) == entry.size else {
            return .different
        }
        let seconds = Int(entry.seconds)
        let hasSameTime =
            status.st_mtim.tv_sec == seconds && status.st_mtim.tv_nsec == Int(entry.nanoseconds)
        if hasSameTime, status.isExecutable == entry.isExecutable { return .same }
        let mayBeRounded =
            status.st_mtim.tv_nsec % 10_000_000 == 0
            && (seconds - 2...seconds + 1).contains(status.st_mtim.tv_sec)
        let maybeSame = entry.size >= leastCompared && (hasSameTime || mayBeRounded)
        return maybeSame ? .maybeSame : .different
    }

    // MARK: - Paths

    /// Records that the folders above a path belong to the tree.
    private func addFoldersAbove(_ path: String, _ parts: [String]) throws(FileFailure) {
        // In most cases, the parent is recorded already, and then so are the folders above it.
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")),
            !folders.contains(Self.hash(path[..<slash]))
        else { return }
        for count in 1..<parts.count {
            try addFolder(Self.hash(parts.prefix(count).joined(separator: "/")))
        }
    }

    /// Records that a folder belongs to the tree.
    private func addFolder(_ hash: Int) throws(FileFailure) {
        guard !files.contains(hash) else { throw Self.duplicateName }
        guard folders.count < FileSource.mostEntries || folders.contains(hash) else {
            throw FileFailure(
                .noSpace, "the tree has more than \(FileSource.mostEntries) folders")
        }
        folders.insert(hash)
    }

    private static var duplicateName: FileFailure {
        FileFailure(.badName, "the folder has two files or folders of this name")
    }

    /// A hash of the path's bytes. Swift's strings would give equal hashes for different encodings
    /// of a character, such as `é` as one or as two code points.
    private static func hash(_ path: some StringProtocol) -> Int { Array(path.utf8).hashValue }

    /// The folder of a path, which is made if it does not exist, and the path's last part.
    private func parent(of path: String) throws(FileFailure) -> (Descriptor, String) {
        let slash = path.utf8.lastIndex(of: UInt8(ascii: "/"))
        let parentPath = slash.map { path[..<$0] } ?? ""
        let name = slash.map { String(path[path.utf8.index(after: $0)...]) } ?? path
        if let lastUsed, FileName.areSame(lastUsed.path, parentPath) {
            return (lastUsed.folder, name)
        }
        let opened = try folder(String(parentPath))
        lastUsed = (String(parentPath), opened)
        return (opened, name)
    }

    /// Opens the folder at a path, and makes it if it does not exist.
    private func folder(_ path: String) throws(FileFailure) -> Descriptor {
        var folder = folder
        for part in path.utf8.split(separator: UInt8(ascii: "/")) {
            let name = String(Substring(part))
            let status = folder.status(of: name)
            if !isFresh, let status, !status.isFolder {
                // In an earlier version of the tree, a file had the path of this folder.
                try requireNotInTree(status)
                folder.remove(name)
            }
            if status?.isFolder != true { try reservation.addFolder() }
            folder = try folder.folder(name, mode: 0o777)
            addInode(of: folder.status)
        }
        return folder
    }
}
