internal import BLESecChannelCore
internal import BLESecPrimitives
internal import Glibc

/// Reads a small file that contains a secret into memory that is wiped afterwards.
enum SecretFile {
    /// Reads a regular file of at most `limit` bytes. Other users must not be able to write the file
    /// (``TrustedFile``). If `othersMayRead` is false, they must not be able to open it either. A
    /// public key, for example, need not be secret.
    ///
    /// - Throws: `noSuchFile`, `permission` or `badKey`.
    static func read(
        _ path: String, limit: Int, othersMayRead: Bool = false
    ) throws(ChannelError) -> SecretBytes {
        let file = try TrustedFile.open(path, othersMayRead ? .unalterable : .secret)
        let size = Int(file.status.st_size)
        guard size <= limit else {
            throw .badKey("\(path) is too large for a key: \(size) bytes, at most \(limit)")
        }
        let bytes = try contents(of: file.descriptor, path, atMost: size + 1)
        guard bytes.count <= size else {
            throw .badKey("\(path) grew while it was read: try again")
        }
        return bytes
    }

    /// Reads the first line of a file, FIFO or terminal: a passphrase of 1 to `limit` bytes.
    ///
    /// Checks the owner and permissions of a regular file only. Checks no directory on the path,
    /// because a FIFO may have any path, for example in `/dev/fd`. Waits for a FIFO's writer, but
    /// not for anything after the line.
    static func readLine(_ path: String, limit: Int) throws(ChannelError) -> SecretBytes {
        guard let file = FileDescriptor(path, O_RDONLY | O_NOCTTY) else {
            throw .cannotOpen(path, errno)
        }
        let status = file.status
        if status.isRegularFile,
            let fault = TrustedFile.Protection.secret.fault(path, status, user: geteuid())
        {
            throw fault
        }
        // Two bytes more than the limit, for the line end.
        let bytes = try contents(of: file, path, atMost: limit + 2, onlyLine: true)
        guard let line = firstLine(of: bytes.span, limit: limit) else {
            throw .badKey("\(path): the first line has to be a passphrase of 1 to \(limit) bytes")
        }
        return line
    }

    /// The first line of `bytes` without its line end; nil when it is empty or longer than `limit`.
    static func firstLine(of bytes: Span<UInt8>, limit: Int) -> SecretBytes? {
        var end = bytes.indices.first { bytes[$0] == UInt8(ascii: "\n") } ?? bytes.count
        if end > 0, bytes[end - 1] == UInt8(ascii: "\r") { end -= 1 }
        return (1...limit).contains(end) ? SecretBytes(copying: bytes.extracting(..<end)) : nil
    }

    /// Reads to the file's end or, if `onlyLine` is true, to the end of the first line.
    private static func contents(
        of file: borrowing FileDescriptor, _ path: String, atMost limit: Int,
        onlyLine: Bool = false
    ) throws(ChannelError) -> SecretBytes {
        var bytes = SecretBytes(count: limit)
        let count = onlyLine ? file.readLine(into: &bytes) : file.read(into: &bytes)
        guard let count else {
            throw .system(.noSuchFile, "\(path) cannot be read", errno)
        }
        return SecretBytes(copying: bytes.span.extracting(..<count))
    }
}
