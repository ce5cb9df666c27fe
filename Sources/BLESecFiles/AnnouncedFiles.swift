/// The files of an offer that were announced and have not ended, and how much was announced in all.
struct AnnouncedFiles {
    /// These files, in the order of the offer. `start` is the offset from which the peer sends the
    /// file; nil if the peer sends no data of the file.
    private(set) var waiting: [(entry: FileEntry, start: UInt64?)] = []
    /// How many files have ended. It is the number, in the offer, of the first file in ``waiting``.
    private(set) var firstIndex = 0
    private let offer: FileFrame.Offer
    /// How many files were announced in all.
    private var files: UInt64 = 0
    /// How many folders were announced in all.
    private var folders = 0
    /// How many bytes the files have that were announced in all.
    private var bytes: UInt64 = 0

    init(of offer: FileFrame.Offer) { self.offer = offer }

    var first: (entry: FileEntry, start: UInt64?)? { waiting.first }

    /// Counts a file, and returns its number. Throws if more files or bytes are announced than were
    /// offered, if a single file has another size than was offered, or if too many files are
    /// waiting.
    mutating func countFile(_ entry: FileEntry) throws(FileViolation) -> Int {
        guard waiting.count < FileFrame.mostAnnounced else {
            throw FileViolation("too many files at once")
        }
        let (sum, isTooMuch) = bytes.addingReportingOverflow(entry.size)
        guard files < offer.files, !isTooMuch, sum <= offer.bytes,
            offer.isFolder || entry.size == offer.bytes
        else { throw FileViolation("more files or bytes than were offered") }
        bytes = sum
        files += 1
        return Int(files) - 1
    }

    /// Counts a folder. An offer does not say how many folders it has.
    mutating func countFolder() throws(FileViolation) {
        guard offer.isFolder else { throw FileViolation("a folder that was not offered") }
        folders += 1
        guard folders <= FileSource.mostEntries else { throw FileViolation("too many folders") }
    }

    /// Adds a file that was counted.
    mutating func append(_ entry: FileEntry, from start: UInt64?) {
        waiting.append((entry, start))
    }

    /// Removes the first file, which has ended.
    mutating func removeFirst() {
        waiting.removeFirst()
        firstIndex += 1
    }

    /// Removes the first files as long as the peer sends no data of them.
    mutating func removeWithoutData() {
        while let first, first.start == nil { removeFirst() }
    }

    /// How many bytes of these files are still to be written if the first file has not begun, plus
    /// ``SpaceReservation/block`` for each file that does not exist yet.
    var unwritten: UInt64 { Self.unwritten(of: waiting[...]) }
    /// The number ``unwritten`` without the first file's share.
    var unwrittenAfterFirst: UInt64 { Self.unwritten(of: waiting.dropFirst()) }

    private static func unwritten(of files: ArraySlice<(entry: FileEntry, start: UInt64?)>)
        -> UInt64
    {
        files.reduce(0) { sum, file in
            guard let start = file.start else { return sum }
            return sum + file.entry.size - start + (start == 0 ? SpaceReservation.block : 0)
        }
    }
}
