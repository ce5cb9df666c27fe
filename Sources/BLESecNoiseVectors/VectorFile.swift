internal import BLESecJSON
internal import Glibc

/// A file of vectors, in the JSON format that Noise implementations share.
package struct VectorFile: Sendable {
    /// The largest file that is read, in bytes: about nine times the size of this project's
    /// vectors.
    package static let maximumSize = 64 << 20

    package let path: String
    /// The vectors in the order of the file.
    package let vectors: [NoiseVector]

    /// Reads the vectors in the file at `path`.
    ///
    /// - Throws: `VectorFileError`, which names the file and the position in it.
    package init(path: String) throws(VectorFileError) {
        try self.init(path: path, bytes: Self.read(path))
    }

    /// Reads the vectors in `bytes`, the content of the file at `path`.
    ///
    /// - Throws: `VectorFileError`, which names the file and the position in it.
    package init(path: String, bytes: [UInt8]) throws(VectorFileError) {
        self.path = path
        let json: JSONValue
        do throws(JSONReader.Failure) {
            json = try JSONReader.read(bytes)
        } catch {
            throw VectorFileError(path, error, in: bytes)
        }
        do throws(JSONMisfit) {
            vectors = try json.list("vectors", NoiseVector.init)
        } catch {
            throw VectorFileError(path, error)
        }
    }

    /// The vector files at `path`: the file itself, or, for a folder, the files in it whose names
    /// end in `.json` or `.txt`, sorted by name. Subfolders are not searched.
    ///
    /// - Throws: `VectorFileError` for a folder that cannot be read or has no such file.
    package static func paths(at path: String) throws(VectorFileError) -> [String] {
        guard isFolder(path) else { return [path] }
        let names = try names(in: path)
        let folder = path.hasSuffix("/") ? path : path + "/"
        let files = names.filter(isVectorFile).sorted().map { folder + $0 }.filter { !isFolder($0) }
        guard !files.isEmpty else {
            throw VectorFileError(.missing, path, "no .json or .txt file in this folder")
        }
        return files
    }

    private static func isVectorFile(_ name: String) -> Bool {
        name.hasSuffix(".json") || name.hasSuffix(".txt")
    }

    private static func isFolder(_ path: String) -> Bool {
        var status = stat()
        return unsafe stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
    }

    /// The offset of the name in a directory entry.
    private static let nameOffset = MemoryLayout<dirent>.offset(of: \.d_name) ?? 0

    /// The names of the files in a folder. Throws if the name of a vector file is not UTF-8.
    private static func names(in folder: String) throws(VectorFileError) -> [String] {
        guard let directory = unsafe opendir(folder) else { throw failure(folder) }
        defer { unsafe closedir(directory) }
        var names: [String] = []
        while true {
            errno = 0
            guard let entry = unsafe readdir(directory) else { break }
            let bytes = unsafe (UnsafeRawPointer(entry) + nameOffset)
                .assumingMemoryBound(to: CChar.self)
            let name = unsafe String(cString: bytes)
            guard unsafe !isVectorFile(name) || String(validatingCString: bytes) != nil else {
                throw VectorFileError(
                    .missing, folder,
                    "the name of the file \(name) is not UTF-8: rename the file, or move it away")
            }
            names.append(name)
        }
        guard errno == 0 else { throw failure(folder) }
        return names
    }

    private static func read(_ path: String) throws(VectorFileError) -> [UInt8] {
        let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw failure(path) }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: 1 << 20)
        while true {
            let count = unsafe Glibc.read(descriptor, &piece, piece.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw failure(path) }
            guard count > 0 else { return bytes }
            bytes += piece[..<count]
            guard bytes.count <= maximumSize else {
                throw VectorFileError(
                    .malformed, path, "more than \(maximumSize >> 20) MiB; split the file")
            }
        }
    }

    private static func failure(_ path: String) -> VectorFileError {
        let number = errno
        let text = unsafe strerror(number).map { unsafe String(cString: $0) } ?? "error \(number)"
        switch number {
        case ENOENT, ENOTDIR: return VectorFileError(.missing, path, "no such file")
        case EACCES, EPERM: return VectorFileError(.denied, path, text)
        default: return VectorFileError(.unreadable, path, text)
        }
    }
}
