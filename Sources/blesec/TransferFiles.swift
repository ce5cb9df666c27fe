internal import BLESec
internal import BLESecToolKit
internal import Glibc

/// A regular file that is read from where an earlier run has stopped.
final class InputFile: Sendable {
    private let descriptor: Int32
    private let path: String
    /// The size of a read in bytes: the longest message.
    private static let readSize = 64 << 10

    /// Opens the file, of which earlier runs have sent `length` bytes.
    ///
    /// - Throws: `badKey` when it has fewer bytes.
    init(_ path: String, from length: Int) throws(ChannelError) {
        self.path = path
        descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else {
            throw .system(.noSuchFile, "\(path) cannot be read", errno)
        }
        let size = try RegularFile.require(descriptor, path)
        guard size >= length else {
            throw ChannelError(
                .badKey, "\(path) has \(size) bytes, and \(length) were sent before; put it back")
        }
    }

    deinit { close(descriptor) }

    /// The bytes at `offset`, at least one; nil at the end. Blocks for the disk only.
    func read(at offset: Int) throws(ChannelError) -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: Self.readSize)
        while true {
            let count = unsafe pread(descriptor, &bytes, bytes.count, offset)
            if count >= 0 { return count == 0 ? nil : Array(bytes[..<count]) }
            guard errno == EINTR else {
                throw .system(.inputOutput, "\(path) cannot be read", errno)
            }
        }
    }
}

/// A regular file that is written from where an earlier run has noted that it was durable.
final class OutputFile: Sendable {
    private let descriptor: Int32
    private let path: String
    private let thread = BlockingThread()

    /// Opens the file, which has `length` bytes of earlier runs; later bytes of these are removed.
    ///
    /// - Throws: `cannotCreate` when the file has bytes and nothing was written by an earlier run;
    ///   `badKey` when it has fewer than `length` bytes.
    init(_ path: String, length: Int) throws(ChannelError) {
        self.path = path
        descriptor = unsafe open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o666)
        guard descriptor >= 0 else {
            throw .system(.cannotCreate, "\(path) cannot be written", errno)
        }
        let size = try RegularFile.require(descriptor, path)
        guard length > 0 || size == 0 else {
            throw ChannelError(
                .cannotCreate, "\(path) exists and is not empty; move it away, or name another file"
            )
        }
        guard size >= length else {
            throw ChannelError(
                .badKey, "\(path) has \(size) bytes, and the store has noted \(length); put it back"
            )
        }
        guard ftruncate(descriptor, length) == 0, fsync(descriptor) == 0 else {
            throw .system(.inputOutput, "\(path) cannot be written", errno)
        }
        lseek(descriptor, length, SEEK_SET)
    }

    deinit { close(descriptor) }

    func write(_ bytes: [UInt8]) throws(ChannelError) {
        do throws(ChannelError) {
            try StandardOutput.write(bytes, to: descriptor)
        } catch {
            throw ChannelError(
                .inputOutput, "\(path) cannot be written", underlying: error.underlying)
        }
    }

    /// Makes durable what was written before.
    func synchronize() async throws(ChannelError) {
        let number = await withCheckedContinuation { waiter in
            thread.perform { [descriptor] in
                waiter.resume(returning: fdatasync(descriptor) == 0 ? 0 : errno)
            }
        }
        guard number == 0 else {
            throw .system(.inputOutput, "\(path) cannot be made durable", number)
        }
    }
}

private enum RegularFile {
    /// Returns the size of a regular file.
    static func require(_ descriptor: Int32, _ path: String) throws(ChannelError) -> Int {
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            throw ChannelError(.configuration, "\(path) is no regular file")
        }
        return status.st_size
    }
}

/// How far a transfer has come in a file, as the store notes it.
enum Offset {
    static func note(_ offset: Int) -> [UInt8] { Array("offset \(offset)".utf8) }

    /// The offset in a note; 0 without a note.
    static func read(_ note: [UInt8]) throws(ChannelError) -> Int {
        let text = String(decoding: note, as: UTF8.self)
        guard !note.isEmpty else { return 0 }
        guard text.hasPrefix("offset "), let offset = Int(text.dropFirst(7)), offset >= 0 else {
            throw ChannelError(.store, "the store has another program's note: \(text)")
        }
        return offset
    }
}
