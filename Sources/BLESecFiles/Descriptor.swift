internal import BLESecCredentials
internal import CBLESecLinux
internal import Glibc

/// Why a file or folder cannot be used.
struct FileFailure: Error, Equatable {
    var problem: FileProblem
    var text: String
    /// Whether the path leads to nothing, or to something that is neither a file nor a folder, such
    /// as a symbolic link or a socket.
    private(set) var isAbsent = false

    init(_ problem: FileProblem, _ text: String) {
        self.problem = problem
        self.text = text
    }

    /// The failure of a system call on the file or folder `what`, with the value of `errno`.
    init(_ what: String, _ number: Int32, isReading: Bool = false) {
        problem =
            switch number {
            case ENOSPC, EDQUOT, EFBIG: .noSpace
            default: isReading ? .cannotRead : .cannotWrite
            }
        let reason = unsafe strerror(number).map { unsafe String(cString: $0) }
        text = "\(what): \(reason ?? "error \(number)")"
        isAbsent = [ENOENT, ENOTDIR, ELOOP, ENXIO].contains(number)
    }
}

/// An open file or folder. It is closed when the object is released.
final class Descriptor: Sendable {
    let number: Int32

    private init(_ number: Int32) { self.number = number }

    deinit { close(number) }

    /// Opens a path, which may lead through symbolic links.
    static func open(_ path: String, _ flags: Int32) throws(FileFailure) -> Descriptor {
        let number = unsafe Glibc.open(path, flags | O_CLOEXEC)
        guard number >= 0 else {
            throw FileFailure(path, errno, isReading: flags & O_ACCMODE == O_RDONLY)
        }
        return Descriptor(number)
    }

    /// Opens the file or folder with this name in this folder; refuses a symbolic link. Does not
    /// wait for the other end of a named pipe.
    func open(_ name: String, _ flags: Int32, mode: mode_t = 0) throws(FileFailure) -> Descriptor {
        let number = unsafe openat(
            self.number, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, mode)
        guard number >= 0 else {
            throw FileFailure(name, errno, isReading: flags & O_ACCMODE == O_RDONLY)
        }
        return Descriptor(number)
    }

    /// Opens a folder, and makes it first if it does not exist. A new folder's owner may always use
    /// it, whatever the process's file mode creation mask (`umask`) says.
    func folder(_ name: String, mode: mode_t) throws(FileFailure) -> Descriptor {
        var attempts = 100
        while true {
            attempts -= 1
            let isNew = unsafe mkdirat(number, name, mode) == 0
            if !isNew, errno != EEXIST { throw FileFailure(name, errno) }
            do throws(FileFailure) {
                guard !isNew || NewFile.permitOwner(ofDirectory: name, in: number) else {
                    throw FileFailure(name, errno)
                }
                return try open(name, O_RDONLY | O_DIRECTORY)
            } catch {
                // Another transfer may have removed the empty folder between the two calls.
                guard attempts > 0, status(of: name) == nil else {
                    throw FileFailure(.cannotWrite, error.text)
                }
            }
        }
    }

    /// Whether the folder still has a path: false once it was removed.
    var hasPath: Bool { status.map { $0.st_nlink > 0 } ?? false }

    var status: stat? {
        var status = stat()
        return unsafe fstat(number, &status) == 0 ? status : nil
    }

    /// Whether `other` is a status of this file or folder.
    func isSame(as other: stat?) -> Bool {
        guard let status, let other else { return false }
        return status.st_dev == other.st_dev && status.st_ino == other.st_ino
    }

    /// The status of the entry with this name in this folder; a symbolic link is not followed.
    func status(of name: String) -> stat? {
        var status = stat()
        return unsafe fstatat(number, name, &status, AT_SYMLINK_NOFOLLOW) == 0 ? status : nil
    }

    func remove(_ name: String, isFolder: Bool = false) {
        unsafe unlinkat(number, name, isFolder ? AT_REMOVEDIR : 0)
    }

