internal import BLESecChannelCore
internal import BLESecPrimitives
internal import BLESecTLSEngine
internal import Glibc

/// The directory with the files of an authority; only its owner may enter it.
struct AuthorityFolder: Sendable {
    let path: String

    /// The authority's certificate, for all peers that accept the authority's devices.
    var certificatePath: String { path + "/ca.pem" }
    var keyPath: String { path + "/ca.key" }
    /// The revocation list, for all peers that accept the authority's devices.
    var revocationListPath: String { path + "/ca.crl" }
    /// The lock file for replacing the revocation list.
    var lockPath: String { path + "/lock" }
    /// Copies of all issued certificates, named by serial number.
    var issuedPath: String { path + "/issued" }

    func recordPath(of serial: SerialNumber) -> String { "\(issuedPath)/\(serial).pem" }

    init(_ path: String) {
        var path = path[...]
        while path.count > 1, path.last == "/" { path.removeLast() }
        self.path = String(path)
    }

    /// Throws unless the directory exists, belongs to this user or root, and permits nothing to
    /// others.
    func requirePrivate() throws(ChannelError) {
        do throws(TrustedFile.Failure) {
            _ = try TrustedFile(privateDirectory: path)
        } catch {
            guard case .system(let number) = error, number == ENOENT || number == ENOTDIR else {
                throw error.channelError(for: path)
            }
            throw ChannelError(
                .noSuchFile,
                "\(path): no such authority: make one with `blesec ca init \(path.shellWord)`",
                underlying: .errno(number))
        }
    }

    /// Throws if anything but an empty directory exists at the path.
    func requireAbsentOrEmpty() throws(ChannelError) {
        var status = stat()
        guard unsafe lstat(path, &status) == 0 else { return }
        guard status.isDirectory, try Self.names(in: path).isEmpty else {
            throw NewFile.exists(path)
        }
    }

    /// Moves the directory to `place`, in one step.
    func move(to place: AuthorityFolder) throws(ChannelError) {
        guard unsafe rename(path, place.path) == 0 else {
            let number = errno
            throw [EEXIST, ENOTEMPTY, ENOTDIR].contains(number)
                ? NewFile.exists(place.path) : NewFile.cannotCreate(place.path, number)
        }
        NewFile.synchronizeDirectory(of: place.path)
    }

    /// Makes the directories. An error names `finalPath`, to which they are to be moved.
    func makeDirectories(finalPath: String) throws(ChannelError) {
        for directory in [path, issuedPath] {
            // chmod, because the umask may have removed permissions.
            guard unsafe mkdir(directory, 0o700) == 0, unsafe chmod(directory, 0o700) == 0 else {
                throw NewFile.cannotCreate(finalPath, errno)
            }
        }
    }

    /// Removes the directories of ``makeDirectories(finalPath:)``, and the files that an authority
    /// begins with.
    func remove() {
        for file in [certificatePath, keyPath, revocationListPath] { unsafe unlink(file) }
        for directory in [issuedPath, path] { unsafe rmdir(directory) }
    }

    func serials() throws(ChannelError) -> [SerialNumber] {
        try Self.names(in: issuedPath).compactMap { name in
            guard name.hasSuffix(".pem") else { return nil }
            return SerialNumber(String(name.dropLast(".pem".count)))
        }
    }

    private static func names(in path: String) throws(ChannelError) -> [String] {
        guard let directory = unsafe opendir(path) else { throw .cannotOpen(path, errno) }
        defer { unsafe closedir(directory) }
        var names: [String] = []
        while let entry = unsafe readdir(directory) {
            let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) {
                unsafe String(cString: UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self))
            }
            if name != ".", name != ".." { names.append(name) }
        }
        return names
    }
}
