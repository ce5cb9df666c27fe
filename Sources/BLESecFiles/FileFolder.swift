internal import CBLESecLinux
internal import BLESecLocking
internal import BLESecPrimitives
internal import Glibc

/// A folder that receives files of one peer. Incomplete files are *held* in its subfolder
/// `.blesec-partial`, under names that depend on the peer and on the offer. Used on one thread.
final class FileFolder {
    struct Rules: Sendable {
        var allowsHidden = false
        var overwrites = false
        /// How many bytes of incomplete files the peer may have here.
        var quota = UInt64.max
    }

    let rules: Rules
    let folder: Descriptor
    /// The folder with the peer's incomplete files, in `allPartial`. Its name is a hash of the
    /// peer's key.
    let partial: Descriptor
    /// The folder with the incomplete files of all peers.
    private let allPartial: Descriptor

    /// How long incomplete files, and notes about stored ones, are kept after their last change, in
    /// seconds.
    private static let lifetime = 7 * 86_400
    /// How many bytes of the file system a transfer always leaves free.
    private static let leastFree: UInt64 = 16 << 20
    /// How many bytes of space each file and folder is assumed to take in addition to a file's
    /// content.
    static let block: UInt64 = 4_096

    init(_ path: String, from peer: [UInt8], _ rules: Rules) throws(FileFailure) {
        self.rules = rules
        folder = try Descriptor.open(path, O_RDONLY | O_DIRECTORY)
        for _ in 0..<Self.attempts {
            let allPartial = try Self.privateFolder(FileName.partialFolder, in: folder, path)
            // Another transfer may be removing the empty folder at this moment.
            guard try allPartial.lockShared(), allPartial.hasPath else {
                // A blocking wait is right here: the removal takes only a few system calls, and
                // this thread has nothing else to do.
                usleep(10_000)
                continue
            }
            guard try Self.checkIsPrivate(allPartial, path) else { break }
            self.allPartial = allPartial
            partial = try Self.privateFolder(
                Self.hex(sha256(peer)), in: allPartial, "\(path)/\(FileName.partialFolder)")
            guard try Self.checkIsPrivate(partial, path) else { break }
            return
        }
        throw FileFailure(.cannotWrite, "\(path)/\(FileName.partialFolder) is in use")
    }

    private static let attempts = 200

    /// Opens or makes a folder that only this user may enter. An error names its path: `path` is
    /// that of `parent`.
    private static func privateFolder(
        _ name: String, in parent: Descriptor, _ path: String
    ) throws(FileFailure) -> Descriptor {
        do throws(FileFailure) {
            return try parent.folder(name, mode: 0o700)
        } catch {
            throw FileFailure(error.problem, "\(path)/\(error.text)")
        }
    }

    /// Throws if other users may change a folder of incomplete files. They could redirect or replace
    /// the files. Where others may change the receiving folder, they can also give a folder of
    /// this user's the name of such a folder. Returns false if the folder is gone.
    private static func checkIsPrivate(
        _ folder: Descriptor, _ path: String
    ) throws(FileFailure) -> Bool {
        guard let status = folder.status else { return false }
        guard status.st_uid == geteuid() else {
            throw FileFailure(
                .cannotWrite, "\(path)/\(FileName.partialFolder) belongs to another user")
        }
        guard !status.isOpenToChanges || !keepsModes(folder) else {
            throw FileFailure(
                .cannotWrite,
                "\(path)/\(FileName.partialFolder), or a folder in it, can be changed by other "
                    + "users: move it away, or run `chmod -R go-w "
                    + "\(path)/\(FileName.partialFolder)`")
        }
        return true
    }

    /// Whether the file system of a folder keeps modes; some, such as exFAT, give all files the same
    /// one. Makes a file, and reads its mode from the descriptor, so that nobody can replace the
    /// file in between.
    private static func keepsModes(_ folder: Descriptor) -> Bool {
        let name = "mode-" + hex((0..<16).map { _ in UInt8.random(in: 0...255) })
        guard let file = try? folder.open(name, O_WRONLY | O_CREAT | O_EXCL, mode: 0o600) else {
            return true
        }
        folder.remove(name)
        return file.status.map { $0.st_mode & 0o077 == 0 } ?? true
    }

