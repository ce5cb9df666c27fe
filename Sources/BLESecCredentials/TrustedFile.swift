internal import BLESecChannelCore
internal import Glibc

/// A file or directory that decides about trust, or holds a secret, opened safely.
///
/// As with OpenSSH's `StrictModes`, the file, every directory on the way to it and every symbolic link have to
/// belong to the effective user or to root, and nobody else may have write access to the file and the
/// directories. A directory that others can write to is accepted if it is sticky, as `/tmp` is: others cannot
/// rename or remove our files there.
///
/// Each step is opened from the step before, and what was opened is checked, so nothing can be exchanged in
/// between. OpenSSH's check stops at the home directory. This one goes on to the root, because anyone who can
/// rename a directory above could bring back an old list.
struct TrustedFile: ~Copyable {
    /// Why there is none.
    enum Failure: Error {
        /// The system's error number.
        case system(Int32)
        /// It is there, and not to be trusted; the reason says what to do.
        case refused(ChannelError)
    }

    /// What nobody else may do with it.
    enum Protection {
        /// Write to it.
        case unchanged
        /// Open it at all.
        case secret
    }

    let descriptor: FileDescriptor
    let status: stat
    /// Where it is, without symbolic links.
    let path: String

    /// How many symbolic links are followed, as the kernel has it.
    private static let mostLinks = 40

    /// Opens the regular file at `path` with the flags of `open`; `user` is who may have written it.
    init(
        _ path: String, _ protection: Protection = .unchanged, flags: Int32 = O_RDONLY,
        mode: mode_t = 0, user: uid_t = geteuid()
    ) throws(Failure) {
        // O_NONBLOCK: opening a FIFO would wait for its other end.
        let end = try Walk(path, user).open(flags | O_NONBLOCK | O_NOCTTY, mode)
        let status = end.descriptor.status
        guard status.isRegularFile else {
            let kind = status.isDirectory ? "a directory" : "not a regular file"
            throw .refused(ChannelError(.badKey, "\(path) is \(kind)"))
        }
        if let fault = protection.fault(path, status, user: user) { throw .refused(fault) }
        self.status = status
        self.path = end.path
        descriptor = end.takeDescriptor()
    }

    /// Opens the directory at `path`, which nobody else may enter.
    init(closedDirectory path: String, user: uid_t = geteuid()) throws(Failure) {
        let end = try Walk(path, user).open(O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0)
        let status = end.descriptor.status
        if let fault = FileOwner.fault(path, status, user: user) { throw .refused(fault) }
        guard status.st_mode & 0o077 == 0 else {
            throw .refused(
                ChannelError(
                    .badKey,
                    "\(path) is open to others (mode \(status.permissions)): run `chmod 700 \(path)`"
                ))
        }
        self.status = status
        self.path = end.path
        descriptor = end.takeDescriptor()
    }

    /// Throws unless the directory at `path` can be on the way to a trusted file.
    static func requireDirectory(
        _ path: String, user: uid_t = geteuid()
    ) throws(Failure) {
        let end = try Walk(path, user).open(O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0)
        try Walk.evaluateTrust(end.descriptor.status, at: end.path, for: path, user)
    }

    /// Where a walk has ended.
    private struct End: ~Copyable {
        let descriptor: FileDescriptor
        let path: String

        consuming func takeDescriptor() -> FileDescriptor { descriptor }
    }

    /// The way to a file, a step at a time.
    private struct Walk: ~Copyable {
        /// `O_PATH` of `<asm-generic/fcntl.h>`, which the Glibc module lacks: opens a place, whether or not
        /// it can be read, and a link itself.
        private static let openPath: Int32 = 0o1000_0000

        private let named: String
        private let user: uid_t
        private var directory: FileDescriptor
        /// The directory's path.
        private var path = ""
        /// The names that are still to come, the next one last.
        private var names: [String]
        private var links = 0

        init(_ path: String, _ user: uid_t) throws(Failure) {
            guard !path.isEmpty else { throw .system(ENOENT) }
            var whole = path
            if !path.hasPrefix("/") {
                guard let here = unsafe getcwd(nil, 0) else { throw .system(errno) }
                defer { unsafe free(here) }
                whole = unsafe String(cString: here) + "/" + path
            }
            guard let root = FileDescriptor("/", Self.openPath | O_DIRECTORY) else {
                throw .system(errno)
            }
            try Self.evaluateTrust(root.status, at: "", for: path, user)
            named = path
            self.user = user
            directory = root
            names = Self.names(in: whole)
        }

        /// Opens what the last name stands for.
        consuming func open(_ flags: Int32, _ mode: mode_t) throws(Failure) -> End {
            while let name = names.popLast() {
                let isLast = names.isEmpty
                let step = FileDescriptor(name, Self.openPath | O_NOFOLLOW, in: directory)
                guard let step else {
                    // What is to be made is not there yet.
                    guard isLast, errno == ENOENT, flags & O_CREAT != 0 else {
                        throw .system(errno)
                    }
                    return try end(name, flags, mode)
                }
                let status = step.status
                if status.st_mode & S_IFMT == S_IFLNK {
                    try follow(step, name)
                } else if isLast {
                    return try end(name, flags, mode)
                } else {
                    guard status.isDirectory else { throw .system(ENOTDIR) }
                    directory = step
                    path = name == ".." ? above : path + "/" + name
                    try Self.evaluateTrust(status, at: path, for: named, user)
                }
            }
            // `/` has no name, and a link to the directory that it is in has none left.
            return End(descriptor: directory, path: path.isEmpty ? "/" : path)
        }