    /// Removes the entry with this name: a file, or a folder with all its contents.
    func removeAll(_ name: String) {
        guard status(of: name)?.isFolder == true else { return remove(name) }
        if let inner = try? open(name, O_RDONLY | O_DIRECTORY), let names = try? inner.names() {
            for name in names { inner.removeAll(name) }
        }
        remove(name, isFolder: true)
    }

    /// The names in this folder that are UTF-8, and those that are not, both in the order of their
    /// bytes.
    func allNames() throws(FileFailure) -> (names: [String], invalid: [[UInt8]]) {
        var names: [[UInt8]] = []
        unsafe try readNames { unsafe names.append(Array($0)) }
        names.sort { $0.lexicographicallyPrecedes($1) }
        let texts = names.compactMap { String(validating: $0, as: UTF8.self) }
        guard texts.count < names.count else { return (texts, []) }
        return (texts, names.filter { String(validating: $0, as: UTF8.self) == nil })
    }

    func names() throws(FileFailure) -> [String] { try allNames().names }

    /// The names that are UTF-8 and begin with `prefix`, in no particular order. Names without the
    /// prefix cost little time.
    func names(withPrefix prefix: String) throws(FileFailure) -> [String] {
        var names: [String] = []
        let prefix = Array(prefix.utf8)
        unsafe try readNames { name in
            guard unsafe name.starts(with: prefix),
                let text = unsafe String(validating: name, as: UTF8.self)
            else { return }
            names.append(text)
        }
        return names
    }

    /// Calls `body` with each name in this folder except `.` and `..`.
    private func readNames(_ body: (UnsafeBufferPointer<UInt8>) -> Void) throws(FileFailure) {
        // A separate descriptor, since closing the directory stream closes its descriptor.
        let copy = unsafe openat(number, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard copy >= 0, let stream = unsafe fdopendir(copy) else {
            if copy >= 0 { close(copy) }
            throw FileFailure("the folder", errno, isReading: true)
        }
        defer { unsafe closedir(stream) }
        while true {
            errno = 0
            guard let entry = unsafe readdir(stream) else {
                guard errno == 0 else {
                    throw FileFailure("the folder", errno, isReading: true)
                }
                break
            }
            unsafe withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                let length = unsafe bytes.firstIndex(of: 0) ?? bytes.count
                let name = unsafe UnsafeBufferPointer(
                    rebasing: bytes.assumingMemoryBound(to: UInt8.self)[..<length])
                let isDots = unsafe length <= 2 && name.allSatisfy { $0 == UInt8(ascii: ".") }
                if !isDots { unsafe body(name) }
            }
        }
    }