    /// Removes the notes about the stored offers with these ids, and then what ``removeEmpty()``
    /// removes.
    func forget(_ ids: Set<[UInt8]>) {
        for id in ids { partial.remove(Self.noteName(id)) }
        removeEmpty()
    }

    /// Removes the folders of incomplete files that are empty, those of other peers too, if no
    /// other transfer uses any of them. After this call, the object is not used any more.
    func removeEmpty() {
        // A transfer that makes or uses a peer's folder has a shared lock.
        if (try? allPartial.lock()) == true {
            for peer in (try? allPartial.names()) ?? [] where Self.isHash(peer) {
                allPartial.remove(peer, isFolder: true)
            }
            folder.remove(FileName.partialFolder, isFolder: true)
        }
        // If the locks lasted longer, two transfers that end at once could keep each other from
        // removing the folders.
        allPartial.unlock()
    }

    /// The first 16 bytes in hexadecimal digits.
    static func hex(_ bytes: [UInt8]) -> String {
        String(
            decoding: bytes.prefix(16).flatMap {
                [digitsOfHex[Int($0 >> 4)], digitsOfHex[Int($0 & 15)]]
            }, as: UTF8.self)
    }
    private static let digitsOfHex = Array("0123456789abcdef".utf8)

    /// Whether a name is a hash as ``hex(_:)`` writes it.
    private static func isHash(_ name: some StringProtocol) -> Bool {
        name.utf8.count == 32 && name.utf8.allSatisfy { digitsOfHex.contains($0) }
    }

    /// Whether this is the name of an offer's folder, or of a note.
    static func isOfOffer(_ name: String) -> Bool {
        guard name.hasPrefix(folderPrefix) || name.hasPrefix(notePrefix) else { return false }
        let hash = name.dropFirst(folderPrefix.count)
        return isHash(hash.hasSuffix(newSuffix) ? hash.dropLast(newSuffix.count) : hash)
    }

    /// The name of an incomplete file.
    static func partialName(_ entry: FileEntry) -> String {
        let mode = entry.isExecutable ? "x" : "-"
        let text = "\(mode) \(entry.size) \(entry.seconds) \(entry.nanoseconds) \(entry.path)"
        return "f-" + hex(sha256(Array(text.utf8)))
    }

    /// The name of the folder in which a tree is assembled.
    static let tree = "tree"
    /// The name of an offer's folder.
    private static func folderName(_ offer: FileFrame.Offer) -> String {
        folderPrefix + hex(sha256(offer.id))
    }
    /// The name of the note about the stored offer with this id.
    private static func noteName(_ id: [UInt8]) -> String { notePrefix + hex(sha256(id)) }
    private static let folderPrefix = "o-"
    private static let notePrefix = "s-"
    /// The end of the name of a note that is being written.
    private static let newSuffix = ".new"

    /// Opens the folder with what is held of an offer, and locks it for one transfer. First removes
    /// what has not changed for a week: incomplete files and notes, of all peers.
    func open(_ offer: FileFrame.Offer) throws(FileFailure) -> Descriptor {
        removeOld()
        for _ in 0..<Self.attempts {
            let held = try partial.folder(Self.folderName(offer), mode: 0o700)
            guard try held.lock() else {
                throw FileFailure(.isActive, "\(offer.name) is being received already")
            }
            if held.hasPath { return held }
        }
        throw FileFailure(.isActive, "\(offer.name) is in use")
    }

    // MARK: - Space

    /// The bytes that a transfer may take in all, and the folder with what has arrived of it.
    private struct Reserved {
        var bytes: UInt64
        let folder: Descriptor
    }

