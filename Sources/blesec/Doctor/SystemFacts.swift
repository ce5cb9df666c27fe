internal import Glibc

/// Facts about a machine, from the files of its system.
struct SystemFacts {
    /// The result of reading a file.
    enum Content {
        case bytes([UInt8])
        case absent
        /// The reason is the rest of a sentence that begins with the file's path, such as `is no
        /// regular file`.
        case unreadable(reason: String)
    }

    /// The folder that is read in place of `/`; empty for `/` itself.
    private let root: String

    init(root: String = "") { self.root = root }

    /// The release of the kernel, such as `6.1.0-18-amd64`; nil if it cannot be read.
    var kernelRelease: String? { firstLine(of: "/proc/sys/kernel/osrelease") }

    var hostName: String? { firstLine(of: "/proc/sys/kernel/hostname") }

    /// The paths at which bluetoothd's program may be.
    static let bluetoothdPaths = [
        "/usr/libexec/bluetooth/bluetoothd", "/usr/lib/bluetooth/bluetoothd",
    ]

    /// The first line that `bluetoothd --version` prints; nil if bluetoothd is not found.
    static var bluetoothdVersion: String? {
        for path in bluetoothdPaths where unsafe access(path, X_OK) == 0 {
            guard let pipe = unsafe popen("\(path) --version 2>/dev/null", "re") else { continue }
            defer { unsafe pclose(pipe) }
            var bytes = [UInt8](repeating: 0, count: 64)
            let count = unsafe fread(&bytes, 1, bytes.count, pipe)
            let line = bytes.prefix(count).prefix { $0 != UInt8(ascii: "\n") }
            if !line.isEmpty { return String(decoding: line, as: UTF8.self) }
        }
        return nil
    }

    /// The arguments of a process, the program's name first; nil if they cannot be read.
    func commandLine(of process: Int) -> [String]? {
        guard case .bytes(let bytes) = read("/proc/\(process)/cmdline"), !bytes.isEmpty else {
            return nil
        }
        return bytes.split(separator: 0, omittingEmptySubsequences: false)
            .map { String(decoding: $0, as: UTF8.self) }
    }

    /// The ID of a process with the name `bluetoothd` whose owner is the owner of `/proc`, which is
    /// root; nil if there is none. The owner is checked, since any user can start a program with this
    /// name. The doctor's remedies quote the process's command line, and root may follow them.
    var bluetoothdProcess: Int? {
        for name in names(in: "/proc") ?? [] {
            guard let number = Int(name), number > 0 else { continue }
            let folder = "/proc/\(number)"
            guard firstLine(of: folder + "/comm") == "bluetoothd" else { continue }
            if let owner = owner(of: folder), owner == self.owner(of: "/proc") { return number }
        }
        return nil
    }

    private func owner(of path: String) -> uid_t? {
        var status = stat()
        return unsafe stat(root + path, &status) == 0 ? status.st_uid : nil
    }

    /// The first line of a small file; nil if the file cannot be read.
    func firstLine(of path: String) -> String? {
        guard case .bytes(let bytes) = read(path, limit: 4_096) else { return nil }
        return String(decoding: bytes.prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
    }

    /// The first line of a file as a number; nil if the file cannot be read, or the line is no
    /// number.
    func number(in path: String) -> Int? { firstLine(of: path).flatMap { Int($0) } }

    /// The contents of a regular file of at most `limit` bytes. Any other file is unreadable: the
    /// call does not wait for a FIFO's writer or for a device.
    func read(_ path: String, limit: Int = 1 << 20) -> Content {
        let flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY
        let descriptor = unsafe open(root + path, flags)
        guard descriptor >= 0 else { return Self.failure(errno) }
        defer { close(descriptor) }
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0 else { return Self.failure(errno) }
        guard status.st_mode & S_IFMT == S_IFREG else {
            return .unreadable(reason: "is no regular file")
        }
        var bytes: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: 65_536)
        while bytes.count <= limit {
            let count = unsafe Glibc.read(descriptor, &piece, piece.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { return Self.failure(errno) }
            guard count > 0 else { return .bytes(bytes) }
            bytes += piece.prefix(count)
        }
        return .unreadable(reason: "has more than \(limit) bytes")
    }

    private static func failure(_ errorNumber: Int32) -> Content {
        switch errorNumber {
        case ENOENT, ENOTDIR: .absent
        case EACCES, EPERM: .unreadable(reason: "may not be read by this user")
        default:
            .unreadable(
                reason: unsafe "cannot be read: \(String(cString: strerror(errorNumber)))")
        }
    }

    /// The names in a folder that do not begin with a dot, sorted; nil if the folder cannot be
    /// read.
    func names(in path: String) -> [String]? {
        guard let directory = unsafe opendir(root + path) else { return nil }
        defer { unsafe closedir(directory) }
        var names: [String] = []
        // The limit ends the loop if a faulty file system lists entries without end.
        while names.count < 100_000, let entry = unsafe readdir(directory) {
            let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) {
                unsafe String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
            }
            if !name.hasPrefix(".") { names.append(name) }
        }
        return names.sorted()
    }
}
