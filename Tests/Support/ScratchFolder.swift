internal import BLESecLocking
public import Glibc

/// A test's temporary folder. The folder is removed when this object is released, or when the
/// process exits.
public final class ScratchFolder: Sendable {
    /// The folder's absolute path.
    public let path: String

    /// Makes an empty folder, mode 0700.
    public init() {
        var template = Array("/tmp/blesec-test-XXXXXX".utf8CString)
        let made = unsafe template.withUnsafeMutableBufferPointer { buffer in
            unsafe buffer.baseAddress.flatMap { unsafe mkdtemp($0) }.map {
                unsafe String(cString: $0)
            }
        }
        guard let made else {
            preconditionFailure("no folder can be made in /tmp")
        }
        path = made
        Self.living.withLock { _ = $0.insert(made) }
    }

    deinit {
        Self.removeFolders([path])
        Self.living.withLock { _ = $0.remove(path) }
    }

    /// The paths of the folders that are not removed yet. An object that a static property holds is
    /// never released, so its folder is removed at the process's exit.
    private static let living: Locked<Set<String>> = {
        atexit { ScratchFolder.removeFolders(ScratchFolder.living.withLock { Array($0) }) }
        return Locked([])
    }()

    private static func removeFolders(_ paths: [String]) {
        if !paths.isEmpty { _ = try? Subprocess.run("rm", ["-rf", "--"] + paths) }
    }

    /// The path of a file in the folder.
    public func file(_ name: String) -> String { path + "/" + name }

    /// Writes a file, and returns its path.
    @discardableResult
    public func write(_ name: String, _ text: String, mode: mode_t = 0o600) -> String {
        write(name, Array(text.utf8), mode: mode)
    }

    /// Writes a file, and returns its path.
    @discardableResult
    public func write(_ name: String, _ bytes: [UInt8], mode: mode_t = 0o600) -> String {
        let path = file(name)
        let descriptor = unsafe open(path, O_WRONLY | O_CREAT | O_TRUNC, mode)
        precondition(descriptor >= 0, "\(path) cannot be made")
        defer { close(descriptor) }
        var done = 0
        while done < bytes.count {
            let count = unsafe bytes.withUnsafeBytes {
                unsafe Glibc.write(
                    descriptor, $0.baseAddress.unsafelyUnwrapped + done, $0.count - done)
            }
            precondition(count > 0, "\(path) cannot be written")
            done += count
        }
        fchmod(descriptor, mode)
        return path
    }

    /// The content of a file in the folder, or nil if the file cannot be opened.
    public func read(_ name: String) -> [UInt8]? {
        let descriptor = unsafe open(file(name), O_RDONLY)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: 65536)
        while true {
            let count = unsafe Glibc.read(descriptor, &piece, piece.count)
            guard count > 0 else { return bytes }
            bytes += piece[..<count]
        }
    }

    /// A file's permission bits, or nil if there is no such file.
    public func mode(_ name: String) -> mode_t? {
        var status = stat()
        return unsafe lstat(file(name), &status) == 0 ? status.st_mode & 0o7777 : nil
    }

    /// The names in the folder, sorted, without `.` and `..`.
    public var names: [String] {
        guard let directory = unsafe opendir(path) else { return [] }
        defer { unsafe closedir(directory) }
        var names: [String] = []
        while let entry = unsafe readdir(directory) {
            let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) {
                unsafe String(cString: UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self))
            }
            if name != ".", name != ".." { names.append(name) }
        }
        return names.sorted()
    }
}
