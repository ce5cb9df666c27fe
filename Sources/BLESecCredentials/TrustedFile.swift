internal import BLESecChannelCore
internal import Glibc

/// A file or directory that affects trust decisions, or contains a secret, opened safely.
///
/// As with OpenSSH's `StrictModes`, the file, every directory on its path and every symbolic link
/// have to belong to the effective user or to root, and nobody else may have write access to the
/// file and the directories. A directory that other users can write to is accepted if it is sticky,
/// like `/tmp`, because other users cannot rename or remove this user's files in it.
///
/// Each step opens a name relative to the directory of the previous step and checks what it opened,
/// so nothing can be exchanged in between. OpenSSH's check stops at the home directory. This check
/// continues up to the root, because a user who can rename any directory on the path could bring
/// back an old deny list.
struct TrustedFile: ~Copyable {
    /// Why a file is not accepted.
    enum Failure: Error {
        /// The system reported this error number.
        case system(Int32)
        /// The file exists but is not trusted; the reason contains the remedy.
        case refused(ChannelError)

        /// The error for a file that has to exist.
        func channelError(for path: String) -> ChannelError {
            switch self {
            case .system(let number): .cannotOpen(path, number)
            case .refused(let error): error
            }
        }
    }

    enum Protection {
        /// Other users must not be able to write to the file.
        case unalterable
        /// Other users must not be able to open the file. Exception: if the file belongs to root,
        /// and this user is not root, the file's group may read it.
        case secret
    }

    let descriptor: FileDescriptor
    let status: stat
    /// The path without symbolic links.
    let path: String

    /// The most symbolic links that are followed, as in the kernel.
    private static let maximumLinks = 40

    /// Opens the regular file at `path` if it is safe for `user`; `flags` and `mode` are those of
    /// `open`.
    init(
        _ path: String, _ protection: Protection = .unalterable, flags: Int32 = O_RDONLY,
        mode: mode_t = 0, user: uid_t = geteuid()
    ) throws(Failure) {
        // O_NONBLOCK, since opening a FIFO would otherwise wait for its other end.
        let end = try Walk(path, user).open(flags | O_NONBLOCK | O_NOCTTY, mode)
        let status = end.descriptor.status
        guard status.isRegularFile else {
            let kind = status.isDirectory ? "a directory" : "not a regular file"
            throw .refused(.badKey("\(path) is \(kind)"))
        }
        if let fault = protection.fault(path, status, user: user) { throw .refused(fault) }
        self.status = status
        self.path = end.path
        descriptor = end.descriptor
    }

    /// Opens the directory at `path`, which must belong to `user` or root, and give others no
    /// permission.
    init(privateDirectory path: String, user: uid_t = geteuid()) throws(Failure) {
        let end = try Walk(path, user).open(O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0)
        let status = end.descriptor.status
        if let fault = Self.ownerFault(path, status, user: user) { throw .refused(fault) }
        guard status.st_mode & 0o077 == 0 else {
            throw .refused(Self.permissionFault(path, status, "is open to", "700"))
        }
        self.status = status
        self.path = end.path
        descriptor = end.descriptor
    }

    /// Opens a file for reading, and throws every failure as a `ChannelError`.
    static func open(
        _ path: String, _ protection: Protection = .unalterable
    ) throws(ChannelError) -> TrustedFile {
        do throws(Failure) {
            return try TrustedFile(path, protection)
        } catch {
            throw error.channelError(for: path)
        }
    }

    /// Throws unless the directory of the file at `path` is trusted; the file need not exist. The
    /// error says that the file cannot be created, or that its directory is not trusted.
    static func requireTrustedDirectory(of path: String) throws(ChannelError) {
        let folder = NewFile.directory(of: path)
        do throws(Failure) {
            // With `O_PATH`, no permission to read the directory is needed.
            let end = try Walk(folder, geteuid()).open(FileDescriptor.pathFlag | O_DIRECTORY, 0)
            try Walk.requireTrust(end.descriptor.status, at: end.path, for: path, geteuid())
        } catch {
            switch error {
            case .system(let number): throw NewFile.cannotCreate(path, number)
            case .refused(let error): throw error.withPathReplaced(from: folder, to: path)
            }
        }
    }