    /// What the transfers of this process may take, by the ``key(_:)`` of their folders.
    private static let reserved = Locked<[String: Reserved]>([:])

    /// The space that one offer may take, until the object is released. Used on one thread.
    ///
    /// At first, the space is what the offer announces, or what is held if that is more. A tree
    /// needs more space for its folders, and for held files that are no longer part of it. Such
    /// space is reserved before it is used.
    final class Reservation {
        private let folder: FileFolder
        /// The name of the offer's folder.
        private let folderName: String
        private let key: String
        /// The bytes that were offered, and those of the folders that were made.
        private var offered: UInt64
        /// The bytes that were held at the beginning, and those of each file and folder that was
        /// added since. They are more than `offered` if something held is not part of the offer.
        private var expected: UInt64
        /// The bytes that were reserved at the beginning.
        private let initiallyGranted: UInt64
        /// The bytes that are reserved now.
        private var granted: UInt64
        /// Before this time, more space is refused without measuring the room again.
        private var exhaustedUntil: ContinuousClock.Instant?
        /// Whether more space was refused.
        private(set) var hasRefused = false
        /// Returns how many bytes of the announced files are still to be written, with ``block``
        /// for each file that does not exist yet.
        var unwritten: () -> UInt64 = { 0 }

        /// Reserves the greater of `offered` and what is in `held` already.
        fileprivate init(
            _ folder: FileFolder, _ folderName: String, offered: UInt64, in held: Descriptor
        ) throws(FileFailure) {
            self.folder = folder
            self.folderName = folderName
            key = FileFolder.key(held)
            self.offered = offered
            expected = FileFolder.size(of: held)
            initiallyGranted = max(offered, expected)
            granted = initiallyGranted
            // A separate descriptor: if the reservation kept `held` open, the transfer's lock would
            // last as long as the reservation.
            let reserved = Reserved(
                bytes: granted, folder: try held.open(".", O_RDONLY | O_DIRECTORY))
            FileFolder.reserved.withLock { $0[key] = reserved }
        }

        deinit { FileFolder.reserved.withLock { $0[key] = nil } }

        /// Checks that there is room. If the quota has too little room for what `held` contains,
        /// but enough for the offer, first removes what `held` contains.
        fileprivate func check(_ held: Descriptor) throws(FileFailure) {
            let room = try folder.room(forOffer: folderName, key)
            if expected > room.inQuota, offered <= room.inQuota { try removeAll(in: held) }
            try folder.require(granted, in: room)
        }

        /// Removes everything that earlier transfers have left in `held`.
        func removeAll(in held: Descriptor) throws(FileFailure) {
            for name in try held.names() { FileFolder.removeAll(held, name) }
            expected = 0
            reserve(offered)
        }

        /// Adds a file of which `bytes` are still to be written. `isNew` is false if a part of it
        /// is held.
        func addFile(_ bytes: UInt64, isNew: Bool) throws(FileFailure) {
            var sum = bytes
            if isNew { sum.add(FileFolder.block) }
            try require(sum)
        }

        /// Adds a folder; an offer does not say how many folders it has.
        func addFolder() throws(FileFailure) {
            try require(FileFolder.block, beyondOffer: FileFolder.block)
            offered.add(FileFolder.block)
        }

        /// Adds `bytes` to `expected`, if there is room. `extra` of them were not offered.
        private func require(
            _ bytes: UInt64, beyondOffer extra: UInt64 = 0
        ) throws(FileFailure) {
            var newOffered = offered
            newOffered.add(extra)
            var newExpected = expected
            newExpected.add(bytes)
            if granted < max(newOffered, newExpected) {
                if let time = exhaustedUntil, ContinuousClock.now < time { throw refuse() }
                // Counted anew, since `expected` still includes what was replaced meanwhile.
                expected = folder.heldSize(key)
                expected.add(unwritten())
                newExpected = expected
                newExpected.add(bytes)
                try grow(to: max(newOffered, newExpected))
            }
            expected = newExpected
        }

