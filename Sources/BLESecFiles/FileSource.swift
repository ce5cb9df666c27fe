internal import CBLESecLinux
internal import BLESecPrimitives
internal import Glibc

/// A file or a folder tree to be sent, as it was when the object was made. Used on one thread.
final class FileSource {
    enum Entry {
        case folder(String)
        case file(FileEntry, Version)
    }

    /// Properties of a file, of which at least one changes when the file is modified or replaced.
    struct Version: Equatable {
        var device: UInt
        var inode: UInt
        var size: UInt64
        /// The time of the last modification (`st_mtim`).
        var seconds: Int
        var nanoseconds: Int
        /// The time of the last status change (`st_ctim`), which a program cannot set.
        var changeSeconds: Int
        var changeNanoseconds: Int

        init(_ status: stat) {
            (changeSeconds, changeNanoseconds) = (
                status.st_ctim.tv_sec, status.st_ctim.tv_nsec
            )
            (device, inode) = (status.st_dev, status.st_ino)
            size = UInt64(max(0, status.st_size))
            (seconds, nanoseconds) = (status.st_mtim.tv_sec, status.st_mtim.tv_nsec)
        }
    }

    let offer: FileFrame.Offer
    private(set) var entries: [Entry] = []
    /// What is in the tree but is not sent, each with the reason. Hidden files are not listed.
    private(set) var omissions: [FileTransfer.Failure] = []
    private let path: String
    private let root: Descriptor
    /// The indices of those `entries` that are files; nil until the first use.
    private var fileIndices: [Int]?

    /// How many files and folders together a sent tree may have. A receiver accepts this many
    /// files, and in addition this many folders.
    static let mostEntries = 1_000_000

    /// Examines the file or folder at this path. Symbolic links in the path are followed, but not
    /// those inside the folder.
    init(_ path: String, sendsHidden: Bool) throws(FileFailure) {
        self.path = path
        root = try Descriptor.open(path, O_RDONLY | O_NONBLOCK)
        guard let status = root.status, status.isRegular || status.isFolder else {
            throw FileFailure(.cannotRead, "\(path) is neither a file nor a folder")
        }
        let name = try Self.name(of: path)
        guard FileName.isAllowed(name, allowsHidden: true) else {
            throw FileFailure(.badName, "\(path): the name cannot be sent")
        }
        let version = Version(status)
        if status.isRegular {
            entries = [.file(Self.entry(name, status), version)]
        }
        var files: UInt64 = status.isRegular ? 1 : 0
        var bytes: UInt64 = status.isRegular ? version.size : 0
        var walked: [Entry] = []
        var omitted: [FileTransfer.Failure] = []
        if status.isFolder {
            try Self.walk(root, "", sendsHidden: sendsHidden, &walked, &omitted)
            entries = walked
            (files, bytes) = (0, 0)
            for case .file(let entry, _) in walked {
                files += 1
                let (sum, isTooMuch) = bytes.addingReportingOverflow(entry.size)
                bytes = isTooMuch ? .max : sum
            }
        }
        guard bytes <= FileFrame.greatestSizeOrTime else {
            throw FileFailure(.other, "\(path) is too large to be sent")
        }
        omissions = omitted
        offer = FileFrame.Offer(
            id: Self.identifier(path, version, isFolder: status.isFolder),
            version: Self.version(of: entries), isFolder: status.isFolder, files: files,
            bytes: bytes, name: name)
    }

    /// The version in the offer. It depends on the names of all files and folders, and on each
    /// file's size, times of modification and of status change, and execute permission for its
    /// owner.
    private static func version(of entries: [Entry]) -> [UInt8] {
        var hash = HashContext(.sha256)
        for entry in entries {
            let line =
                switch entry {
                case .folder(let path): "folder \(path)\n"
                case .file(let file, let version):
                    "file \(file.size) \(file.seconds) \(file.nanoseconds) "
                        + "\(version.changeSeconds) \(version.changeNanoseconds) "
                        + "\(file.isExecutable) \(file.path)\n"
                }
            hash.update(Array(line.utf8))
        }
        return Array(hash.finished().prefix(FileFrame.idLength))
    }

