internal import BLESecChannelCore
internal import Glibc

/// The exclusive right to replace a file, among threads and processes.
struct FileLock: ~Copyable {
    /// The most attempts to lock the file. With ``retryDelay`` after each attempt, all take two
    /// seconds. This is long enough, since each holder of the lock only reads and writes small files.
    private static let maximumAttempts = 200
    /// The wait after an attempt that finds the file locked, in microseconds.
    private static let retryDelay: UInt32 = 10_000

    /// The path of the file, without symbolic links.
    var path: String { file.path }
    private let file: TrustedFile

    /// Waits for the lock; makes an empty file, mode 0600, if there is none.
    ///
    /// - Throws: `timedOut`; `cannotCreate`; `badKey` when other users may change the file or a
    ///   directory above it.
    init(_ path: String) throws(ChannelError) {
        for _ in 0..<Self.maximumAttempts {
            let file: TrustedFile
            do throws(TrustedFile.Failure) {
                file = try TrustedFile(path, flags: O_RDWR | O_CREAT, mode: 0o600)
            } catch {
                guard case .system(let number) = error else { throw error.channelError(for: path) }
                throw .system(.cannotCreate, "\(path) cannot be opened for writing", number)
            }
            guard flock(file.descriptor.number, LOCK_EX | LOCK_NB) == 0 else {
                let number = errno
                guard number == EWOULDBLOCK || number == EINTR else {
                    throw .system(.cannotCreate, "\(path) cannot be locked", number)
                }
                usleep(Self.retryDelay)
                continue
            }
            // If the previous holder has replaced the file, this lock is on the old file: try again.
            let locked = ListFile.FileVersion(file.status)
            if let present = ListFile.version(of: file.path), present.inode == locked.inode,
                present.device == locked.device
            {
                self.file = file
                return
            }
        }
        throw ChannelError(
            .timedOut, "\(path) is locked by another process, which does not release it")
    }

    /// Releases the lock. Without this call, Swift could end the value, and so release the lock,
    /// right after the value's last use.
    consuming func release() {}
}