        /// Reserves `least` bytes. If there is room, reserves more, because measuring the room is
        /// slow.
        private func grow(to least: UInt64) throws(FileFailure) {
            guard granted < least else { return }
            let old = granted
            var wanted = least
            wanted.add(max(64 * FileFolder.block, least.subtracting(initiallyGranted) / 2))
            // The space is reserved before the room is measured, so that each of two transfers that
            // grow at the same time sees what the other has reserved.
            reserve(wanted)
            let room = try folder.room(forOffer: folderName, key)
            let available = min(room.inQuota, room.onDisk)
            guard least <= available else {
                reserve(old)
                exhaustedUntil = .now + Self.pause
                throw refuse()
            }
            // Half of the spare room is left for other transfers.
            reserve(min(wanted, least + (available - least) / 2))
        }

        /// How long after a refusal the room is not measured again.
        private static let pause: Duration = .milliseconds(250)

        /// Records that more space was refused, and returns the error.
        private func refuse() -> FileFailure {
            hasRefused = true
            return FileFailure(.noSpace, "the quota or the free space does not allow more")
        }

        private func reserve(_ bytes: UInt64) {
            granted = bytes
            FileFolder.reserved.withLock { $0[key]?.bytes = bytes }
        }
    }

    /// Reserves the space for an offer, if there is enough besides the space that all other
    /// transfers of this process may take.
    func reserve(
        _ offer: FileFrame.Offer, in held: Descriptor
    ) throws(FileFailure) -> Reservation {
        var offered = offer.bytes
        // A tree has a folder of its own.
        offered.add((offer.files + (offer.isFolder ? 1 : 0)) * Self.block)
        // An offer that is too large by itself must not take the space of other transfers, not even
        // until it is refused.
        var available = try room(forOffer: Self.folderName(offer), Self.key(held))
        available.onDisk.add(Self.size(of: held))
        try require(offered, in: available)
        let reservation = try Reservation(
            self, Self.folderName(offer), offered: offered, in: held)
        try reservation.check(held)
        return reservation
    }

    private func require(
        _ bytes: UInt64, in room: (inQuota: UInt64, onDisk: UInt64)
    ) throws(FileFailure) {
        guard bytes <= room.inQuota else {
            throw FileFailure(
                .noSpace, "the quota of \(rules.quota) bytes for this peer does not allow that")
        }
        guard bytes <= room.onDisk else {
            throw FileFailure(
                .noSpace, "\(bytes) bytes are needed, and there is too little space")
        }
    }

    /// How many bytes an offer may take in all, by the peer's quota and by the free space of the
    /// file system. `folderName` is the name of the offer's folder, and `key` its ``key(_:)``.
    private func room(
        forOffer folderName: String, _ key: String
    ) throws(FileFailure) -> (inQuota: UInt64, onDisk: UInt64) {
        let reserved = Self.reserved.withLock { $0 }
        var otherOffers: UInt64 = 0
        for other in try partial.names()
        where other != folderName && other.hasPrefix(Self.folderPrefix) {
            guard let folder = try? partial.open(other, O_RDONLY | O_DIRECTORY) else { continue }
            otherOffers.add(max(Self.size(of: folder), reserved[Self.key(folder)]?.bytes ?? 0))
        }
        var onDisk = folder.freeSpace.subtracting(Self.leastFree)
        let device = folder.status?.st_dev
        for (otherKey, entry) in reserved
        where otherKey != key && entry.folder.status?.st_dev == device {
            onDisk = onDisk.subtracting(entry.bytes.subtracting(Self.currentSize(of: entry)))
        }
        if let entry = reserved[key] { onDisk.add(Self.currentSize(of: entry)) }
        return (rules.quota.subtracting(otherOffers), onDisk)
    }

    /// The bytes that the transfer with this key has on the disk now.
    private func heldSize(_ key: String) -> UInt64 {
        Self.reserved.withLock { $0[key] }.map { Self.currentSize(of: $0) } ?? 0
    }

