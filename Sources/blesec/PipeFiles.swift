internal import BLESec
internal import BLESecCredentials
internal import BLESecLocking
internal import BLESecToolKit
internal import CBLESecLinux
internal import Glibc

/// A regular file that is read from the offset at which an earlier run has stopped.
final class InputFile: Sendable {
    private let descriptor: Int32
    private let path: String
    private let file: RegularFile
    private let offset: Locked<Int>
    /// The size of a read in bytes: the longest message.
    private static let readSize = 64 << 10

    /// Opens the file. `sent` says how far earlier runs have sent the file; nil if there were no
    /// earlier runs with the file.
    ///
    /// - Throws: the error for a file that cannot be read; `configuration` when it is no regular file;
    ///   `badKey` when the file is not the file of `sent`, or has fewer bytes than were sent; also
    ///   when everything was queued before (`isFinished`) and the file now has more bytes.
    init(_ path: String, _ sent: FileNote?, isFinished: Bool) throws(ChannelError) {
        self.path = path
        // With O_NONBLOCK, opening a FIFO does not wait for a writer.
        descriptor = unsafe open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
        guard descriptor >= 0 else {
            throw .system(.noSuchFile, "\(path) cannot be read", errno)
        }
        file = try RegularFile(descriptor, path)
        try file.check(against: sent, path)
        offset = Locked(sent?.offset ?? 0)
        if isFinished, file.size != sent?.offset ?? 0 {
            throw ChannelError(
                .badKey,
                "the store says that everything was queued for sending, but \(path) has other bytes "
                    + "now; use another --store directory for another transfer")
        }
    }

    /// The next bytes, at least one, and a note for the store with the offset after these bytes.
    /// Nil at the end.
    func next() throws(ChannelError) -> (message: [UInt8], note: [UInt8]?)? {
        let begin = offset.withLock { $0 }
        guard let bytes = try read(at: begin) else { return nil }
        let end = begin + bytes.count
        offset.withLock { $0 = end }
        return (bytes, file.note(end).bytes)
    }

    deinit { close(descriptor) }

    private func read(at offset: Int) throws(ChannelError) -> [UInt8]? {
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

/// A regular file to which bytes are appended, after the bytes that earlier runs have made durable.
final class OutputFile: Sendable {
    private let descriptor: Int32
    private let path: String
    private let file: RegularFile
    /// How many bytes of earlier runs are durable.
    let durableLength: Int
    private let thread = BlockingThread.required()

    /// Opens the file. `written` says up to which offset earlier runs have made the file durable; nil
    /// if there were no earlier runs with the file. The bytes after that offset are removed.
    ///
    /// - Throws: `cannotCreate` when the file cannot be opened, or has bytes and no earlier run has
    ///   used it; `noSuchFile` when the file of `written` is missing; `configuration` when it is no
    ///   regular file; `badKey` when the file is not the file of `written`, or has fewer bytes than
    ///   `written` says; `inputOutput`.
    init(_ path: String, _ written: FileNote?) throws(ChannelError) {
        self.path = path
        let flags = O_RDWR | O_CLOEXEC | (written == nil ? O_CREAT : 0)
        descriptor = unsafe open(path, flags, 0o666)
        guard descriptor >= 0 else {
            let errorNumber = errno
            let isMissing = written != nil && errorNumber == ENOENT
            throw .system(
                isMissing ? .noSuchFile : .cannotCreate, "\(path) cannot be written", errorNumber)
        }
        file = try RegularFile(descriptor, path)
        guard written != nil || file.size == 0 else {
            throw ChannelError(
                .cannotCreate,
                "\(path) exists and is not empty; move it away, or name another file")
        }
        try file.check(against: written, path)
        durableLength = written?.offset ?? 0
        guard ftruncate(descriptor, durableLength) == 0, fsync(descriptor) == 0 else {
            throw .system(.inputOutput, "\(path) cannot be written", errno)
        }
        lseek(descriptor, durableLength, SEEK_SET)
        // The file may be new, and its name not durable yet.
        try NewFile.synchronizeDirectory(of: path)
    }

    /// The note for the store when the first `length` bytes of the file are durable.
    func note(_ length: Int) -> [UInt8] { file.note(length).bytes }

    deinit { close(descriptor) }

    func write(_ bytes: [UInt8]) throws(ChannelError) {
        try StandardOutput.write(bytes, to: descriptor, named: path)
    }

    /// Makes durable what was written so far.
    func synchronize() async throws(ChannelError) {
        let errorNumber = await withCheckedContinuation { waiter in
            thread.perform { [descriptor] in
                waiter.resume(returning: fdatasync(descriptor) == 0 ? 0 : errno)
            }
        }
        guard errorNumber == 0 else {
            throw .system(.inputOutput, "\(path) cannot be made durable", errorNumber)
        }
    }
}

/// The identity of a regular file, and its size in bytes when it was opened.
private struct RegularFile {
    let size: Int
    private let inode: UInt
    /// When the file was made, in seconds and nanoseconds since 1970; nil if the file system does
    /// not keep that time.
    private let birth: String?
    /// The number of the file system's device, which may change when the file system is mounted
    /// again.
    private let device: String

    init(_ descriptor: Int32, _ path: String) throws(ChannelError) {
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            throw ChannelError(.configuration, "\(path) is no regular file")
        }
        (size, inode, device) = (status.st_size, status.st_ino, "\(status.st_dev)")
        var seconds: Int64 = 0
        var nanoseconds: UInt32 = 0
        let isKnown = unsafe blesec_birth_time(descriptor, &seconds, &nanoseconds) == 0
        birth = isKnown ? "\(seconds).\(nanoseconds)" : nil
    }

    func note(_ offset: Int) -> FileNote {
        FileNote(offset: offset, origin: birth ?? device, inode: inode)
    }

    /// Throws if there is a note, and this is not the note's file, or has fewer bytes than the note
    /// says.
    func check(against note: FileNote?, _ path: String) throws(ChannelError) {
        guard let note else { return }
        guard note.inode == inode, [birth, device].contains(note.origin) else {
            throw ChannelError(
                .badKey,
                "the store was used with another file, not with \(path); give the other one")
        }
        guard size >= note.offset else {
            throw ChannelError(
                .badKey,
                "\(path) has \(size) bytes, but \(note.offset) according to the store; restore the file"
            )
        }
    }
}

/// A note in the store: up to which offset a file is transferred, and which file it is.
struct FileNote {
    /// The note of a run that uses standard input or output, and no file.
    static let withoutFile = Array("no file".utf8)

    let offset: Int
    /// When the file was made; where the file system does not keep that time, and in older notes,
    /// the number of the device.
    fileprivate let origin: String
    fileprivate let inode: UInt

    var bytes: [UInt8] { Array("\(offset) of file \(origin):\(inode)".utf8) }

    fileprivate init(offset: Int, origin: String, inode: UInt) {
        (self.offset, self.origin, self.inode) = (offset, origin, inode)
    }

    /// Reads a note; nil if it is empty, or is ``withoutFile``.
    init?(_ bytes: [UInt8]) throws(ChannelError) {
        guard !bytes.isEmpty, bytes != Self.withoutFile else { return nil }
        let words = String(decoding: bytes, as: UTF8.self).split { $0 == " " || $0 == ":" }
        guard words.count == 5, let offset = Int(words[0]), offset >= 0,
            let inode = UInt(words[4])
        else { throw ChannelError(.store, "the store has another program's note") }
        self.init(offset: offset, origin: String(words[3]), inode: inode)
    }
}
