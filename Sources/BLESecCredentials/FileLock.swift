internal import BLESecChannelCore
internal import Glibc

/// The exclusive right to replace a file, among threads and processes.
struct FileLock: ~Copyable {
    /// The number of attempts, and the delay after each in microseconds: two seconds in all. That
    /// suffices, since every holder of the lock only reads and writes small files.
    private static let attempts = 200
    private static let pause: UInt32 = 10_000

    /// The path of the file, without symbolic links.
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
            // If the previous holder has replaced the file, this lock is on the old one: try again.
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

    /// Releases the lock. Without this call, the value could end after its last use, and the lock
    /// with it.
    consuming func release() {}
}
