/// Received files whose bytes are all there, and which are not durable yet.
struct CompleteFiles {
    struct File {
        let entry: FileEntry
        /// The number of the file in the offer.
        let index: Int
        /// Nil if there are so many files that they are not synchronized one by one.
        fileprivate(set) var descriptor: Descriptor?
    }

    private var files: [File] = []
    /// How many times ``tick()`` was called since the oldest file was added.
    private var ticks = 0

    /// The most files that become durable together.
    private static let most = 256
    /// For this many files or more, the whole file system is synchronized instead of each file, so
    /// the files need not stay open.
    static let manyFiles = 8
    /// For how many calls of ``tick()`` a file waits, so that other files become durable with it.
    private static let ticksToWait = 4

    var isFull: Bool { files.count >= Self.most }
    /// The number of the oldest file.
    var firstIndex: Int? { files.first?.index }

    mutating func append(_ file: PartialFile, _ index: Int) {
        files.append(File(entry: file.entry, index: index, descriptor: file.descriptor))
        if files.count >= Self.manyFiles {
            for position in files.indices { files[position].descriptor = nil }
        }
    }

    /// Returns whether the oldest file has waited long enough. Called four times a second.
    mutating func tick() -> Bool {
        ticks = files.isEmpty ? 0 : ticks + 1
        return ticks >= Self.ticksToWait
    }

    /// Returns all files, and removes them.
    mutating func take() -> [File] {
        defer { self = CompleteFiles() }
        return files
    }
}