    private static func currentSize(of entry: Reserved) -> UInt64 {
        size(of: entry.folder)
    }

    /// The device and inode of a folder.
    private static func key(_ folder: Descriptor) -> String {
        folder.status.map { "\($0.st_dev) \($0.st_ino)" } ?? ""
    }

    /// Removes the folder of an offer with all that is in it.
    func remove(_ offer: FileFrame.Offer) { Self.removeAll(partial, Self.folderName(offer)) }

    /// Removes `held`, the folder of an offer, if nothing is in it but an empty tree.
    func removeIfEmpty(_ offer: FileFrame.Offer, _ held: Descriptor) {
        held.remove(Self.tree, isFolder: true)
        // The folder stays locked until it is removed, so that no other transfer begins to use it.
        // If it is removed already, its name may be that of another transfer's folder by now.
        if held.hasPath { partial.remove(Self.folderName(offer), isFolder: true) }
    }

    private func removeOld() {
        var now = timespec()
        unsafe clock_gettime(CLOCK_REALTIME, &now)
        guard let peers = try? allPartial.names() else { return }
        for peer in peers where Self.isHash(peer) {
            guard let folder = try? allPartial.open(peer, O_RDONLY | O_DIRECTORY),
                let names = try? folder.names()
            else { continue }
            for name in names where Self.isOfOffer(name) {
                let limit = now.tv_sec - Self.lifetime
                // Most entries are young, and need not be opened.
                guard let status = folder.status(of: name), status.st_ctim.tv_sec < limit,
                    let entry = try? folder.open(name, O_RDONLY),
                    Self.lastChange(of: entry) < limit, (try? entry.lock()) == true
                else { continue }
                Self.removeAll(folder, name)
            }
        }
    }

