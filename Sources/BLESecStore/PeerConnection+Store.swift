public import BLESec
public import BLESecChannelCore
internal import BLESecCredentials
internal import BLESecDelivery
internal import BLESecPrimitives
internal import Glibc

extension PeerConnection.Store {
    /// Opens the store for a pair of keys in a directory. Makes the store and the directory if they
    /// are missing.
    ///
    /// The directory holds one SQLite database for each pair of keys, so a peer with another key
    /// has another store. Only the directory's owner may enter it. While a store is open, no other
    /// process and no other connection can open it.
    ///
    /// A store holds messages in clear. If an older copy of the store is put back, the connection
    /// notices this at the next link to the peer: `PeerConnection.wasStoreRolledBack`. Once both
    /// sides have closed the connection, the store takes no more messages, and a new connection
    /// needs another directory.
    ///
    /// - Parameters:
    ///   - directory: the path of the directory.
    ///   - own: this side's key.
    ///   - peer: the peer's key.
    /// - Throws: one of these errors:
    ///   - `store` for a store that is in use, cannot be written, is damaged or is newer than this
    ///     version.
    ///   - `cannotCreate` if the directory cannot be made.
    ///   - `permission` if this process may not open the directory.
    ///   - `badKey` if `directory` is no directory, or if others may enter or replace it.
    public static func open(
        in directory: String, own: Fingerprint, peer: Fingerprint
    ) throws(ChannelError) -> Self {
        let folder = try StateFolder.make(directory)
        let path = "\(folder.realPath)/\(fileName(own: own, peer: peer))"
        do throws(StoreFailure) {
            try prepare(path, own: own.description, peer: peer.description)
            let store = try SQLiteStore(at: path, keys: (own.description, peer.description))
            return Self(own: own, peer: peer, store)
        } catch {
            throw ChannelError(.store, error.reason)
        }
    }

    /// The file name of the store for a pair of keys.
    static func fileName(own: Fingerprint, peer: Fingerprint) -> String {
        sha256(own.digest + peer.digest).map { byte in
            String(byte >> 4, radix: 16) + String(byte & 15, radix: 16)
        }.joined() + ".sqlite"
    }

    /// Makes the store if it does not exist, and makes its directory entry durable. The entry of an
    /// existing store may not be durable yet, because the process that made the store may have
    /// ended before it synchronized the directory.
    private static func prepare(_ path: String, own: String, peer: String) throws(StoreFailure) {
        let directory = NewFile.directory(of: path)
        let folder = unsafe Glibc.open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard folder >= 0 else {
            throw StoreFailure("the store \(path) cannot be opened: \(describe(errno))")
        }
        defer { close(folder) }
        if try !exists(path) {
            try lock(folder, directory)
            if try !exists(path) { try make(at: path, own: own, peer: peer) }
        }
        // Some file systems cannot synchronize directories.
        guard fsync(folder) == 0 || errno == EINVAL || errno == EOPNOTSUPP else {
            throw StoreFailure("the store \(path) cannot be made durable: \(describe(errno))")
        }
    }

    /// Makes a store, in a directory that is locked.
    ///
    /// The store is made under a temporary name, and gets its own name when it is complete. So no
    /// incomplete store ever has a store's name. The lock lets only one process at a time make stores
    /// in a directory: otherwise a process could remove the log of a store that another process has
    /// just made.
    private static func make(at path: String, own: String, peer: String) throws(StoreFailure) {
        let newPath = "\(path).\(getpid()).new"
        // A process that was killed while it made this store may have left a file with such a
        // name, and SQLite's log of it. The name may even be a second link to a store that has been
        // in use since then.
        let directory = NewFile.directory(of: path)
        for name in (try? Outbox.names(in: directory)) ?? []
        where [".new", ".new-journal", ".new-wal"].contains(where: { name.hasSuffix($0) }) {
            let leftover = "\(directory)/\(name)"
            if leftover.hasPrefix(path + ".") { unsafe unlink(leftover) }
        }
        let file = unsafe Glibc.open(newPath, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0o600)
        guard file >= 0 else {
            throw StoreFailure("the store \(path) cannot be made: \(describe(errno))")
        }
        close(file)
        defer { unsafe unlink(newPath) }
        do throws(Database.Failure) {
            try SQLiteStore.make(at: newPath, own: own, peer: peer)
        } catch {
            throw StoreFailure(error.explanation(for: path))
        }
        // A removed store may have left its log, and SQLite would apply that log to the new store.
        for suffix in ["-wal", "-journal"] { unsafe unlink(path + suffix) }
        guard unsafe link(newPath, path) == 0 else {
            throw StoreFailure("the store \(path) cannot be made: \(describe(errno))")
        }
    }

    /// How long to wait for another process that makes a store in the same directory.
    private static let lockTimeout: Duration = .seconds(2)
    /// The wait in microseconds between attempts to lock: `flock` itself has no time limit.
    private static let lockRetryDelay: UInt32 = 5_000

    /// Locks the directory itself: a lock file would remain in it.
    private static func lock(_ folder: Int32, _ directory: String) throws(StoreFailure) {
        let deadline = ContinuousClock.now + lockTimeout
        while flock(folder, LOCK_EX | LOCK_NB) != 0 {
            guard errno == EWOULDBLOCK || errno == EINTR else {
                throw StoreFailure(
                    "the directory \(directory) cannot be locked: \(describe(errno))")
            }
            guard ContinuousClock.now < deadline else {
                throw StoreFailure(
                    "the directory \(directory) is locked by another process, which does not "
                        + "release it")
            }
            usleep(lockRetryDelay)
        }
    }

    /// Whether the store exists. Throws for an empty file, which SQLite would take for a new
    /// database.
    private static func exists(_ path: String) throws(StoreFailure) -> Bool {
        var status = stat()
        guard unsafe lstat(path, &status) == 0 else { return false }
        guard status.st_size > 0 else {
            throw StoreFailure(
                "the store \(path) is damaged: it is empty; put back a copy of all its files, or "
                    + "move them away")
        }
        return true
    }

    private static func describe(_ number: Int32) -> String {
        unsafe String(cString: strerror(number))
    }
}
