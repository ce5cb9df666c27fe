internal import ChannelCore
internal import Glibc
internal import Primitives

/// A small file with a secret in it, read into memory that is wiped.
enum SecretFile {
    /// Reads a regular file of at most `limit` bytes that nobody but its owner can read, unless it
    /// may turn out to hold no secret.
    ///
    /// - Throws: `noSuchFile`, `permission`, or `badKey` with the remedy.
    static func read(
        _ path: String, limit: Int, mayBeShared: Bool = false
    ) throws(ChannelError) -> SecretBytes {
        // O_NONBLOCK: opening a FIFO would wait for a writer otherwise.
        guard let file = FileDescriptor(path, O_RDONLY | O_NONBLOCK | O_NOCTTY) else {
            throw .cannotOpen(path, errno)
        }
        let status = file.status
        guard status.isRegularFile else {
            throw ChannelError(
                .badKey, "\(path) is \(status.isDirectory ? "a directory" : "not a regular file")")
        }
        if !mayBeShared { try refuseIfShared(path, status) }
        guard status.st_size <= limit else {
            throw ChannelError(
                .badKey, "\(path) is too large for a key: \(status.st_size) bytes, at most \(limit)"
            )
        }
        // A byte more than there should be, so that a file that grows is noticed.
        return try contents(of: file, path, atMost: Int(status.st_size) + 1)
    }

    /// Reads the first line of a file, FIFO or terminal: a passphrase of 1 to `limit` bytes.
    ///
    /// Only a regular file's permissions are looked at. Waits for a FIFO's writer.
    static func readLine(_ path: String, limit: Int) throws(ChannelError) -> SecretBytes {
        guard let file = FileDescriptor(path, O_RDONLY | O_NOCTTY) else {
            throw .cannotOpen(path, errno)
        }
        let status = file.status
        if status.isRegularFile { try refuseIfShared(path, status) }
        // Two bytes more than the limit, for the line's end.
        let bytes = try contents(of: file, path, atMost: limit + 2)
        guard let line = firstLine(of: bytes.span, limit: limit) else {
            throw ChannelError(
                .badKey,
                "\(path): the first line has to be a passphrase of 1 to \(limit) bytes")
        }
        return line
    }

    /// The first line of `bytes` without its end, or nil when it is empty or longer than `limit`.
    static func firstLine(of bytes: Span<UInt8>, limit: Int) -> SecretBytes? {
        var end = 0
        while end < bytes.count, bytes[end] != UInt8(ascii: "\n") { end += 1 }
        if end > 0, bytes[end - 1] == UInt8(ascii: "\r") { end -= 1 }
        return (1...limit).contains(end) ? SecretBytes(copying: bytes.extracting(..<end)) : nil
    }

    private static func refuseIfShared(_ path: String, _ status: stat) throws(ChannelError) {
        guard status.st_mode & 0o077 == 0 else {
            throw ChannelError(
                .badKey,
                "\(path) can be opened by others (mode \(status.permissions)): "
                    + "run `chmod 600 \(path)`")
        }
    }

    private static func contents(
        of file: borrowing FileDescriptor, _ path: String, atMost limit: Int
    ) throws(ChannelError) -> SecretBytes {
        var bytes = SecretBytes(count: limit)
        guard let count = file.read(into: &bytes) else {
            throw .system(.noSuchFile, "\(path) cannot be read", errno)
        }
        return SecretBytes(copying: bytes.span.extracting(..<count))
    }
}
