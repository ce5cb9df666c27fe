internal import ChannelCore
internal import Glibc

/// The exclusive right to replace a file, between threads as between processes.
struct FileLock: ~Copyable {
    /// How often, and how long in between, a lock that someone else has is tried: two seconds. It is
    /// held for the time that a small file takes to be written.
    private static let attempts = 200
    private static let pause: UInt32 = 10_000

    /// The file itself, where `path` was a symbolic link to it.
    let path: String
    private let file: FileDescriptor

    /// Waits for the lock; makes an empty file, mode 0600, where there is none.
    ///
    /// - Throws: `timedOut`, `cannotCreate`, `permission`.
    init(_ path: String) throws(ChannelError) {
        for _ in 0..<Self.attempts {
            let target = Self.resolve(path)
            let flags = O_RDWR | O_CREAT | O_NONBLOCK | O_NOCTTY
            guard let file = FileDescriptor(target, flags, mode: 0o600) else {
                throw .system(.cannotCreate, "\(path) cannot be opened for writing", errno)
            }
            guard flock(file.number, LOCK_EX | LOCK_NB) == 0 else {
                usleep(Self.pause)
                continue
            }
            // Who had the lock before may have put another file in this one's place.
            let status = file.status
            if KeyListing.signature(of: target)?.isFile(of: status) == true {
                self.path = target
                self.file = file
                return
            }
        }
        throw ChannelError(
            .timedOut, "\(path) is locked by another process, which does not let go of it")
    }

    /// Lets go of the lock, as the value's end does. Called where it has to be kept until then.
    consuming func release() {}

    private static func resolve(_ path: String) -> String {
        guard let resolved = unsafe realpath(path, nil) else { return path }
        defer { unsafe free(resolved) }
        return unsafe String(cString: resolved)
    }
}

extension KeyListing.Signature {
    fileprivate func isFile(of status: stat) -> Bool {
        device == UInt(status.st_dev) && file == UInt(status.st_ino)
    }
}
