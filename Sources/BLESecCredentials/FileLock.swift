internal import BLESecChannelCore
internal import Glibc

/// The exclusive right to replace a file, between threads as between processes.
struct FileLock: ~Copyable {
    /// How often, and how long in between, a lock that someone else has is tried: two seconds. It is
    /// held for the time that a small file takes to be written.
    private static let attempts = 200
    private static let pause: UInt32 = 10_000

    /// The file itself, where `path` was a symbolic link to it.
    var path: String { file.path }
    private let file: TrustedFile

    /// Waits for the lock; makes an empty file, mode 0600, where there is none.
    ///
    /// - Throws: `timedOut`; `cannotCreate`; `badKey` when others may change the file or what is above
    ///   it.
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
            // Who had the lock before may have put another file in this one's place.
            if KeyListing.signature(of: file.path)?.isFile(of: file.status) == true {
                self.file = file
                return
            }
        }
        throw ChannelError(
            .timedOut, "\(path) is locked by another process, which does not let go of it")
    }

    /// Lets go of the lock, as the value's end does. Called where it has to be kept until then.
    consuming func release() {}
}

extension KeyListing.Signature {
    fileprivate func isFile(of status: stat) -> Bool {
        device == UInt(status.st_dev) && file == UInt(status.st_ino)
    }
}