        /// The path of the directory above this one.
        private var above: String {
            path.lastIndex(of: "/").map { String(path[..<$0]) } ?? ""
        }

        private func end(
            _ name: String, _ flags: Int32, _ mode: mode_t
        ) throws(Failure) -> End {
            guard
                let opened = FileDescriptor(name, flags | O_NOFOLLOW, mode: mode, in: directory)
            else { throw .system(errno) }
            return End(descriptor: opened, path: path + "/" + name)
        }

        /// Puts a link's target in the place of its name.
        private mutating func follow(
            _ link: borrowing FileDescriptor, _ name: String
        ) throws(Failure) {
            links += 1
            guard links <= TrustedFile.mostLinks else { throw .system(ELOOP) }
            let place = path + "/" + name
            if let fault = FileOwner.fault(place, link.status, user: user) {
                throw .refused(fault.about(named))
            }
            guard let target = link.target else { throw .system(errno) }
            guard !target.isEmpty else { throw .system(ENOENT) }
            if target.hasPrefix("/") {
                guard let root = FileDescriptor("/", Self.openPath | O_DIRECTORY) else {
                    throw .system(errno)
                }
                directory = root
                path = ""
            }
            names += Self.names(in: target)
        }

        /// Throws when others may exchange what is in a directory on the way to `named`.
        static func evaluateTrust(
            _ status: stat, at path: String, for named: String, _ user: uid_t
        ) throws(Failure) {
            let place = path.isEmpty ? "/" : path
            if let fault = FileOwner.fault(place, status, user: user) {
                throw .refused(fault.about(named))
            }
            guard status.st_mode & 0o022 == 0 || status.st_mode & 0o1000 != 0 else {
                let fault = ChannelError(
                    .badKey,
                    "\(place) can be changed by others (mode \(status.permissions)): run "
                        + "`chmod go-w \(place)`")
                throw .refused(fault.about(named))
            }
        }

        private static func names(in path: String) -> [String] {
            path.split(separator: "/").filter { $0 != "." }.map(String.init).reversed()
        }
    }
}

extension TrustedFile.Protection {
    /// What is wrong with a file at `path`, for a `user`.
    func fault(_ path: String, _ status: stat, user: uid_t) -> ChannelError? {
        if let fault = FileOwner.fault(path, status, user: user) { return fault }
        let mode = status.st_mode
        switch self {
        case .unchanged:
            guard mode & 0o022 != 0 else { return nil }
            return ChannelError(
                .badKey,
                "\(path) can be changed by others (mode \(status.permissions)): run "
                    + "`chmod go-w \(path)`")
        case .secret:
            // Root may give a secret to a service by its group. systemd shows credentials with these modes:
            // there the group's bits are the mask of an access control list.
            if status.st_uid == 0, user != 0, mode & 0o037 == 0 { return nil }
            guard mode & 0o077 != 0 else { return nil }
            return ChannelError(
                .badKey,
                "\(path) can be opened by others (mode \(status.permissions)): "
                    + "run `chmod 600 \(path)`")
        }
    }
}

/// Whose a file has to be.
enum FileOwner {
    /// What is wrong with the owner of a file at `path`: it has to be the user or root.
    static func fault(_ path: String, _ status: stat, user: uid_t) -> ChannelError? {
        guard status.st_uid != user, status.st_uid != 0 else { return nil }
        return ChannelError(
            .badKey,
            "\(path) belongs to another user (\(status.st_uid)), who could change it: use a copy that "
                + "belongs to you, in a directory of yours")
    }
}

extension TrustedFile.Failure {
    /// The error of a file that has to be there.
    func error(_ path: String) -> ChannelError {
        switch self {
        case .system(let number): .cannotOpen(path, number)
        case .refused(let error): error
        }
    }
}

extension ChannelError {
    /// The same error, behind the path that was asked for.
    fileprivate func about(_ path: String) -> ChannelError {
        ChannelError(code, "\(path) cannot be trusted: \(reason)")
    }
}

extension FileDescriptor {
    /// Opens `name` in a directory, close-on-exec; or returns nil, with the system's error in `errno`.
    init?(_ name: String, _ flags: Int32, mode: mode_t = 0, in directory: borrowing FileDescriptor)
    {
        var number: Int32
        repeat {
            number = unsafe openat(directory.number, name, flags | O_CLOEXEC, mode)
        } while number < 0 && errno == EINTR
        guard number >= 0 else { return nil }
        self.init(owning: number)
    }

    /// Where a symbolic link leads that was opened itself.
    fileprivate var target: String? {
        var bytes = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = unsafe readlinkat(number, "", &bytes, bytes.count)
        guard count >= 0, count < bytes.count else { return nil }
        return String(decoding: bytes[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
