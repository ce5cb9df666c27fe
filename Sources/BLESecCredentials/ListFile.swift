internal import BLESecChannelCore
internal import BLESecPrimitives
internal import Glibc

/// The content of a small file that lists keys, addresses or revocations, and the version of the
/// file.
struct ListFile: Sendable {
    /// The longest file that is read or written, in bytes.
    static let maximumLength = 1 << 20

    /// Identifies a version of a file: the value changes when the file is written or replaced. But
    /// two changes within one tick of the kernel's clock can lead to the same value.
    struct FileVersion: Sendable, Hashable {
        var device: UInt
        var inode: UInt
        var size: Int
        /// When the content was last changed, and when the file's status was last changed: for
        /// each, the seconds since 1970 and the nanoseconds.
        var times: [Int]

        init(_ status: stat) {
            device = UInt(status.st_dev)
            inode = UInt(status.st_ino)
            size = Int(status.st_size)
            times = [
                status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec,
                status.st_ctim.tv_nsec,
            ]
        }
    }

    let text: [UInt8]
    /// The version of the file; nil if the file could still have this version after a later change.
    let version: FileVersion?

    /// If a file was last changed longer ago than this when it is read, every later change gives the
    /// file another version: the kernel's clock for changes advances in ticks of at most 10 ms.
    private static let settlingTime = Duration.milliseconds(20)
    /// The settling time for a file system that stores times in units of one or two seconds.
    private static let coarseSettlingTime = Duration.seconds(3)

    /// Reads the file; nil when there is no such file.
    ///
    /// - Throws: `permission` or `noSuchFile` when it cannot be read; `badKey` when other users may
    ///   have written it (``TrustedFile``), or when it is not a regular file; `limitExceeded` when
    ///   it is longer than ``maximumLength``.
    init?(_ path: String) throws(ChannelError) {
        // The time is read before the file is opened, so that every change after `file.status` is
        // later than `now`.
        var now = timespec()
        unsafe clock_gettime(CLOCK_REALTIME_COARSE, &now)
        let file: TrustedFile
        do throws(TrustedFile.Failure) {
            file = try TrustedFile(path)
        } catch {
            if case .system(ENOENT) = error { return nil }
            throw error.channelError(for: path)
        }
        guard let text = file.descriptor.readAll(atMost: Self.maximumLength + 1) else {
            throw .system(.noSuchFile, "\(path) cannot be read", errno)
        }
        guard text.count <= Self.maximumLength else {
            throw ChannelError(
                .limitExceeded, "\(path) is longer than the \(Self.maximumLength) bytes allowed")
        }
        self.text = text
        version = Self.isSettled(file.status, at: now) ? FileVersion(file.status) : nil
    }

    /// Whether a change after `now` is certain to give a file with this status another version.
    static func isSettled(_ status: stat, at now: timespec) -> Bool {
        // If the time of the change is far in the future, the clock was set back after the change.
        let age = Duration(now) - Duration(status.st_ctim)
        let storesFractions = status.st_ctim.tv_nsec != 0 || status.st_mtim.tv_nsec != 0
        let settlingTime = storesFractions ? settlingTime : coarseSettlingTime
        return age > settlingTime || age < .zero - settlingTime
    }

    /// Whether the file at `path` still has the version of an earlier reading; false if
    /// `version` is nil.
    static func isUnchanged(_ path: String, since version: FileVersion?) -> Bool {
        version != nil && version == Self.version(of: path)
    }

    /// The present version of the file at `path`; nil when there is no such file.
    static func version(of path: String) -> FileVersion? {
        var status = stat()
        return unsafe stat(path, &status) == 0 ? FileVersion(status) : nil
    }

    /// The number, from 1, and the words of each line that is neither blank nor a `#` comment.
    ///
    /// - Throws: `badKey` for a carriage return that is not at the end of a line. Otherwise a file
    ///   with carriage returns alone would be one line, and possibly one comment. `badKey` also for
    ///   a byte order mark, and for a first or second word that is not UTF-8: the name that is read
    ///   would differ from the name that a person sees in the file.
    static func lines(
        of text: [UInt8], in path: String
    ) throws(ChannelError) -> [(number: Int, words: [Substring])] {
        let carriageReturn = UInt8(ascii: "\r")
        var lines: [(number: Int, words: [Substring])] = []
        for (index, line) in rawLines(of: text).enumerated() {
            if let found = line.firstIndex(of: carriageReturn), found != line.endIndex - 1 {
                throw malformed(
                    path, index + 1, "a carriage return inside a line: a line ends with a line feed"
                )
            }
            if index == 0, line.starts(with: "\u{FEFF}".utf8) {
                throw malformed(path, 1, "a byte order mark: save the file without it")
            }
            // Split as bytes, because a `String` takes a blank and a combining character after it
            // as one character.
            let words = line.split(whereSeparator: isBlank)
            guard let first = words.first, first.first != UInt8(ascii: "#") else { continue }
            // The words after the second are a remark, or the caller checks them.
            guard words.prefix(2).allSatisfy({ String(validating: $0, as: UTF8.self) != nil })
            else { throw malformed(path, index + 1, "a word that is not UTF-8") }
            lines.append((index + 1, words.map { Substring(decoding: $0, as: UTF8.self) }))
        }
        return lines
    }

    /// All lines, without their line feeds.
    static func rawLines(of text: [UInt8]) -> [ArraySlice<UInt8>] {
        text.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
    }

    /// The text of lines from ``rawLines(of:)``.
    static func text(of lines: [ArraySlice<UInt8>]) -> [UInt8] {
        Array(lines.joined(separator: [UInt8(ascii: "\n")]))
    }

    /// Whether a byte separates words.
    static func isBlank(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") || byte == UInt8(ascii: "\r")
    }

    /// Replaces the file at `path`, under its lock, with the text that `edit` returns. If `edit`
    /// returns nil, the file stays unchanged.
    ///
    /// - Throws: `cannotCreate`; `timedOut` when the file stays locked; the errors of reading the
    ///   file and of `edit`.
    static func change(
        _ path: String, _ edit: (ListFile) throws(ChannelError) -> [UInt8]?
    ) throws(ChannelError) {
        let lock = try FileLock(path)
        guard let listing = try ListFile(lock.path) else {
            throw ChannelError(.noSuchFile, "\(path) vanished while it was being changed")
        }
        if let text = try edit(listing) { try NewFile.replace(lock.path, text.span) }
        lock.release()
    }

    /// Throws if a line's second word is a fingerprint, like the first. The second word counts as an
    /// explanation, so the key of the second fingerprint would not be on the list.
    static func refuseSecondKey(
        _ words: [Substring], _ path: String, _ line: Int
    ) throws(ChannelError) {
        guard words.count > 1, Fingerprint(String(words[1])) != nil else { return }
        throw malformed(path, line, "a second fingerprint: each goes in a line of its own")
    }

    static func malformed(_ path: String, _ line: Int, _ reason: String) -> ChannelError {
        .badKey("\(path), line \(line): \(reason)")
    }
}

extension Duration {
    /// A time of the kernel, since 1970.
    fileprivate init(_ time: timespec) { self = .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec) }
}