    /// Reads `count` bytes at an offset, or fewer at the end of the file.
    func read(at offset: UInt64, atMost count: Int) throws(FileFailure) -> [UInt8] {
        var failure: Int32 = 0
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
            guard let start = buffer.baseAddress else { return }
            while filled < count {
                let got = unsafe pread(
                    number, start + filled, count - filled, Int(offset) + filled)
                if got < 0, errno == EINTR { continue }
                if got < 0 { failure = errno }
                guard got > 0 else { return }
                filled += got
            }
        }
        guard failure == 0 else { throw FileFailure("the file", failure, isReading: true) }
        return bytes
    }

    func write(_ bytes: [UInt8], at offset: UInt64) throws(FileFailure) {
        var done = 0
        while done < bytes.count {
            let count = unsafe bytes.withUnsafeBytes { buffer in
                unsafe pwrite(
                    number, buffer.baseAddress.map { unsafe $0 + done }, buffer.count - done,
                    Int(offset) + done)
            }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw FileFailure("the file", count < 0 ? errno : ENOSPC) }
            done += count
        }
    }

    func setLength(_ length: UInt64) throws(FileFailure) {
        guard ftruncate(number, Int(length)) == 0 else { throw FileFailure("the file", errno) }
    }

    /// Lets everybody who may read the file `name` in this folder execute it if `isExecutable` is
    /// true, and nobody if it is false. Does nothing if the owner's permission is right already, or
    /// if the file system has no such modes.
    func setExecutable(_ name: String, _ isExecutable: Bool) {
        guard let file = try? open(name, O_RDONLY), let status = file.status,
            status.isExecutable != isExecutable
        else { return }
        let mode = status.st_mode & 0o666
        fchmod(file.number, isExecutable ? mode | (mode & 0o444) >> 2 : mode)
    }

    /// Makes the file or folder durable.
    func synchronize() throws(FileFailure) {
        guard fsync(number) == 0 else { throw FileFailure("the file", errno) }
    }

    /// Makes everything on the file system durable.
    func synchronizeAll() throws(FileFailure) {
        guard blesec_synchronize(number) == 0 else { throw FileFailure("the folder", errno) }
    }

    /// Takes an exclusive lock, until ``unlock()`` or until the descriptor is closed. Returns false
    /// if another descriptor has a lock.
    func lock() throws(FileFailure) -> Bool { try takeLock(LOCK_EX) }

    /// Takes a shared lock, until ``unlock()`` or until the descriptor is closed. Returns false if
    /// another descriptor has an exclusive lock.
    func lockShared() throws(FileFailure) -> Bool { try takeLock(LOCK_SH) }

    private func takeLock(_ kind: Int32) throws(FileFailure) -> Bool {
        while flock(number, kind | LOCK_NB) != 0 {
            if errno == EWOULDBLOCK { return false }
            guard errno == EINTR else { throw FileFailure("the folder cannot be locked", errno) }
        }
        return true
    }

    /// Gives up the descriptor's lock.
    func unlock() { flock(number, LOCK_UN) }

    /// Renames a file or folder, and returns true; returns false if the new name exists already.
    func renameNoReplace(
        _ name: String, to folder: Descriptor, _ newName: String
    ) throws(FileFailure) -> Bool {
        if unsafe blesec_rename_new(number, name, folder.number, newName) == 0 { return true }
        if errno == EEXIST { return false }
        guard errno == EINVAL || errno == ENOSYS else { throw FileFailure(newName, errno) }
        // The file system cannot check and rename in one step. For a file, `linkat` can: it refuses
        // a name that exists.
        if unsafe linkat(number, name, folder.number, newName, 0) == 0 {
            remove(name)
            return true
        }
        if errno == EEXIST || folder.status(of: newName) != nil { return false }
        try rename(name, to: folder, newName)
        return true
    }

    func rename(_ name: String, to folder: Descriptor, _ newName: String) throws(FileFailure) {
        guard unsafe renameat(number, name, folder.number, newName) == 0 else {
            throw FileFailure(newName, errno)
        }
    }

    /// How many bytes an ordinary user may still write to the file system.
    var freeSpace: UInt64 {
        var status = statvfs()
        guard unsafe fstatvfs(number, &status) == 0 else { return .max }
        let (free, isTooMuch) = UInt64(status.f_bavail).multipliedReportingOverflow(
            by: UInt64(status.f_frsize))
        return isTooMuch ? .max : free
    }
}

extension stat {
    var isRegular: Bool { st_mode & S_IFMT == S_IFREG }
    var isFolder: Bool { st_mode & S_IFMT == S_IFDIR }
    /// Whether users other than the owner may change the file or the folder.
    var isOpenToChanges: Bool { st_mode & (S_IWGRP | S_IWOTH) != 0 }
    /// Whether the owner may execute the file.
    var isExecutable: Bool { st_mode & S_IXUSR != 0 }
    /// The time of the last change of the content, the mode or a name, since 1970.
    var lastChange: Duration { .seconds(st_ctim.tv_sec) + .nanoseconds(st_ctim.tv_nsec) }
}
