internal import CBLESecLinux
internal import BLESecLocking
internal import BLESecPrimitives
internal import Glibc

/// A folder that receives files of one peer. Incomplete ones are in a folder of their own inside of
/// it, under names that depend on the peer and on what it offers. Used on one thread.
final class FileFolder {
    struct Rules: Sendable {
        var allowsHidden = false
        var overwrites = false
        /// How many bytes of incomplete files the peer may have here.
        var quota = UInt64.max
    }

    let rules: Rules
    let folder: Descriptor
    /// Where the peer's incomplete files are.
    let partial: Descriptor
    private let own: Descriptor
    private let peer: String

    /// How long incomplete files are kept.
    private static let lifetime = 7 * 86_400
    /// How much space is left to others.
    private static let leastFree: UInt64 = 16 << 20
    /// What a file takes besides its bytes, at least.
    private static let block: UInt64 = 4_096

    init(_ path: String, from peer: [UInt8], _ rules: Rules) throws(FileFailure) {
        self.rules = rules
        folder = try Descriptor.open(path, O_RDONLY | O_DIRECTORY)
        self.peer = Self.hex(sha256(peer))
        for _ in 0..<Self.attempts {
            let own = try folder.folder(FileName.partialFolder, mode: 0o700)
            guard let status = own.status else { break }
            // Another user's folder could lead the files elsewhere.
            guard status.st_uid == geteuid() else {
                throw FileFailure(
                    .cannotWrite, "\(path)/\(FileName.partialFolder) belongs to another user")
            }
            // Another transfer may just remove the empty folder.
            guard own.lockShared(), own.isThere else {
                // The other one is a few system calls away from its end, and this thread waits for
                // nothing else.
                usleep(10_000)
                continue
            }
            self.own = own
            partial = try own.folder(self.peer, mode: 0o700)
            return
        }
        throw FileFailure(.cannotWrite, "\(path)/\(FileName.partialFolder) is in use")
    }

    private static let attempts = 200

    /// The sender knows that everything is stored: removes the note about it, and the folders of
    /// incomplete files if they are empty and nobody else uses them.
    func forget(_ offer: FileFrame.Offer) {
        partial.remove(Self.noteName(offer))
        removeEmpty()
    }

    /// Removes the folders of incomplete files if they are empty and nobody else uses them.
    func removeEmpty() {
        if own.lock() {
            own.remove(peer, isFolder: true)
            folder.remove(FileName.partialFolder, isFolder: true)
        }
        _ = own.lockShared()
    }

    /// The first 16 bytes in hexadecimal digits.
    static func hex(_ bytes: [UInt8]) -> String {
        let digits = Array("0123456789abcdef".utf8)
        return String(
            decoding: bytes.prefix(16).flatMap {
                [digits[Int($0 >> 4)], digits[Int($0 & 15)]]
            }, as: UTF8.self)
    }

    /// The name of an incomplete file.
    static func partialName(_ entry: FileEntry) -> String {
        let mode = entry.isExecutable ? "x" : "-"
        let text = "\(mode) \(entry.size) \(entry.seconds) \(entry.nanoseconds) \(entry.path)"
        return "f-" + hex(sha256(Array(text.utf8)))
    }

    /// The name of the folder in which a tree is put together.
    static let tree = "tree"
    /// The name of an offer's folder.
    private static func name(of offer: FileFrame.Offer) -> String { "o-" + hex(sha256(offer.id)) }
    /// The name of the note about what was stored.
    private static func noteName(_ offer: FileFrame.Offer) -> String {
        "s-" + hex(sha256(offer.id))
    }

    /// Opens the folder with what is held of an offer, for one transfer alone. Before, removes what
    /// has been incomplete for a week.
    func open(_ offer: FileFrame.Offer) throws(FileFailure) -> Descriptor {
        removeOld()
        for _ in 0..<Self.attempts {
            let held = try partial.folder(Self.name(of: offer), mode: 0o700)
            guard held.lock() else {
                throw FileFailure(.isActive, "\(offer.name) is being received already")
            }
            if held.isThere { return held }
        }
        throw FileFailure(.isActive, "\(offer.name) is in use")
    }

    // MARK: - Space

    /// What the transfers of this process may still take in these folders.
    private static let reserved = Locked<[String: UInt64]>([:])

    /// Room for one offer, until the object is released.
    final class Reservation {
        fileprivate let key: String

        fileprivate init(_ key: String) { self.key = key }
        deinit { FileFolder.reserved.withLock { $0[key] = nil } }
    }

    /// Checks that there is room for an offer beside what other transfers may still take.
    func reserve(
        _ offer: FileFrame.Offer, in held: Descriptor
    ) throws(FileFailure) -> Reservation {
        let key = Self.key(held)
        let own = Self.size(of: held)
        var others: UInt64 = 0
        var pending: UInt64 = 0
        for name in try partial.names() where name != Self.name(of: offer) {
            guard let folder = try? partial.open(name, O_RDONLY | O_DIRECTORY) else { continue }
            let size = Self.size(of: folder)
            let reserved = Self.reserved.withLock { $0[Self.key(folder)] } ?? 0
            others.add(max(size, reserved))
            pending.add(reserved.subtracting(size))
        }
        var needed = offer.bytes
        needed.add(offer.files * Self.block)
        others.add(max(own, needed))
        guard others <= rules.quota else {
            throw FileFailure(
                .noSpace, "the quota of \(rules.quota) bytes for this peer does not allow that")
        }
        // What is held needs no more space.
        pending.add(needed.subtracting(own))
        guard pending <= folder.freeSpace.subtracting(Self.leastFree) else {
            throw FileFailure(
                .noSpace, "\(offer.bytes) bytes are offered, and there is too little space")
        }
        Self.reserved.withLock { $0[key] = needed }
        return Reservation(key)
    }

