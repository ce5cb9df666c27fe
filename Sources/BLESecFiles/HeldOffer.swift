internal import CBLESecLinux
internal import Glibc

/// The folder of an offer, which contains what is *held* of it: the incomplete files that this or
/// an earlier transfer has left there, and the tree until it gets its final name. Used on one
/// thread.
final class HeldOffer {
    let reservation: SpaceReservation
    private let offer: FileFrame.Offer
    private let folder: FileFolder
    /// The offer's folder.
    private let descriptor: Descriptor
    /// Nil if the offer is a single file.
    private let tree: TreeFolder?
    /// Whether nothing of the offer was held before.
    private let isFresh: Bool
    /// The names of the files that were held before and are not announced yet.
    private var unannounced: Set<String>

    /// For this many files or more, or this many folders or more, the whole file system is
    /// synchronized instead of each file or folder.
    private static let manyFiles = CompleteFiles.manyFiles

    /// Reserves the space for the offer. `descriptor` is the offer's folder.
    init(
        _ descriptor: Descriptor, _ offer: FileFrame.Offer, in folder: FileFolder
    ) throws(FileFailure) {
        self.descriptor = descriptor
        self.offer = offer
        self.folder = folder
        reservation = try SpaceReservation(offer, held: descriptor, of: folder)
        let names = Set(try descriptor.names())
        isFresh = names.isEmpty
        unannounced = names.subtracting([HeldName.tree])
        tree =
            offer.isFolder
            ? TreeFolder(
                try descriptor.folder(HeldName.tree, mode: 0o777), isFresh: isFresh, reservation)
            : nil
    }

    /// Removes the offer's folder if it holds nothing for a later transfer. After this call, the
    /// object is not used any more.
    func close() { folder.removeIfEmpty(offer, descriptor) }

    // MARK: - Incomplete files

    /// The offset from which the peer has to send a file; nil if the file is in the tree already.
    func prepare(_ entry: FileEntry, _ parts: [String]) throws(FileFailure) -> UInt64? {
        let name = HeldName.ofFile(entry)
        unannounced.remove(name)
        if let tree, try tree.addFile(entry, parts, held: descriptor, partialName: name) {
            return nil
        }
        guard !isFresh, let status = descriptor.status(of: name) else {
            // What is held of another version of a single file is of no use.
            if !isFresh, !offer.isFolder { try reservation.removeHeld() }
            try reservation.addFile(entry.size, isNew: true)
            return 0
        }
        // Two kinds of held files are not used. If an earlier process ended between the two steps
        // of a rename by `linkat`, the held file is a second link to a stored file. And for a small
        // file of a tree, to compare what is held takes longer than to send the file again.
        guard status.isRegular, status.st_nlink == 1,
            !offer.isFolder || entry.size >= TreeFolder.leastCompared
        else {
            descriptor.remove(name)
            try reservation.addFile(entry.size, isNew: true)
            return 0
        }
        let start = min(entry.size, UInt64(max(0, status.st_size)))
        try reservation.addFile(entry.size - start, isNew: false)
        return start
    }

    /// Opens a file that was prepared, in order to write from this offset.
    func open(_ entry: FileEntry, from start: UInt64) throws(FileFailure) -> PartialFile {
        // Other users cannot open the offer's folder, so the file gets its final mode now.
        let mode: mode_t = entry.isExecutable ? 0o777 : 0o666
        let name = HeldName.ofFile(entry)
        let file = try descriptor.open(name, O_RDWR | O_CREAT, mode: mode)
        if !isFresh {
            guard let status = file.status, status.isRegular, status.st_size >= Int(start) else {
                throw FileFailure(.cannotWrite, "what was held is gone")
            }
            try file.setLength(start)
        }
        return PartialFile(file, entry, from: start)
    }

    /// Removes what is held of a file.
    func remove(_ entry: FileEntry) { descriptor.remove(HeldName.ofFile(entry)) }

    /// If more space was needed than there was, removes what is held but is not part of the offer,
    /// to free space for the next transfer. Called when everything was announced.
    func removeUnannouncedIfNeeded() {
        guard reservation.hasRefused else { return }
        for name in unannounced { descriptor.remove(name) }
        unannounced = []
        // If this fails, the next transfer has less space.
        try? tree?.removeOthers()
    }

    // MARK: - Storing

    /// Makes a folder of the tree.
    func makeFolder(_ path: String, _ parts: [String]) throws(FileFailure) {
        try tree?.makeFolder(path, parts)
    }

    /// Makes a single file durable, and gives it its final name. Returns that name.
    func publish(_ file: CompleteFiles.File) throws(FileFailure) -> String {
        try synchronize([file])
        return try folder.publish(HeldName.ofFile(file.entry), in: descriptor, offer)
    }

    /// Makes files durable, and moves them to their places in the tree. Returns those that failed.
    func storeInTree(_ files: [CompleteFiles.File]) -> [(CompleteFiles.File, FileFailure)] {
        guard let tree else { return [] }
        var failed: [Int: FileFailure] = [:]
        do throws(FileFailure) {
            try synchronize(files)
            var parents: [Descriptor] = []
            for (position, file) in files.enumerated() {
                do throws(FileFailure) {
                    let parent = try tree.put(
                        HeldName.ofFile(file.entry), from: descriptor, at: file.entry.path)
                    // Many folders become durable when the file system is synchronized, and need
                    // not stay open.
                    if parents.count < Self.manyFiles, parents.last !== parent {
                        parents.append(parent)
                    }
                } catch {
                    failed[position] = error
                }
            }
            if parents.count < Self.manyFiles {
                for parent in parents { try parent.synchronize() }
            } else {
                try folder.folder.synchronizeAll()
            }
        } catch {
            for position in files.indices where failed[position] == nil {
                failed[position] = error
            }
        }
        return files.enumerated().compactMap { position, file in
            failed[position].map { (file, $0) }
        }
    }

    /// Makes the bytes of files durable. If that fails, removes these files, so that their bytes
    /// come again: the system reports only once that bytes of a file are lost, so the next call of
    /// this function would succeed although they are lost.
    private func synchronize(_ files: [CompleteFiles.File]) throws(FileFailure) {
        do throws(FileFailure) {
            if files.count < Self.manyFiles {
                for file in files { try file.descriptor?.synchronize() }
            } else {
                try folder.folder.synchronizeAll()
            }
        } catch {
            for file in files { remove(file.entry) }
            throw error
        }
    }

    /// Gives the tree its final name, and returns that name.
    func publishTree() throws(FileFailure) -> String {
        try tree?.removeOthers()
        try tree?.synchronize()
        return try folder.publish(HeldName.tree, in: descriptor, offer)
    }
}