    /// The time of the last change of a file, in seconds since 1970. For a folder, changes of the
    /// files and folders directly in it count, too.
    private static func lastChange(of entry: Descriptor) -> Int {
        let ownChange = entry.status?.st_ctim.tv_sec ?? 0
        let names = (try? entry.names()) ?? []
        return names.reduce(ownChange) { max($0, entry.status(of: $1)?.st_ctim.tv_sec ?? 0) }
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

    /// The bytes of all files in a folder and below it, with ``block`` for each file and folder.
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

    /// The name under which an offer was stored before; nil unless the same file or folder still
    /// has that name, and is as it was stored.
    func storedName(_ offer: FileFrame.Offer) -> String? {
        guard let note = try? partial.open(Self.noteName(offer.id), O_RDONLY),
            let bytes = try? note.read(at: 0, atMost: 4_096)
        else { return nil }
        let parts = String(decoding: bytes, as: UTF8.self).split(
            separator: "\n", maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3 else { return nil }
        let (summary, attributes, name) = (parts[0], parts[1], String(parts[2]))
        guard summary == Self.summary(offer),
            FileName.isAllowed(name, allowsHidden: rules.allowsHidden),
            (try? Self.attributes(of: name, in: folder)) == String(attributes)
        else { return nil }
        return name
    }

    /// What a note records of the offer: a hash of all that it announces, since the peer chooses
    /// the version.
    private static func summary(_ offer: FileFrame.Offer) -> String {
        let kind = offer.isFolder ? "folder" : "file"
        let text = "\(kind) \(offer.files) \(offer.bytes) \(offer.name)"
        return hex(sha256(offer.version + Array(text.utf8)))
    }

    /// What a note records of a file or folder, besides its name: the device and inode; for a file
    /// also the size and time, which distinguish it from a later version; for a folder a hash of
    /// its contents' names, sizes and times.
    private static func attributes(
        of name: String, in folder: Descriptor
    ) throws(FileFailure) -> String {
        guard let status = folder.status(of: name) else {
            throw FileFailure(.cannotWrite, "\(name) is gone")
        }
        let inode = "\(status.st_dev) \(status.st_ino)"
        guard status.isFolder else { return "\(inode) \(sizeAndTime(status))" }
        var hash = HashContext(.sha256)
        let inner = try folder.open(name, O_RDONLY | O_DIRECTORY)
        try addContents(of: inner, "", to: &hash)
        return "\(inode) \(hex(hash.finished()))"
    }

    private static func sizeAndTime(_ status: stat) -> String {
        "\(status.st_size) \(status.st_mtim.tv_sec) \(status.st_mtim.tv_nsec)"
    }

    /// Adds the paths of all files and folders in a folder and below it, and each file's size and
    /// time.
    private static func addContents(
        of folder: Descriptor, _ prefix: String, to hash: inout HashContext, depth: Int = 0
    ) throws(FileFailure) {
        guard depth <= FileName.mostParts else {
            throw FileFailure(.other, "\(prefix) is too deep")
        }
        for name in try folder.names() {
            guard let status = folder.status(of: name) else { continue }
            let path = "\(prefix)/\(name)"
            guard status.isFolder else {
                hash.update(Array("file \(sizeAndTime(status)) \(path)\n".utf8))
                continue
            }
            hash.update(Array("folder \(path)\n".utf8))
            let inner = try folder.open(name, O_RDONLY | O_DIRECTORY)
            try addContents(of: inner, path, to: &hash, depth: depth + 1)
        }
    }

    /// Gives a complete file or tree its final name, and returns that name. First writes a note
    /// with the name, so that the sender need not send everything again if the answer `done` is
    /// lost. If the name cannot be made durable, takes it back, unless a file was replaced.
    func publish(
        _ name: String, in held: Descriptor, _ offer: FileFrame.Offer
    ) throws(FileFailure) -> String {
        guard FileName.isAllowed(offer.name, allowsHidden: rules.allowsHidden) else {
            throw FileFailure(.badName, "the name is not allowed")
        }
        guard let status = held.status(of: name) else {
            throw FileFailure(.cannotWrite, "\(offer.name) is gone")
        }
        let attributes = try Self.attributes(of: name, in: held)
        for number in 1...10_000 {
            let finalName = number == 1 ? offer.name : FileName.numbered(offer.name, number)
            let existing = folder.status(of: finalName)
            // A numbered name is not the name that was sent, so nothing under it is replaced.
            let replaces =
                rules.overwrites && number == 1 && existing?.isRegular == true && status.isRegular
            if existing != nil, !replaces { continue }
            try writeNote(
                offer, [Self.summary(offer), attributes, finalName].joined(separator: "\n"))
            if replaces {
                try held.rename(name, to: folder, finalName)
            } else {
                guard try held.renameNoReplace(name, to: folder, finalName) else { continue }
            }
            do throws(FileFailure) {
                try folder.synchronize()
            } catch {
                // The transfer fails, so the final name is taken back. A file that was replaced
                // cannot be restored, and the new file stays.
                if !replaces { _ = try? folder.renameNoReplace(finalName, to: held, name) }
                throw error
            }
            remove(offer)
            return finalName
        }
        throw FileFailure(.cannotWrite, "\(offer.name) exists, and so do all its numbered names")
    }

    private func writeNote(_ offer: FileFrame.Offer, _ text: String) throws(FileFailure) {
        let name = Self.noteName(offer.id)
        let temporary = name + Self.newSuffix
        partial.remove(temporary)
        let note = try partial.open(temporary, O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        try note.write(Array(text.utf8), at: 0)
        try note.synchronize()
        try partial.rename(temporary, to: partial, name)
        try partial.synchronize()
    }
}

extension UInt64 {
    /// Adds; a sum that is too large becomes the greatest number.
    fileprivate mutating func add(_ other: UInt64) {
        let (sum, isTooMuch) = addingReportingOverflow(other)
        self = isTooMuch ? .max : sum
    }

    /// The difference; 0 if it would be negative.
    fileprivate func subtracting(_ other: UInt64) -> UInt64 { self > other ? self - other : 0 }
}