    /// The path of the file with this number.
    func path(ofFile number: Int) -> String? {
        if fileIndices == nil {
            fileIndices = entries.indices.filter {
                if case .file = entries[$0] { true } else { false }
            }
        }
        guard let fileIndices, fileIndices.indices.contains(number),
            case .file(let entry, _) = entries[fileIndices[number]]
        else { return nil }
        return entry.path
    }

    /// The last part of the path. If there is none, or it is `.` or `..`, the last part of the real
    /// path.
    private static func name(of path: String) throws(FileFailure) -> String {
        guard let resolved = unsafe realpath(path, nil) else {
            throw FileFailure(path, errno, isReading: true)
        }
        defer { unsafe free(resolved) }
        let realPath = unsafe String(cString: resolved)
        // A symbolic link is sent under its own name, which the user has given.
        let last = lastPart(of: path)
        return ["", ".", ".."].contains(last) ? lastPart(of: realPath) : last
    }

    /// The last nonempty part of a path; the empty text if there is none.
    private static func lastPart(of path: String) -> String {
        // Split as bytes, because a `String` takes a `/` and a combining character after it as one
        // character.
        path.utf8.split(separator: UInt8(ascii: "/")).last.map { String(Substring($0)) } ?? ""
    }

    /// The id in the offer, by which a receiver finds what it holds. The same folder at the same
    /// path always has the same id, also in another process. The same file at the same path has the
    /// same id as long as its size and its times of modification and of status change stay. (After
    /// writing other bytes, a program can set back the first time, but not the second.)
    private static func identifier(_ path: String, _ version: Version, isFolder: Bool) -> [UInt8] {
        let resolved = unsafe realpath(path, nil)
        defer { unsafe free(resolved) }
        let realPath = unsafe resolved.map { unsafe String(cString: $0) } ?? path
        var text = "blesec files 1\n\(realPath)\n\(version.device) \(version.inode)"
        // A folder's time is not used, because it changes when something in the folder is made or
        // removed. The receiver compares the folder's files one by one.
        if !isFolder {
            text +=
                " \(version.size) \(version.seconds) \(version.nanoseconds) "
                + "\(version.changeSeconds) \(version.changeNanoseconds)"
        }
        return Array(sha256(Array(text.utf8)).prefix(FileFrame.idLength))
    }

    private static func entry(_ path: String, _ status: stat) -> FileEntry {
        FileEntry(
            path: path, size: UInt64(max(0, status.st_size)),
            seconds: min(
                UInt64(max(0, status.st_mtim.tv_sec)), FileFrame.greatestSizeOrTime),
            nanoseconds: status.st_mtim.tv_sec < 0 ? 0 : UInt64(status.st_mtim.tv_nsec),
            isExecutable: status.isExecutable)
    }

    /// How many of a folder's names that are not UTF-8 are reported one by one. Of further such
    /// names, only the number is reported.
    private static let mostInvalidNames = 100

    /// A name with `\xNN` for each byte that is not a printable character of ASCII, and for each
    /// backslash.
    private static func escaped(_ name: [UInt8]) -> String {
        name.map { byte in
            if (0x20...0x7E).contains(byte), byte != UInt8(ascii: "\\") {
                return String(UnicodeScalar(byte))
            }
            return "\\x" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
        }.joined()
    }

