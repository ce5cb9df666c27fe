package import BLESecChannelCore
internal import BLESecPrimitives
package import Glibc

/// Writes files that appear under their name only when they are complete and on the disk. On a file
/// system without hard links, ``create(_:_:for:)`` writes the file in place instead.
///
/// If the process is killed meanwhile, ``create(_:_:for:)`` leaves nothing behind on a file system
/// with `O_TMPFILE`. On other file systems, and with ``replace(_:_:for:)``, a file whose name begins
/// with `.blesec-` can stay.
package enum NewFile {
    /// The users who may read a new file; only its owner may write it.
    package enum Readers: mode_t { case owner = 0o600, everyone = 0o644 }

    /// Creates `path` with these bytes; never replaces an existing file. If this fails, no new file
    /// is left behind.
    ///
    /// - Throws: `cannotCreate`, mainly when the file exists.
    package static func create(
        _ path: String, _ bytes: Span<UInt8>, for readers: Readers = .owner
    ) throws(ChannelError) {
        try refuseIfPresent(path)
        if try !createWithoutTemporaryName(path, bytes, readers) {
            try createWithTemporaryName(path, bytes, readers)
        }
        do throws(ChannelError) {
            try synchronizeDirectory(of: path)
        } catch {
            unsafe unlink(path)
            throw error
        }
    }

    /// Writes a file without a name, and then gives it the name `path`. Returns false if the file
    /// system has no files without names, or if `/proc` is missing, which is needed to give the name.
    private static func createWithoutTemporaryName(
        _ path: String, _ bytes: Span<UInt8>, _ readers: Readers
    ) throws(ChannelError) -> Bool {
        // `O_TMPFILE` is a macro that Swift does not import.
        let flags = 0o20_000_000 | O_DIRECTORY | O_WRONLY
        guard let file = FileDescriptor(directory(of: path), flags, mode: readers.rawValue) else {
            return false
        }
        guard file.fill(with: bytes, readers) else { throw cannotCreate(path, errno) }
        let name = "/proc/self/fd/\(file.number)"
        // `linkat` refuses an existing name, as `link` does.
        if unsafe linkat(AT_FDCWD, name, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0 { return true }
        guard errno != EEXIST else { throw existsError(path) }
        return false
    }

    private static func createWithTemporaryName(
        _ path: String, _ bytes: Span<UInt8>, _ readers: Readers
    ) throws(ChannelError) {
        let temporary = try writeTemporary(beside: path, bytes, readers)
        defer { unsafe unlink(temporary) }
        // `link` refuses an existing name, which `rename` would replace.
        if unsafe link(temporary, path) != 0 {
            let number = errno
            guard number != EEXIST else { throw existsError(path) }
            // A file system without hard links, such as FAT, returns one of these errors.
            guard [EPERM, EOPNOTSUPP, ENOSYS].contains(number) else {
                throw cannotCreate(path, number)
            }
            try writeExclusively(path, bytes, readers)
        }
    }

    /// Replaces the file at `path`, in one step, with a new file that has these bytes.
    ///
    /// - Throws: `cannotCreate`. If only the directory cannot be synchronized, the file has the new
    ///   content, which may be lost when the system stops.
    static func replace(
        _ path: String, _ bytes: Span<UInt8>, for readers: Readers = .owner
    ) throws(ChannelError) {
        let temporary = try writeTemporary(beside: path, bytes, readers)
        guard unsafe rename(temporary, path) == 0 else {
            let number = errno
            unsafe unlink(temporary)
            throw cannotCreate(path, number)
        }
        do throws(ChannelError) {
            try synchronizeDirectory(of: path)
        } catch {
            throw ChannelError(
                .cannotCreate,
                "\(path) has its new content, but may lose it when the system stops: the folder "
                    + "cannot be written to the disk", underlying: error.underlying)
        }
    }

    /// Throws unless this user can create files in the directory of `path`.
    static func requireDirectory(of path: String) throws(ChannelError) {
        let found = directory(of: path)
        var status = stat()
        guard unsafe stat(found, &status) == 0,
            unsafe faccessat(AT_FDCWD, found, W_OK | X_OK, AT_EACCESS) == 0
        else { throw cannotCreate(path, errno) }
        guard status.isDirectory else { throw cannotCreate(path, ENOTDIR) }
    }

    static func refuseIfPresent(_ path: String) throws(ChannelError) {
        var status = stat()
        if unsafe lstat(path, &status) == 0 { throw existsError(path) }
    }

    /// A random name in the directory of `path`.
    private static func temporaryPath(beside path: String) -> String {
        let suffix = randomBytes(count: 8).map { String($0, radix: 16) }.joined()
        return directory(of: path) + "/.blesec-" + suffix
    }

    private static func writeTemporary(
        beside path: String, _ bytes: Span<UInt8>, _ readers: Readers
    ) throws(ChannelError) -> String {
        let temporary = temporaryPath(beside: path)
        do throws(ChannelError) {
            try writeExclusively(temporary, bytes, readers)
        } catch {
            // The error names the temporary file; the caller knows only `path`.
            throw ChannelError(
                error.code, "\(path) \(error.reason.dropFirst(temporary.count + 1))",
                underlying: error.underlying)
        }
        return temporary
    }

    private static func writeExclusively(
        _ path: String, _ bytes: Span<UInt8>, _ readers: Readers
    ) throws(ChannelError) {
        let flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW
        guard let file = FileDescriptor(path, flags, mode: readers.rawValue) else {
            throw errno == EEXIST ? existsError(path) : cannotCreate(path, errno)
        }
        guard file.fill(with: bytes, readers) else {
            let number = errno
            unsafe unlink(path)
            throw cannotCreate(path, number)
        }
    }

    static func existsError(_ path: String) -> ChannelError {
        ChannelError(
            .cannotCreate, "\(path) exists and is not overwritten: choose another name, or move it",
            underlying: .errno(EEXIST))
    }

    static func cannotCreate(_ path: String, _ number: Int32) -> ChannelError {
        .system(.cannotCreate, "\(path) cannot be created", number)
    }

    /// Makes a directory and the missing directories above it, with mode 0700 and durable names.
    static func makeDirectory(_ path: String) throws(ChannelError) {
        let path = withoutTrailingSlashes(path)
        if unsafe mkdir(path, 0o700) != 0 {
            let number = errno
            if number == EEXIST { return }
            let parent = directory(of: path)
            guard number == ENOENT, parent != "/", parent != "." else {
                throw cannotCreate(path, number)
            }
            try makeDirectory(parent)
            guard unsafe mkdir(path, 0o700) == 0 else {
                guard errno == EEXIST else { throw cannotCreate(path, errno) }
                return
            }
        }
        do throws(ChannelError) {
            guard permitOwner(ofDirectory: path) else { throw cannotCreate(path, errno) }
            try synchronizeDirectory(of: path)
        } catch {
            // Otherwise the next call would find the directory, and treat its name as durable.
            unsafe rmdir(path)
            throw error
        }
    }

    /// Gives the owner of a directory that was just made the permissions that the umask has
    /// removed. `path` is relative to the directory `parent`. Returns false on an error, which is in
    /// `errno`.
    package static func permitOwner(
        ofDirectory path: String, in parent: Int32 = AT_FDCWD
    ) -> Bool {
        // With `O_PATH`, no permission to read the directory is needed. `fchmod` refuses such a
        // descriptor, but `chmod` accepts the descriptor's name in `/proc`.
        let flags = FileDescriptor.pathFlag | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
        let number = unsafe openat(parent, path, flags)
        guard number >= 0 else { return false }
        defer { close(number) }
        var status = stat()
        guard unsafe fstat(number, &status) == 0 else { return false }
        guard status.st_mode & S_IRWXU != S_IRWXU else { return true }
        return unsafe chmod("/proc/self/fd/\(number)", status.st_mode & 0o7777 | S_IRWXU) == 0
    }

    /// Makes the missing directories above `path`, with mode 0700. Throws if a directory is missing
    /// and the nearest existing directory belongs to another user.
    static func makeDirectories(above path: String) throws(ChannelError) {
        let wanted = directory(of: path)
        var present = wanted
        var status = stat()
        while unsafe stat(present, &status) != 0 {
            guard errno == ENOENT, present != "/", present != "." else { return }
            present = directory(of: present)
        }
        guard present != wanted, status.st_mode & S_IFMT == S_IFDIR else { return }
        guard status.st_uid == geteuid() else {
            throw ChannelError(
                .cannotCreate,
                "\(path) cannot be created: the folder \(wanted) is missing, and \(present) "
                    + "belongs to another user: make the folder first", underlying: .errno(ENOENT))
        }
        try makeDirectory(wanted)
    }

    /// The path of a directory without any `/` and `/.` at its end; the root stays `/`.
    static func withoutTrailingSlashes(_ path: String) -> String {
        var path = path[...]
        while path.count > 1, path.last == "/" || path.hasSuffix("/.") { path.removeLast() }
        return String(path)
    }

    /// The path of the directory that contains the file or directory at `path`.
    package static func directory(of path: String) -> String {
        // As bytes: a slash before a combining character is no `Character` of its own.
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    /// The name of the file or directory at `path`; empty if the path ends with a slash.
    static func name(of path: String) -> String {
        let slash = path.utf8.lastIndex(of: UInt8(ascii: "/"))
        return slash.map { String(path[path.utf8.index(after: $0)...]) } ?? path
    }

    /// Makes the name of a file or directory durable by synchronizing the directory that contains
    /// it. Does nothing if this user may not list that directory, as with mode 0300, or if the
    /// file system cannot synchronize directories.
    package static func synchronizeDirectory(of path: String) throws(ChannelError) {
        guard let directory = FileDescriptor(directory(of: path), O_RDONLY | O_DIRECTORY) else {
            guard errno == EACCES else { throw cannotCreate(path, errno) }
            return
        }
        guard fsync(directory.number) != 0, errno != EINVAL, errno != EOPNOTSUPP else { return }
        throw cannotCreate(path, errno)
    }
}

extension FileDescriptor {
    /// Writes the content and the mode of a new file to the disk; false on an error, which is in
    /// `errno`.
    fileprivate func fill(with bytes: Span<UInt8>, _ readers: NewFile.Readers) -> Bool {
        // Set the mode again, because the umask may have removed bits.
        fchmod(number, readers.rawValue) == 0 && write(bytes) && fsync(number) == 0
    }
}
