internal import BLESecChannelCore
internal import BLESecPrimitives
internal import Glibc

/// An open file, closed when the value ends.
struct FileDescriptor: ~Copyable {
    /// `O_PATH` of `<asm-generic/fcntl.h>`, which the Glibc module lacks. With this flag, a file can
    /// be opened without permission to read it. With `O_NOFOLLOW` as well, a symbolic link is itself
    /// opened, and not its target.
    static let pathFlag: Int32 = 0o1000_0000

    let number: Int32

    /// Opens `path`, close-on-exec; returns nil on an error, which is in `errno`. A relative path
    /// begins at the working directory, or at the open directory with the number `directory`.
    init?(_ path: String, _ flags: Int32, mode: mode_t = 0, at directory: Int32 = AT_FDCWD) {
        var number: Int32
        repeat {
            number = unsafe openat(directory, path, flags | O_CLOEXEC, mode)
        } while number < 0 && errno == EINTR
        guard number >= 0 else { return nil }
        self.number = number
    }

    /// Opens `path`, relative to an open directory; returns nil on an error, which is in `errno`.
    init?(_ path: String, _ flags: Int32, mode: mode_t = 0, in directory: borrowing FileDescriptor)
    {
        self.init(path, flags, mode: mode, at: directory.number)
    }

    deinit { close(number) }

    var status: stat { Self.status(of: number) }

    /// The status of an open file. If the system call fails, the status is that of a regular file
    /// that everyone may write and that belongs to nobody, so that no check accepts the file.
    static func status(of number: Int32) -> stat {
        var status = stat()
        guard unsafe fstat(number, &status) != 0 else { return status }
        status = stat()
        status.st_uid = .max
        status.st_mode = S_IFREG | 0o777
        return status
    }

    /// Reads until `bytes` is full or the file ends, and returns the number of bytes read; nil on
    /// an error, which is in `errno`.
    func read(into bytes: inout SecretBytes) -> Int? {
        unsafe bytes.withUnsafeMutableBytes { unsafe fill($0) }
    }

    /// Reads until a line feed was read, `bytes` is full or the file ends, and returns the number of
    /// bytes read; nil on an error, which is in `errno`. Reads byte by byte: the bytes after the
    /// line stay in a FIFO, and the call does not wait for them.
    func readLine(into bytes: inout SecretBytes) -> Int? {
        unsafe bytes.withUnsafeMutableBytes { buffer -> Int? in
            for index in 0..<buffer.count {
                let byte = unsafe UnsafeMutableBufferPointer(rebasing: buffer[index..<index + 1])
                guard let count = unsafe fill(byte) else { return nil }
                if count == 0 { return index }
                if unsafe buffer[index] == UInt8(ascii: "\n") { return index + 1 }
            }
            return buffer.count
        }
    }

    /// Reads at most `limit` bytes; nil on an error, which is in `errno`.
    func readAll(atMost limit: Int) -> [UInt8]? {
        var hasSucceeded = false
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: limit) { buffer, count in
            let got = unsafe fill(UnsafeMutableBufferPointer(rebasing: buffer[..<limit]))
            hasSucceeded = got != nil
            count = got ?? 0
        }
        return hasSucceeded ? bytes : nil
    }

    /// Reads until `buffer` is full or the file ends, and returns the number of bytes read; nil on
    /// an error, which is in `errno`.
    private func fill(_ buffer: UnsafeMutableBufferPointer<UInt8>) -> Int? {
        var count = 0
        while count < buffer.count, let base = buffer.baseAddress {
            let got = unsafe Glibc.read(number, base + count, buffer.count - count)
            if got < 0, errno == EINTR { continue }
            guard got >= 0 else { return nil }
            if got == 0 { break }
            count += got
        }
        return count
    }

    /// Writes all of `bytes`; false on an error, which is in `errno`.
    func write(_ bytes: Span<UInt8>) -> Bool {
        unsafe bytes.withUnsafeBufferPointer { buffer in
            var count = 0
            while count < buffer.count, let base = buffer.baseAddress {
                let put = unsafe Glibc.write(number, base + count, buffer.count - count)
                if put < 0, errno == EINTR { continue }
                guard put > 0 else { return false }
                count += put
            }
            return true
        }
    }
}

extension stat {
    var isRegularFile: Bool { st_mode & S_IFMT == S_IFREG }
    var isDirectory: Bool { st_mode & S_IFMT == S_IFDIR }
    /// The permission bits in octal, as for `chmod`.
    var permissions: String { String(st_mode & 0o7777, radix: 8) }
}