    private static func walk(
        _ folder: Descriptor, _ prefix: String, sendsHidden: Bool, _ entries: inout [Entry],
        _ omissions: inout [FileTransfer.Failure]
    ) throws(FileFailure) {
        func omit(_ path: String, _ problem: FileProblem, _ text: String) {
            omissions.append(FileTransfer.Failure(path: path, problem: problem, text: text))
        }
        func path(of name: String) -> String { prefix.isEmpty ? name : "\(prefix)/\(name)" }
        let (names, invalid) = try folder.allNames()
        let unsendable = invalid.filter { sendsHidden || $0.first != UInt8(ascii: ".") }
        for name in unsendable.prefix(mostInvalidNames) {
            omit(path(of: escaped(name)), .badName, "the name is not UTF-8")
        }
        if unsendable.count > mostInvalidNames {
            omit(
                prefix.isEmpty ? "." : prefix, .badName,
                "\(unsendable.count - mostInvalidNames) more names are not UTF-8")
        }
        for name in names {
            let path = path(of: name)
            guard sendsHidden || !FileName.isHidden(name) else { continue }
            guard let status = folder.status(of: name) else { continue }
            guard status.isFolder || status.isRegular else {
                omit(path, .other, "neither a file nor a folder")
                continue
            }
            guard FileName.parts(of: path, allowsHidden: true) != nil else {
                omit(path, .badName, "the name cannot be sent")
                continue
            }
            guard entries.count < mostEntries else {
                throw FileFailure(
                    .other, "there are more than \(mostEntries) files and folders in it")
            }
            if status.isFolder {
                entries.append(.folder(path))
                do throws(FileFailure) {
                    let inner = try folder.open(name, O_RDONLY | O_DIRECTORY)
                    try walk(inner, path, sendsHidden: sendsHidden, &entries, &omissions)
                } catch {
                    guard error.problem == .cannotRead else { throw error }
                    omit(path, .cannotRead, error.text)
                }
            } else if unsafe faccessat(folder.number, name, R_OK, AT_EACCESS) != 0 {
                omit(path, .cannotRead, "it cannot be read")
            } else {
                entries.append(.file(entry(path, status), Version(status)))
            }
        }
    }

    /// Opens a file; nil if it was changed, replaced or removed after it was examined.
    func open(_ entry: FileEntry, _ version: Version) throws(FileFailure) -> Descriptor? {
        let file: Descriptor
        do throws(FileFailure) {
            if offer.isFolder {
                let (folder, name) = try parent(of: entry)
                file = try folder.open(name, O_RDONLY)
            } else {
                file = try Descriptor.open(path, O_RDONLY | O_NONBLOCK)
            }
        } catch {
            if error.isAbsent { return nil }
            throw error
        }
        return file.status.map(Version.init) == version ? file : nil
    }

    /// Whether the file is still the one that was opened, unchanged and in its place.
    func isUnchanged(_ file: Descriptor, _ entry: FileEntry, _ version: Version) -> Bool {
        file.status.map(Version.init) == version && isInPlace(entry, version)
    }

    /// Whether the file that was examined is still in its place, and unchanged.
    func isInPlace(_ entry: FileEntry, _ version: Version) -> Bool {
        if offer.isFolder {
            guard let (folder, name) = try? parent(of: entry) else { return false }
            return folder.status(of: name).map(Version.init) == version
        }
        var status = stat()
        return unsafe stat(path, &status) == 0 && Version(status) == version
    }

    /// The folder above the file, as it is in the tree now, and the file's name in it.
    private func parent(of entry: FileEntry) throws(FileFailure) -> (Descriptor, String) {
        let slash = entry.path.utf8.lastIndex(of: UInt8(ascii: "/"))
        let path = slash.map { entry.path[..<$0] } ?? ""
        let name =
            slash.map { String(entry.path[entry.path.utf8.index(after: $0)...]) }
            ?? entry.path
        try requireRootInPlace()
        // Each folder is opened anew, since another folder, or a symbolic link, may have taken the
        // path of any of them. An open folder would not show that.
        var folder = root
        for part in path.utf8.split(separator: UInt8(ascii: "/")) {
            folder = try folder.open(String(Substring(part)), O_RDONLY | O_DIRECTORY)
        }
        return (folder, name)
    }

    /// Throws if another folder than `root`, or none, is at the path that is sent.
    private func requireRootInPlace() throws(FileFailure) {
        var status = stat()
        guard unsafe stat(path, &status) == 0 else {
            throw FileFailure(path, errno, isReading: true)
        }
        guard root.isSame(as: status) else { throw FileFailure(path, ENOENT, isReading: true) }
    }
}
