internal import BLESecLocking
internal import CBLESecLinux

/// The space that is reserved for one offer until the object is released. Used on one thread.
///
/// At first, the space is what the offer announces, or what is held if that is more. A tree needs
/// more space for its folders, and for held files that are no longer part of it. Such space is
/// reserved before it is used.
final class SpaceReservation {
    /// Whether more space was refused.
    private(set) var hasRefused = false
    /// Returns how many bytes of the announced files are still to be written, plus ``block`` for
    /// each file that does not exist yet.
    var unwritten: () -> UInt64 = { 0 }

    /// How many bytes of space each file and folder is assumed to take in addition to a file's
    /// content.
    static let block: UInt64 = 4_096
    /// How many bytes of the file system a transfer always leaves free.
    private static let leastFree: UInt64 = 16 << 20
    /// How long after a refusal the room is not measured again.
    private static let pause: Duration = .milliseconds(250)

    /// What one transfer may take.
    private struct Entry {
        /// How many bytes the transfer may take in all, with what is held.
        var bytes: UInt64
        /// The offer's folder.
        let held: Descriptor
        /// How many bytes are in the offer's folder now.
        var heldBytes: UInt64 { SpaceReservation.size(of: held) }
    }

    /// What the transfers of this process may take, by the ``key(of:)`` of their folders.
    private static let all = Locked<[String: Entry]>([:])

    /// The folder that receives files.
    private let folder: Descriptor
    /// The folder with the peer's incomplete files.
    private let peerFolder: Descriptor
    /// How many bytes the peer's incomplete files may take.
    private let quota: UInt64
    /// The offer's folder.
    private let held: Descriptor
    /// The name of the offer's folder.
    private let heldName: String
    /// The ``key(of:)`` of the offer's folder.
    private let key: String
    /// The bytes that were offered, and those of the folders that were made.
    private var offered: UInt64
    /// The bytes that were held at the beginning, and those of each file and folder that was added
    /// since. They are more than `offered` if something held is not part of the offer.
    private var expected: UInt64
    /// The bytes that were reserved at the beginning.
    private let initiallyGranted: UInt64
    /// The bytes that are reserved now.
    private var granted: UInt64
    /// Before this time, more space is refused without measuring the room again.
    private var exhaustedUntil: ContinuousClock.Instant?

    /// Reserves the greater of what is offered and what is held already in `held`, the offer's
    /// folder. If the quota has too little room for what is held, but enough for the offer, first
    /// removes what is held. Throws if the space does not fit into the quota together with the
    /// peer's other offers, or onto the disk together with what the other transfers of this process
    /// may take.
    init(
        _ offer: FileFrame.Offer, held: Descriptor, of fileFolder: FileFolder
    ) throws(FileFailure) {
        (folder, peerFolder, quota) = (
            fileFolder.folder, fileFolder.peerFolder, fileFolder.rules.quota
        )
        // A separate descriptor: if the reservation kept `held` open, the transfer's lock would
        // last as long as the reservation.
        self.held = try held.open(".", O_RDONLY | O_DIRECTORY)
        (heldName, key) = (HeldName.ofOffer(offer), Self.key(of: held))
        // A tree takes one block more, for the folder in which it is assembled.
        offered = offer.bytes
        offered.add((offer.files + (offer.isFolder ? 1 : 0)) * Self.block)
        expected = Self.size(of: held)
        initiallyGranted = max(offered, expected)
        granted = initiallyGranted
        // An offer that is too large by itself must not take the space of other transfers, not even
        // until it is refused.
        var available = try room()
        available.onDisk.add(expected)
        try require(offered, in: available)
        let entry = Entry(bytes: granted, held: self.held)
        Self.all.withLock { $0[key] = entry }
        let room = try room()
        if expected > room.inQuota, offered <= room.inQuota { try removeHeld() }
        try require(granted, in: room)
    }

    deinit {
        // The next transfer of the same offer may have put its entry there already.
        Self.all.withLock { if $0[key]?.held === held { $0[key] = nil } }
    }

    private func require(
        _ bytes: UInt64, in room: (inQuota: UInt64, onDisk: UInt64)
    ) throws(FileFailure) {
        guard bytes <= room.inQuota else {
            throw FileFailure(
                .noSpace, "the quota of \(quota) bytes for this peer does not allow that")
        }
        guard bytes <= room.onDisk else {
            throw FileFailure(
                .noSpace, "\(bytes) bytes are needed, and there is too little space")
        }
    }

