internal import BLESecChannelCore
internal import BLESecToolKit
internal import Glibc

/// The destination of a report: standard output, or a file that is created before the measurement
/// and written after it.
struct ReportFile {
    private let path: String
    private let descriptor: Int32
    let isStandardOutput: Bool

    /// Opens the file; `-` is standard output.
    ///
    /// - Throws: `cannotCreate`.
    init(_ path: String) throws(ChannelError) {
        self.path = path
        isStandardOutput = path == "-"
        guard !isStandardOutput else {
            descriptor = STDOUT_FILENO
            return
        }
        descriptor = unsafe open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0o666)
        guard descriptor >= 0 else {
            throw .system(.cannotCreate, "\(path) cannot be written", errno)
        }
    }

    /// Whether both values name the same regular file. Only the later of two reports would remain
    /// in such a file.
    func isSameFile(as other: ReportFile) -> Bool {
        var (status, otherStatus) = (stat(), stat())
        guard unsafe fstat(descriptor, &status) == 0,
            unsafe fstat(other.descriptor, &otherStatus) == 0
        else { return false }
        return status.st_mode & S_IFMT == S_IFREG && status.st_dev == otherStatus.st_dev
            && status.st_ino == otherStatus.st_ino
    }

    func write(_ text: String) throws(ChannelError) {
        guard !isStandardOutput else {
            return try StandardOutput.write(Array(text.utf8), to: descriptor)
        }
        // A pipe or a device cannot be truncated.
        if ftruncate(descriptor, 0) != 0, errno != EINVAL { throw failure }
        try StandardOutput.write(Array(text.utf8), to: descriptor, named: path)
        // Some file systems report only here that the disk is full.
        if close(descriptor) != 0 { throw failure }
    }

    private var failure: ChannelError {
        .system(.inputOutput, "\(path) cannot be written", errno)
    }
}