    /// The error for permissions that are too wide. `exposure` precedes the word "others" in the
    /// reason, and `mode` is the argument of `chmod` there.
    private static func permissionFault(
        _ path: String, _ status: stat, _ exposure: String, _ mode: String
    ) -> ChannelError {
        .badKey(
            "\(path) \(exposure) others (mode \(status.permissions)): run `chmod \(mode) "
                + "\(path.shellWord)`")
    }

    /// Why the owner of a file at `path` is not acceptable; nil if the owner is `user` or root.
    private static func ownerFault(_ path: String, _ status: stat, user: uid_t) -> ChannelError? {
        guard status.st_uid != user, status.st_uid != 0 else { return nil }
        return .badKey(
            "\(path) belongs to another user (\(status.st_uid)), who could change it: use a copy "
                + "that belongs to you, in a directory of yours")
    }

    /// The file or directory at the end of a walk.
    private struct End: ~Copyable {
        let descriptor: FileDescriptor
        let path: String
    }

    /// Follows the path to a file, one step at a time.
    private struct Walk: ~Copyable {
        /// The path that the caller gave, for error messages.
        private let requested: String
        private let user: uid_t
        private var directory: FileDescriptor
        /// The path of `directory`.
        private var path = ""
        /// The names that remain to be followed, in reverse order: the next one is last.
        private var names: [String]
        private var followedLinks = 0

        init(_ path: String, _ user: uid_t) throws(Failure) {
            guard !path.isEmpty else { throw .system(ENOENT) }
            var whole = path
            if !Self.isAbsolute(path) {
                guard let here = unsafe getcwd(nil, 0) else { throw .system(errno) }
                defer { unsafe free(here) }
                guard let folder = unsafe String(validatingCString: here) else {
                    throw .refused(
                        .badKey(
                            "\(path) cannot be opened: the path of the working directory is not "
                                + "UTF-8: run the command in another directory"))
                }
                whole = folder + "/" + path
            }
            guard let root = FileDescriptor("/", FileDescriptor.pathFlag | O_DIRECTORY) else {
                throw .system(errno)
            }
            try Self.requireTrust(root.status, at: "", for: path, user)
            requested = path
            self.user = user
            directory = root
            names = Self.names(in: whole)
        }

        /// Follows the remaining names, and opens the file that the last one names.
        consuming func open(_ flags: Int32, _ mode: mode_t) throws(Failure) -> End {
            while let name = names.popLast() {
                let isLast = names.isEmpty
                let step = FileDescriptor(name, FileDescriptor.pathFlag | O_NOFOLLOW, in: directory)
                guard let step else {
                    // A file that is to be created does not exist yet.
                    guard isLast, errno == ENOENT, flags & O_CREAT != 0 else {
                        throw .system(errno)
                    }
                    return try openLast(name, flags, mode)
                }
                let status = step.status
                if status.st_mode & S_IFMT == S_IFLNK {
                    try follow(step, name)
                } else if isLast {
                    return try openLast(name, flags, mode)
                } else {
                    guard status.isDirectory else { throw .system(ENOTDIR) }
                    directory = step
                    path = name == ".." ? parentPath : path + "/" + name
                    try Self.requireTrust(status, at: path, for: requested, user)
                }
            }
            // The path is `/`, or it ends with a link whose target is the link's own directory or
            // `/`, so no name is left.
            return End(descriptor: directory, path: path.isEmpty ? "/" : path)
        }

        /// The parent of `path`.
        private var parentPath: String {
            path.utf8.lastIndex(of: UInt8(ascii: "/")).map { String(path[..<$0]) } ?? ""
        }

        /// Opens the file or directory with the last name of the path.
        private func openLast(
            _ name: String, _ flags: Int32, _ mode: mode_t
        ) throws(Failure) -> End {
            guard
                let opened = FileDescriptor(name, flags | O_NOFOLLOW, mode: mode, in: directory)
            else { throw .system(errno) }
            return End(descriptor: opened, path: path + "/" + name)
        }

