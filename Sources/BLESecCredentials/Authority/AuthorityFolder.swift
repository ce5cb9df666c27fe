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
        self.path = NewFile.withoutTrailingSlashes(path)
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
            throw NewFile.existsError(path)
        }
    }

    /// Throws if the directory belongs to another user, since then its mode must not be changed.
    private func requireOwn() throws(ChannelError) {
        var status = stat()
        guard unsafe lstat(path, &status) == 0 else { throw NewFile.cannotCreate(path, errno) }
        guard status.st_uid == geteuid() else {
            throw ChannelError(.badKey, "\(path) belongs to another user")
        }
    }

    /// Makes the directory, or uses an existing empty one; closes the directory to other users; and
    /// makes ``issuedPath`` in it. Returns true if the directory was made, and false if it existed.
    ///
    /// An empty directory is not replaced by a new one, since it may be a mount point or a shell's
    /// working directory.
    func make() throws(ChannelError) -> Bool {
        let isNew = unsafe mkdir(path, 0o700) == 0
        guard isNew || errno == EEXIST else { throw NewFile.cannotCreate(path, errno) }
        do throws(ChannelError) {
            if isNew {
                try NewFile.synchronizeDirectory(of: path)
            } else {
                try requireAbsentOrEmpty()
            }
            try requireOwn()
            // Also for a new directory, because the umask may have removed permissions.
            guard unsafe chmod(path, 0o700) == 0 else { throw NewFile.cannotCreate(path, errno) }
            try requirePrivate()
            // Before `chmod`, other users could make files in an existing directory if its mode
            // allowed that.
            if !isNew { try requireAbsentOrEmpty() }
            // Of several calls at the same time, only one makes this directory.
            guard unsafe mkdir(issuedPath, 0o700) == 0 else {
                throw errno == EEXIST
                    ? NewFile.existsError(path) : NewFile.cannotCreate(path, errno)
            }
            unsafe chmod(issuedPath, 0o700)
            return isNew
        } catch {
            if isNew { unsafe rmdir(path) }
            throw error
        }
    }

    /// Removes the three files that a new authority consists of, and the directories that ``make()``
    /// has made. `isNew` is the result of ``make()``.
    func remove(isNew: Bool) {
        for file in [certificatePath, keyPath, revocationListPath] { unsafe unlink(file) }
        unsafe rmdir(issuedPath)
        if isNew { unsafe rmdir(path) }
    }

    /// The serial numbers of the files that ``recordPath(of:)`` names.
    func serials() throws(ChannelError) -> [SerialNumber] {
        try Self.names(in: issuedPath).compactMap { name in
            guard name.hasSuffix(".pem"),
                let serial = SerialNumber(String(name.dropLast(".pem".count))),
                name == "\(serial).pem"
            else { return nil }
            return serial
        }
    }

    private static func names(in path: String) throws(ChannelError) -> [String] {
        guard let directory = unsafe opendir(path) else { throw .cannotOpen(path, errno) }
        defer { unsafe closedir(directory) }
        var names: [String] = []
        while true {
            errno = 0
            guard let entry = unsafe readdir(directory) else { break }
            let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) {
                unsafe String(cString: UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self))
            }
            if name != ".", name != ".." { names.append(name) }
        }
        guard errno == 0 else { throw .system(.noSuchFile, "\(path) cannot be read", errno) }
        return names
    }
}