    /// Removes everything that earlier transfers have left of the offer.
    func removeHeld() throws(FileFailure) {
        for name in try held.names() { held.removeAll(name) }
        expected = 0
        reserve(offered)
    }

    // MARK: - More space

    /// Adds a file of which `bytes` are still to be written. `isNew` is false if a part of it is
    /// held.
    func addFile(_ bytes: UInt64, isNew: Bool) throws(FileFailure) {
        var sum = bytes
        if isNew { sum.add(Self.block) }
        try require(sum)
    }

    /// Adds a folder; an offer does not say how many folders it has.
    func addFolder() throws(FileFailure) {
        try require(Self.block, beyondOffer: Self.block)
        offered.add(Self.block)
    }

    /// Adds `bytes` to `expected`, if there is room. `extra` of them were not offered.
    private func require(_ bytes: UInt64, beyondOffer extra: UInt64 = 0) throws(FileFailure) {
        var newOffered = offered
        newOffered.add(extra)
        var newExpected = expected
        newExpected.add(bytes)
        if granted < max(newOffered, newExpected) {
            if let time = exhaustedUntil, ContinuousClock.now < time { throw refuse() }
            // Counted anew, since `expected` still includes what was replaced meanwhile.
            expected = Self.size(of: held)
            expected.add(unwritten())
            newExpected = expected
            newExpected.add(bytes)
            try grow(to: max(newOffered, newExpected))
        }
        expected = newExpected
    }

    /// Reserves `least` bytes. If there is room, reserves more, because measuring the room is slow.
    private func grow(to least: UInt64) throws(FileFailure) {
        guard granted < least else { return }
        let old = granted
        // Half of the growth so far is added, so that the room is measured less and less often.
        var wanted = least
        wanted.add(max(64 * Self.block, least.subtracting(initiallyGranted) / 2))
        // The space is reserved before the room is measured, so that each of two transfers that
        // grow at the same time sees what the other has reserved.
        reserve(wanted)
        let room = try room()
        let available = min(room.inQuota, room.onDisk)
        guard least <= available else {
            reserve(old)
            exhaustedUntil = .now + Self.pause
            throw refuse()
        }
        // Half of the spare room is left for other transfers.
        reserve(min(wanted, least + (available - least) / 2))
    }

    /// Records that more space was refused, and returns the error.
    private func refuse() -> FileFailure {
        hasRefused = true
        return FileFailure(.noSpace, "the quota or the free space does not allow more")
    }

    private func reserve(_ bytes: UInt64) {
        granted = bytes
        Self.all.withLock { $0[key]?.bytes = bytes }
    }

    // MARK: - The room

    /// How many bytes the offer may take in all, by the peer's quota and by the free space of the
    /// file system.
    private func room() throws(FileFailure) -> (inQuota: UInt64, onDisk: UInt64) {
        let all = Self.all.withLock { $0 }
        var otherOffers: UInt64 = 0
        for other in try peerFolder.names(withPrefix: HeldName.offerPrefix)
        where other != heldName {
            guard let folder = try? peerFolder.open(other, O_RDONLY | O_DIRECTORY) else { continue }
            otherOffers.add(max(Self.size(of: folder), all[Self.key(of: folder)]?.bytes ?? 0))
        }
        var onDisk = folder.freeSpace.subtracting(Self.leastFree)
        let device = folder.status?.st_dev
        for (otherKey, entry) in all where otherKey != key && entry.held.status?.st_dev == device {
            onDisk = onDisk.subtracting(entry.bytes.subtracting(entry.heldBytes))
        }
        if let entry = all[key] { onDisk.add(entry.heldBytes) }
        return (quota.subtracting(otherOffers), onDisk)
    }

    /// The device and inode of a folder.
    private static func key(of folder: Descriptor) -> String {
        folder.status.map { "\($0.st_dev) \($0.st_ino)" } ?? ""
    }

    /// The bytes of all files in a folder and below it, plus ``block`` for each file and folder.
    private static func size(of folder: Descriptor, depth: Int = 0) -> UInt64 {
        guard depth <= FileName.mostParts + 3, let names = try? folder.names(withPrefix: "") else {
            return 0
        }
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