        /// Replaces a link's name with its target.
        private mutating func follow(
            _ link: borrowing FileDescriptor, _ name: String
        ) throws(Failure) {
            followedLinks += 1
            guard followedLinks <= TrustedFile.maximumLinks else { throw .system(ELOOP) }
            let place = path + "/" + name
            if let fault = TrustedFile.ownerFault(place, link.status, user: user) {
                throw .refused(fault.withRequestedPath(requested))
            }
            guard let bytes = link.target else { throw .system(errno) }
            guard let target = String(validating: bytes, as: UTF8.self) else {
                throw .refused(
                    .badKey(
                        "\(requested) cannot be opened: the target of the symbolic link \(place) is "
                            + "not UTF-8: use a path without this link"))
            }
            guard !target.isEmpty else { throw .system(ENOENT) }
            // In `/proc`, the target of a link to a pipe, a socket or the like is a description, and
            // no path.
            guard !["pipe:[", "socket:[", "anon_inode:"].contains(where: target.hasPrefix) else {
                throw .refused(
                    .badKey(
                        "\(requested) is a pipe or a socket, and not a file that can be checked: "
                            + "use a file"))
            }
            if Self.isAbsolute(target) {
                guard let root = FileDescriptor("/", FileDescriptor.pathFlag | O_DIRECTORY) else {
                    throw .system(errno)
                }
                directory = root
                path = ""
            }
            names += Self.names(in: target)
        }

        /// Throws when other users may change the content of a directory on the requested path.
        static func requireTrust(
            _ status: stat, at path: String, for requested: String, _ user: uid_t
        ) throws(Failure) {
            let place = path.isEmpty ? "/" : path
            if let fault = TrustedFile.ownerFault(place, status, user: user) {
                throw .refused(fault.withRequestedPath(requested))
            }
            guard status.st_mode & 0o022 == 0 || status.st_mode & 0o1000 != 0 else {
                let fault = TrustedFile.permissionFault(place, status, "can be changed by", "go-w")
                throw .refused(fault.withRequestedPath(requested))
            }
        }

        // The next two functions compare bytes, since a slash before a combining character is no
        // `Character` of its own.
        private static func isAbsolute(_ path: String) -> Bool {
            path.utf8.first == UInt8(ascii: "/")
        }

        private static func names(in path: String) -> [String] {
            path.utf8.split(separator: UInt8(ascii: "/")).map { String(Substring($0)) }
                .filter { $0 != "." }.reversed()
        }
    }
}

extension TrustedFile.Protection {
    /// Why a file at `path` is not acceptable for a `user`; nil if it is acceptable.
    func fault(_ path: String, _ status: stat, user: uid_t) -> ChannelError? {
        if let fault = TrustedFile.ownerFault(path, status, user: user) { return fault }
        let mode = status.st_mode
        switch self {
        case .unalterable:
            guard mode & 0o022 != 0 else { return nil }
            return TrustedFile.permissionFault(path, status, "can be changed by", "go-w")
        case .secret:
            // Root may let a service read a secret through the service's group. A credential of
            // systemd has such a mode: the group bits are the mask of an access control list.
            if status.st_uid == 0, user != 0, mode & 0o037 == 0 { return nil }
            guard mode & 0o077 != 0 else { return nil }
            return TrustedFile.permissionFault(path, status, "can be opened by", "600")
        }
    }
}

extension ChannelError {
    /// This error with the requested path before the reason.
    fileprivate func withRequestedPath(_ path: String) -> ChannelError {
        ChannelError(code, "\(path) cannot be trusted: \(reason)")
    }

    /// This error with another path at the beginning of the reason.
    fileprivate func withPathReplaced(from old: String, to new: String) -> ChannelError {
        guard reason.hasPrefix(old + " ") else { return self }
        return ChannelError(code, new + reason.dropFirst(old.count))
    }

    /// The error for a file that cannot be opened, from the system's error number.
    static func cannotOpen(_ path: String, _ number: Int32) -> ChannelError {
        switch number {
        case ENOENT, ENOTDIR:
            ChannelError(.noSuchFile, "\(path): no such file", underlying: .errno(number))
        case EACCES, EPERM: .system(.permission, "\(path) cannot be opened", number)
        default: .system(.noSuchFile, "\(path) cannot be opened", number)
        }
    }
}

extension FileDescriptor {
    /// The bytes of the target of the symbolic link that this descriptor, opened with `O_NOFOLLOW`,
    /// refers to.
    fileprivate var target: [UInt8]? {
        var bytes = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = unsafe readlinkat(number, "", &bytes, bytes.count)
        guard count >= 0, count < bytes.count else { return nil }
        return bytes[..<count].map { UInt8(bitPattern: $0) }
    }
}
