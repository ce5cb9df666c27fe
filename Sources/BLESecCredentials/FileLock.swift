internal import BLESecChannelCore
internal import Glibc

/// The exclusive right to replace a file, among threads and processes.
struct FileLock: ~Copyable {
    /// The number of attempts, and the delay between them in microseconds, while another holder has
    /// the lock: two seconds in all. A lock is held only while a small file is written.
    private static let attempts = 200
    private static let pause: UInt32 = 10_000

    /// The path of the file itself, if `path` was a symbolic link to it.
    var path: String { file.path }
    private let file: TrustedFile

    /// Waits for the lock; makes an empty file, mode 0600, if there is none.
    ///
    /// - Throws: `timedOut`; `cannotCreate`; `badKey` when other users may change the file or a
    ///   directory above it.
    init(_ path: String) throws(ChannelError) {
        for _ in 0..<Self.attempts {
            let file: TrustedFile
            do throws(TrustedFile.Failure) {
                file = try TrustedFile(path, flags: O_RDWR | O_CREAT, mode: 0o600)
            } catch {
                guard case .system(let number) = error else { throw error.error(path) }
                throw .system(.cannotCreate, "\(path) cannot be opened for writing", number)
            }
            guard flock(file.descriptor.number, LOCK_EX | LOCK_NB) == 0 else {
                usleep(Self.pause)
                continue
            }
            // The previous holder of the lock may have replaced the file.
            let opened = KeyListing.Signature(file.status)
            if let present = KeyListing.signature(of: file.path), present.file == opened.file,
                present.device == opened.device
            {
                self.file = file
                return
            }
        }
        throw ChannelError(
            .timedOut, "\(path) is locked by another process, which does not let go of it")
    }

    /// Releases the lock, as the end of the value does. The call keeps the value, and so the lock,
    /// alive until here.
    consuming func release() {}
}