    private static func key(_ folder: Descriptor) -> String {
        folder.status.map { "\($0.st_dev) \($0.st_ino)" } ?? ""
    }

    /// Removes the folder of an offer, and those above it if they are empty.
    func remove(_ offer: FileFrame.Offer, ifEmpty: Bool = false) {
        if ifEmpty {
            partial.remove(Self.name(of: offer), isFolder: true)
        } else {
            Self.removeAll(partial, Self.name(of: offer))
        }
    }

    private func removeOld() {
        var now = timespec()
        unsafe clock_gettime(CLOCK_REALTIME, &now)
        guard let peers = try? own.names() else { return }
        for peer in peers {
            guard let folder = try? own.open(peer, O_RDONLY | O_DIRECTORY),
                let names = try? folder.names()
            else { continue }
            for name in names {
                guard let entry = try? folder.open(name, O_RDONLY),
                    Self.newest(entry) < now.tv_sec - Self.lifetime, entry.lock()
                else { continue }
                Self.removeAll(folder, name)
            }
        }
    }

    /// When a file, or something directly in a folder, was changed last.
    private static func newest(_ entry: Descriptor) -> Int {
        let own = entry.status?.st_ctim.tv_sec ?? 0
        let names = (try? entry.names()) ?? []
        return names.reduce(own) { max($0, entry.status(of: $1)?.st_ctim.tv_sec ?? 0) }
    }

    /// Removes a file, or a folder with all that is in it.
    static func removeAll(_ folder: Descriptor, _ name: String) {
        guard folder.status(of: name)?.isFolder == true else { return folder.remove(name) }
        if let inner = try? folder.open(name, O_RDONLY | O_DIRECTORY),
            let names = try? inner.names()
        {
            for name in names { removeAll(inner, name) }
        }
        folder.remove(name, isFolder: true)
    }

    private static func size(of folder: Descriptor, depth: Int = 0) -> UInt64 {
        guard depth <= FileName.mostParts + 3, let names = try? folder.names() else { return 0 }
        var sum: UInt64 = 0
        for name in names {
            guard let status = folder.status(of: name) else { continue }
            sum.add(block)
            if status.isFolder, let inner = try? folder.open(name, O_RDONLY | O_DIRECTORY) {
                sum.add(size(of: inner, depth: depth + 1))
            } else {
                sum.add(UInt64(max(0, status.st_size)))
            }
        }
        return sum
    }

    // MARK: - Final names

    /// The name under which an offer was stored before, if that is still there.
    func storedName(_ offer: FileFrame.Offer) -> String? {
        guard let note = try? partial.open(Self.noteName(offer), O_RDONLY),
            let bytes = try? note.read(at: 0, atMost: 4_096)
        else { return nil }
        let parts = String(decoding: bytes, as: UTF8.self).split(
            separator: "\n", maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3, parts[0] == Self.hex(offer.version),
            FileName.isAllowed(String(parts[2]), allowsHidden: rules.allowsHidden),
            let status = folder.status(of: String(parts[2])), Self.mark(status) == parts[1]
        else { return nil }
        return String(parts[2])
    }

    /// What tells a file or folder from any other, and from a later version.
    private static func mark(_ status: stat) -> String {
        let place = "\(status.st_dev) \(status.st_ino)"
        guard status.isRegular else { return place }
        return "\(place) \(status.st_size) \(status.st_mtim.tv_sec) \(status.st_mtim.tv_nsec)"
    }

    /// Gives an incomplete file or tree its final name, and returns that. Before, notes that name:
    /// if the sender learns nothing of it, it does not send everything again.
    func publish(
        _ name: String, in held: Descriptor, _ offer: FileFrame.Offer
    ) throws(FileFailure) -> String {
        guard FileName.isAllowed(offer.name, allowsHidden: rules.allowsHidden) else {
            throw FileFailure(.badName, "the name is not allowed")
        }
        guard let status = held.status(of: name) else {
            throw FileFailure(.cannotWrite, "\(offer.name) is gone")
        }
        for number in 1...10_000 {
            let final = number == 1 ? offer.name : FileName.numbered(offer.name, number)
            let existing = folder.status(of: final)
            let replaces =
                rules.overwrites && existing?.isRegular == true && status.isRegular
            if existing != nil, !replaces { continue }
            try writeNote(
                offer, [Self.hex(offer.version), Self.mark(status), final].joined(separator: "\n"))
            if replaces {
                try held.rename(name, to: folder, final)
            } else {
                guard try held.renameNew(name, to: folder, final) else { continue }
            }
            try folder.synchronize()
            remove(offer)
            return final
        }
        throw FileFailure(.cannotWrite, "\(offer.name) exists, with 10,000 numbers")
    }

    private func writeNote(_ offer: FileFrame.Offer, _ text: String) throws(FileFailure) {
        let name = Self.noteName(offer)
        let temporary = name + ".new"
        partial.remove(temporary)
        let note = try partial.open(temporary, O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        try note.write(Array(text.utf8), at: 0)
        try note.synchronize()
        try partial.rename(temporary, to: partial, name)
        try partial.synchronize()
    }
}

extension UInt64 {
    /// Adds, and stays at the greatest number.
    fileprivate mutating func add(_ other: UInt64) {
        let (sum, isTooMuch) = addingReportingOverflow(other)
        self = isTooMuch ? .max : sum
    }

    fileprivate func subtracting(_ other: UInt64) -> UInt64 { self > other ? self - other : 0 }
}
