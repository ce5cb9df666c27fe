internal import CBLESecLinux
internal import BLESecPrimitives
internal import Glibc

/// The receiver's end of a stream of files. It writes files and reads no stream; its owner passes
/// it the peer's bytes, and sends what the calls return. Used on one thread.
///
/// What an earlier transfer of the same files has left incomplete on this side's disk is *held*.
final class FileReceiver {
    /// The progress of the transfer.
    struct State: Sendable, Equatable {
        /// How many bytes are written, or were held or stored before.
        var received: UInt64 = 0
        /// How many bytes of the announced files were held or stored before.
        var held: UInt64 = 0
        /// How many files have ended, stored or not.
        var ended = 0
        var failures = FailureList()
        /// The name under which everything is stored; nil until then.
        var name: String?
    }

    private enum Phase {
        case awaitingOffer, offered, receiving, refused, done
    }

    /// The file whose data arrives now.
    private struct Current {
        let descriptor: Descriptor
        let entry: FileEntry
        let partialName: String
        /// How many bytes were held; 0 once the peer has sent `again`.
        var start: UInt64
        /// How many bytes are in the file now.
        var position: UInt64
        /// The peer's hash of what was held.
        var peerPrefixHash: [UInt8]?
        /// This side's hash of what was held.
        var ownPrefixHash: [UInt8]?
        /// Whether the bytes before `start` are the peer's: both hashes are the same, or `start` is
        /// 0.
        var isAgreed: Bool
        /// Whether data is dropped until the peer sends `again`.
        var awaitsAgain = false
        let hash = RunningHash()
    }

    /// A file that is complete, and not durable yet.
    private struct Complete {
        var descriptor: Descriptor?
        let entry: FileEntry
        let partialName: String
        let index: Int
    }

    private(set) var state = State()
    private(set) var offer: FileFrame.Offer?
    private var phase = Phase.awaitingOffer
    private var reader = FileFrameReader()
    private var folder: FileFolder?
    /// The offer's folder. It contains the incomplete files and the tree.
    private var heldFolder: Descriptor?
    private var tree: TreeFolder?
    /// Files that were announced and have not ended, each with the offset from which the peer sends
    /// it; nil if the peer sends no data of it.
    private var announced: [(entry: FileEntry, start: UInt64?)] = []
    /// The names of the files in `heldFolder` that were held before and are not announced yet.
    private var unannounced: Set<String> = []
    /// Whether nothing of the offer was held before.
    private var isFresh = false
    /// The number of the first announced file that has not ended.
    private var currentIndex = 0
    private var current: Current?
    /// Whether the rest of the current file is dropped, since it has failed.
    private var isDropping = false
    /// Why the current file has failed; nil once the peer was told.
    private var owedFailure: FileFailure?
    /// The numbers of the files that were reported to the peer as failed.
    private var failedFiles: Set<Int> = []
    private var complete: [Complete] = []
    /// The number in the last `received` frame.
    private var reportedReceived: UInt64 = 0
    /// The number in the last `stored` frame.
    private var reportedEnded = 0
    /// How many files were announced.
    private var announcedFileCount: UInt64 = 0
    /// How many folders were announced.
    private var announcedFolderCount = 0
    /// How many bytes the announced files have in all.
    private var announcedBytes: UInt64 = 0
    private var hasTreeFailed = false
    /// Bytes for the peer that wait until more bytes can be sent with them.
    private var owed: [UInt8] = []
    /// How many announced files are answered in `owed`.
    private var owedAnswers = 0
    /// Whether the peer needs the bytes in `owed` at once.
    private var isUrgent = false
    private var reservation: FileFolder.Reservation?
    /// How many times ``tick()`` was called since the oldest file in `complete` was added.
    private var ticks = 0

    /// How many bytes arrive before the peer is told how many have arrived.
    private static let step: UInt64 = 1 << 20
    /// The most files that become durable together.
    private static let mostComplete = 256
    /// While the sender has answers for this many files that have not ended, further answers wait.
    private static let leastAnswered = 64
    /// For this many files or folders or more, the whole file system is synchronized instead of
    /// each of them.
    private static let manyFiles = 8

    /// How long one call of ``tick()`` hashes, at the most.
    private static let hashingTimePerTick: Duration = .milliseconds(200)

    /// Whether everything that was offered is stored.
    var isDone: Bool { phase == .done }
    /// Whether an offer waits for ``accept(into:)`` or ``refuse(_:_:)``.
    var hasOffer: Bool { phase == .offered }

    // MARK: - The offer

    /// Accepts the offer. Returns the bytes for the peer.
    func accept(into folder: FileFolder) -> [UInt8] {
        guard phase == .offered, let offer else { return [] }
        self.folder = folder
        do throws(FileFailure) {
            guard FileName.isAllowed(offer.name, allowsHidden: folder.rules.allowsHidden) else {
                throw FileFailure(
                    .badName,
                    FileName.isAllowed(offer.name, allowsHidden: true)
                        ? "names that begin with a dot are not taken" : "the name is not allowed")
            }
            let heldFolder = try folder.open(offer)
            self.heldFolder = heldFolder
            if let name = folder.storedName(offer) {
                // An earlier process may have ended after it gave the file this name, but before it
                // made the name durable.
                try folder.folder.synchronize()
                state.name = name
                // An earlier process may have ended between the two steps of a rename by `linkat`.
                folder.remove(offer)
                self.heldFolder = nil
            } else {
                let reservation = try folder.reserve(offer, in: heldFolder)
                self.reservation = reservation
                // Unowned is safe, since the receiver owns the reservation.
                reservation.unwritten = { [unowned self] in unwritten }
                unannounced = Set(try heldFolder.names())
                isFresh = unannounced.isEmpty
                unannounced.remove(FileFolder.tree)
                if offer.isFolder {
                    tree = TreeFolder(
                        try heldFolder.folder(FileFolder.tree, mode: 0o777), isFresh: isFresh,
                        reservation)
                }
            }
        } catch {
            close()
            let failure = Self.asReported(error)
            return refuse(failure.problem, failure.text)
        }
        phase = .receiving
        return bytes(.accept)
    }

    /// Why this side has refused the offer.
    private(set) var refusal: FileFailure?

    func refuse(_ problem: FileProblem, _ text: String) -> [UInt8] {
        phase = .refused
        refusal = FileFailure(problem, text.isEmpty ? problem.meaning : text)
        return bytes(.refuse(problem, text))
    }

    /// The failure as it is reported: "cannot read" becomes "cannot write", because the sender
    /// would take "cannot read" for a problem with its own files.
    static func asReported(_ failure: FileFailure) -> FileFailure {
        failure.problem == .cannotRead ? FileFailure(.cannotWrite, failure.text) : failure
    }

    private func bytes(_ frames: FileFrame...) -> [UInt8] {
        var bytes: [UInt8] = []
        for frame in frames { frame.append(to: &bytes) }
        return bytes
    }

    // MARK: - Receiving

    /// Takes bytes from the peer, and returns bytes for the peer.
    func receive(_ bytes: [UInt8]) throws(FileViolation) -> [UInt8] {
        var answers: [UInt8] = []
        reader.append(bytes)
        while phase != .refused,
            let frame = try reader.next(where: { $0.rawValue < FileFrame.Kind.accept.rawValue })
        { try receive(frame, &answers) }
        reportReceived(&answers, atOnce: false)
        owed += answers
        // While the sender has enough answered files to go on with, answers are collected, because
        // a record with answers costs the link as much as a record with data.
        let answered = announced.count - owedAnswers
        guard isUrgent || answered < Self.leastAnswered else { return [] }
        return takeOwed()
    }

    private func takeOwed() -> [UInt8] {
        defer { (owed, owedAnswers, isUrgent) = ([], 0, false) }
        return owed
    }

    /// Gives everything its final name. Called when the peer has ended its direction of the stream.
    func finish() throws(FileViolation) -> [UInt8] {
        guard phase != .refused else { return [] }
        guard phase == .receiving, announced.isEmpty, !reader.isMidFrame else {
            throw FileViolation("an end in the middle of a file")
        }
        var answers = takeOwed()
        flush(&answers)
        reportReceived(&answers, atOnce: true)
        if reservation?.hasRefused == true { removeUnannounced() }
        guard let offer, let folder else { return answers }
        guard state.failures.count == 0 else { return answers }
        if offer.isFolder, state.name == nil {
            do throws(FileFailure) {
                try tree?.removeOthers()
                try tree?.synchronize()
                if let heldFolder {
                    state.name = try folder.publish(FileFolder.tree, in: heldFolder, offer)
                }
            } catch {
                failTree(offer.name, error, &answers)
                return answers
            }
        }
        guard let name = state.name else { throw FileViolation("an end without a file") }
        FileFrame.done(name).append(to: &answers)
        phase = .done
        (heldFolder, tree, reservation) = (nil, nil, nil)
        return answers
    }

    /// Removes what is held but is not part of the offer, to free space for the next transfer.
    /// Called when everything was announced.
    private func removeUnannounced() {
        for name in unannounced { heldFolder?.remove(name) }
        unannounced = []
        // If this fails, the next transfer has less space.
        try? tree?.removeOthers()
    }

    /// How many bytes of the announced files are still to be written, with ``FileFolder/block`` for
    /// each file that does not exist yet.
    private var unwritten: UInt64 {
        var sum: UInt64 = 0
        if let current { sum += current.entry.size - current.position }
        for file in announced.dropFirst(current == nil ? 0 : 1) {
            guard let start = file.start else { continue }
            sum += file.entry.size - start + (start == 0 ? FileFolder.block : 0)
        }
        return sum
    }

    /// Records that a folder of the tree, or the tree itself, has failed. The peer is told of the
    /// first such failure only.
    private func failTree(_ path: String, _ failure: FileFailure, _ answers: inout [UInt8]) {
        let failure = Self.asReported(failure)
        state.failures.append(
            FileTransfer.Failure(path: path, problem: failure.problem, text: failure.text))
        guard let offer, !hasTreeFailed else { return }
        hasTreeFailed = true
        FileFrame.failed(index: offer.files, failure.problem).append(to: &answers)
    }

    /// Removes the note about the stored offer, and the folders of incomplete files if they are
    /// empty. Called when the peer knows that everything is stored.
    func forget() {
        guard phase == .done, let offer else { return }
        folder?.forget([offer.id])
        folder = nil
    }

    /// Removes the folders that hold nothing for a later transfer. Called when nothing more comes.
    func close() {
        guard phase != .done, let offer else { return }
        (current, complete, tree, reservation) = (nil, [], nil, nil)
        heldFolder?.remove(FileFolder.tree, isFolder: true)
        // The folder stays locked until it is removed, so that no other transfer begins to use it.
        // If it is removed already, its name may be that of another transfer's folder by now.
        if heldFolder?.hasPath == true { folder?.remove(offer, ifEmpty: true) }
        heldFolder = nil
        folder?.removeEmpty()
        folder = nil
    }

    /// Hashes bytes that are not hashed yet, and makes files durable that have been complete for a
    /// second. Called four times a second. Returns bytes for the peer.
    func tick() -> [UInt8] {
        var answers = takeOwed()
        guard phase == .receiving else { return answers }
        let begin = ContinuousClock.now
        while hasBacklog, ContinuousClock.now - begin < Self.hashingTimePerTick {
            catchUp(&answers)
        }
        ticks = complete.isEmpty ? 0 : ticks + 1
        if ticks >= 4 { flush(&answers) }
        reportReceived(&answers, atOnce: true)
        return answers
    }

    /// Whether a part of the current file is still to be hashed.
    var hasBacklog: Bool {
        guard let file = current, !isDropping, !file.awaitsAgain else { return false }
        return file.hash.count < file.position
    }

    /// Tells the peer how many bytes have arrived, if they are at least ``step`` more than at the
    /// last report. If `atOnce` is true, one byte more is enough.
    private func reportReceived(_ answers: inout [UInt8], atOnce: Bool) {
        guard
            state.received >= reportedReceived + Self.step
                || atOnce && state.received > reportedReceived
        else { return }
        reportedReceived = state.received
        FileFrame.received(state.received).append(to: &answers)
    }

    private func receive(
        _ frame: FileFrame, _ answers: inout [UInt8]
    ) throws(FileViolation) {
        if case .offer(let offer) = frame {
            guard phase == .awaitingOffer else { throw FileViolation("a second offer") }
            guard offer.bytes <= FileFrame.greatestSizeOrTime,
                offer.files <= UInt64(FileSource.mostEntries), offer.isFolder || offer.files == 1
            else { throw FileViolation("an offer of too many files or bytes") }
            self.offer = offer
            phase = .offered
            return
        }
        guard phase == .receiving, let offer else { throw FileViolation("a file without an offer") }
        switch frame {
        case .folder(let path):
            guard offer.isFolder else { throw FileViolation("a folder that was not offered") }
            try makeFolder(path, &answers)
        case .file(let entry): try announce(entry, offer, &answers)
        case .data(let bytes): try write(bytes, &answers)
        case .prefix(let hash):
            try begin()
            if isDropping { return tellFailure(&answers) }
            guard var file = current, file.start > 0, file.peerPrefixHash == nil else {
                throw FileViolation("a hash of held bytes where none are held, or a second one")
            }
            file.peerPrefixHash = hash
            current = file
            // Short files are compared at once, and others by and by.
            if hasBacklog { catchUp(&answers) } else { compare(&answers) }
        case .again:
            if isDropping { return }
            guard var file = current, file.awaitsAgain else {
                throw FileViolation("a new beginning of a file that was not requested")
            }
            (file.awaitsAgain, file.isAgreed) = (false, true)
            (file.start, file.position) = (0, 0)
            current = file
        case .end(let hash): try end(hash, &answers)
        case .skip(let problem):
            guard !announced.isEmpty else { throw FileViolation("a skip without a file") }
            if !isDropping {
                let path = announced[0].entry.path
                state.failures.append(FileTransfer.Failure(path: path, problem: problem))
                // The held bytes of a file that has changed are of no use.
                if problem == .changed {
                    heldFolder?.remove(FileFolder.partialName(announced[0].entry))
                }
            }
            try endCurrent(&answers)
        default: throw FileViolation("a frame that does not belong here")
        }
    }

    // MARK: - Files

    private func announce(
        _ entry: FileEntry, _ offer: FileFrame.Offer, _ answers: inout [UInt8]
    ) throws(FileViolation) {
        guard announced.count < FileFrame.mostAnnounced else {
            throw FileViolation("too many files at once")
        }
        let (bytes, isTooMuch) = announcedBytes.addingReportingOverflow(entry.size)
        guard announcedFileCount < offer.files, !isTooMuch, bytes <= offer.bytes,
            offer.isFolder || entry.size == offer.bytes
        else { throw FileViolation("more files or bytes than were offered") }
        announcedFileCount += 1
        owedAnswers += 1
        announcedBytes = bytes
        do throws(FileFailure) {
            let start = try prepare(entry, offer)
            announced.append((entry, start))
            state.held += start ?? entry.size
            if let start {
                FileFrame.from(start).append(to: &answers)
            } else {
                state.received += entry.size
                FileFrame.have.append(to: &answers)
            }
        } catch {
            announced.append((entry, nil))
            fail(entry, Int(announcedFileCount) - 1, error, &answers)
        }
        endFilesWithoutData(&answers)
    }

    /// The offset from which the peer has to send a file; nil if the file is stored already.
    private func prepare(
        _ entry: FileEntry, _ offer: FileFrame.Offer
    ) throws(FileFailure) -> UInt64? {
        guard let folder else { throw FileFailure(.other, "there is no folder") }
        let allowsHidden = folder.rules.allowsHidden
        guard let parts = FileName.parts(of: entry.path, allowsHidden: allowsHidden),
            offer.isFolder || FileName.areSame(entry.path, offer.name)
        else { throw FileFailure(.badName, "the name is not allowed") }
        guard entry.seconds <= FileFrame.greatestSizeOrTime else {
            throw FileFailure(.other, "the time is out of range")
        }
        if state.name != nil { return nil }
        let partialName = FileFolder.partialName(entry)
        unannounced.remove(partialName)
        if let tree, let heldFolder,
            try tree.addFile(entry, parts, held: heldFolder, partialName: partialName)
        {
            return nil
        }
        guard !isFresh, let heldFolder, let status = heldFolder.status(of: partialName)
        else {
            // What is held of another version of a single file is of no use.
            if !isFresh, !offer.isFolder, let heldFolder {
                try reservation?.removeAll(in: heldFolder)
            }
            try reservation?.addFile(entry.size, isNew: true)
            return 0
        }
        guard status.isRegular, status.st_nlink == 1 else {
            // If an earlier process ended between the two steps of a rename by `linkat`, the held
            // file is a second link to a stored file.
            heldFolder.remove(partialName)
            try reservation?.addFile(entry.size, isNew: true)
            return 0
        }
        // For a small file, the comparison takes longer than the transfer.
        if offer.isFolder, entry.size < TreeFolder.leastCompared {
            heldFolder.remove(partialName)
            try reservation?.addFile(entry.size, isNew: true)
            return 0
        }
        let start = min(entry.size, UInt64(max(0, status.st_size)))
        try reservation?.addFile(entry.size - start, isNew: false)
        return start
    }

    private func makeFolder(
        _ path: String, _ answers: inout [UInt8]
    ) throws(FileViolation) {
        announcedFolderCount += 1
        guard announcedFolderCount <= FileSource.mostEntries else {
            throw FileViolation("too many folders")
        }
        guard state.name == nil else { return }
        do throws(FileFailure) {
            let allowsHidden = folder?.rules.allowsHidden ?? false
            guard let parts = FileName.parts(of: path, allowsHidden: allowsHidden) else {
                throw FileFailure(.badName, "the name is not allowed")
            }
            try tree?.makeFolder(path, parts)
        } catch {
            failTree(path, error, &answers)
        }
    }

    /// Ends the files of which no data comes, as soon as all files before them have ended.
    private func endFilesWithoutData(_ answers: inout [UInt8]) {
        while current == nil, let next = announced.first, next.start == nil {
            announced.removeFirst()
            currentIndex += 1
        }
        reportEnded(&answers)
    }

    /// Opens the file whose data comes now.
    private func begin() throws(FileViolation) {
        guard current == nil, !isDropping else { return }
        guard let next = announced.first, let start = next.start, let heldFolder else {
            throw FileViolation("data that belongs to no file")
        }
        let name = FileFolder.partialName(next.entry)
        do throws(FileFailure) {
            // Other users cannot open the folder of held files, so the file gets its final mode
            // now.
            let mode: mode_t = next.entry.isExecutable ? 0o777 : 0o666
            let file = try heldFolder.open(name, O_RDWR | O_CREAT, mode: mode)
            if !isFresh {
                guard let status = file.status, status.isRegular, status.st_size >= Int(start)
                else {
                    throw FileFailure(.cannotWrite, "what was held is gone")
                }
                try file.setLength(start)
            }
            state.received += start
            current = Current(
                descriptor: file, entry: next.entry, partialName: name, start: start,
                position: start, isAgreed: start == 0)
        } catch {
            dropCurrent(because: error)
        }
    }

    private func write(_ bytes: [UInt8], _ answers: inout [UInt8]) throws(FileViolation) {
        try begin()
        guard !isDropping, var file = current else { return tellFailure(&answers) }
        if file.awaitsAgain { return }
        guard UInt64(bytes.count) <= file.entry.size - file.position else {
            throw FileViolation("more bytes than a file has")
        }
        do throws(FileFailure) {
            try file.descriptor.write(bytes, at: file.position)
        } catch {
            dropCurrent(because: error)
            return tellFailure(&answers)
        }
        file.hash.add(bytes, at: file.position)
        file.position += UInt64(bytes.count)
        state.received += UInt64(bytes.count)
        current = file
        catchUp(&answers)
    }

    /// Hashes a piece of what was held, or of what has arrived since.
    private func catchUp(_ answers: inout [UInt8]) {
        guard hasBacklog, var file = current else { return }
        do throws(FileFailure) {
            let isPrefix = file.hash.count < file.start
            try file.hash.catchUp(with: file.descriptor, to: isPrefix ? file.start : file.position)
            if isPrefix, file.hash.count == file.start {
                file.ownPrefixHash = file.hash.current
            }
        } catch {
            dropCurrent(because: error)
            return tellFailure(&answers)
        }
        current = file
        compare(&answers)
    }

    /// Compares the two hashes of what was held, once both are known.
    private func compare(_ answers: inout [UInt8]) {
        guard var file = current, !file.isAgreed, !file.awaitsAgain,
            let peerHash = file.peerPrefixHash, let ownHash = file.ownPrefixHash
        else { return }
        if ownHash == peerHash {
            file.isAgreed = true
            isUrgent = true
            FileFrame.agreed(UInt64(currentIndex)).append(to: &answers)
        } else {
            do throws(FileFailure) {
                try file.descriptor.setLength(0)
            } catch {
                dropCurrent(because: error)
                return tellFailure(&answers)
            }
            state.received -= file.position
            reportedReceived = min(reportedReceived, state.received)
            file.hash.restart()
            (file.position, file.awaitsAgain) = (0, true)
            isUrgent = true
            FileFrame.restart(UInt64(currentIndex)).append(to: &answers)
        }
        current = file
    }

    /// Gives up the current file, but does not remove its bytes.
    private func dropCurrent(because failure: FileFailure) {
        isDropping = true
        owedFailure = failure
    }

    /// Tells the peer that the current file has failed, unless the peer was told already.
    private func tellFailure(_ answers: inout [UInt8]) {
        guard let failure = owedFailure.take(), let file = announced.first else { return }
        fail(file.entry, currentIndex, failure, &answers)
    }

    private func end(_ hash: [UInt8], _ answers: inout [UInt8]) throws(FileViolation) {
        try begin()
        guard !isDropping, let file = current else {
            tellFailure(&answers)
            return try endCurrent(&answers)
        }
        guard file.isAgreed, !file.awaitsAgain, file.position == file.entry.size else {
            throw FileViolation("an end before the last byte")
        }
        do throws(FileFailure) {
            while file.hash.count < file.position {
                try file.hash.catchUp(with: file.descriptor, to: file.position)
            }
            guard file.hash.current == hash else {
                heldFolder?.remove(file.partialName)
                throw FileFailure(.wrongHash, "the bytes are not those that the sender read")
            }
            try setTime(of: file)
            complete.append(
                Complete(
                    descriptor: file.descriptor, entry: file.entry, partialName: file.partialName,
                    index: currentIndex))
            // Many files become durable when the file system is synchronized, and need not stay
            // open.
            if complete.count >= Self.manyFiles {
                for index in complete.indices { complete[index].descriptor = nil }
            }
        } catch {
            dropCurrent(because: error)
            tellFailure(&answers)
        }
        try endCurrent(&answers)
        if complete.count >= Self.mostComplete || offer?.isFolder == false { flush(&answers) }
    }

    private func setTime(of file: Current) throws(FileFailure) {
        var times = [timespec(), timespec()]
        times[0].tv_nsec = Int(UTIME_OMIT_VALUE)
        times[1] = timespec(
            tv_sec: Int(file.entry.seconds), tv_nsec: Int(file.entry.nanoseconds))
        guard unsafe futimens(file.descriptor.number, &times) == 0 else {
            throw FileFailure(file.entry.path, errno)
        }
    }

    private func endCurrent(_ answers: inout [UInt8]) throws(FileViolation) {
        guard announced.first?.start != nil else {
            throw FileViolation("an end that belongs to no file")
        }
        current = nil
        isDropping = false
        owedFailure = nil
        announced.removeFirst()
        currentIndex += 1
        endFilesWithoutData(&answers)
    }

    // MARK: - Storing

    /// Makes all complete files durable. Puts them into the tree, or gives a single file its final
    /// name.
    private func flush(_ answers: inout [UInt8]) {
        defer {
            complete.removeAll()
            ticks = 0
            reportEnded(&answers)
        }
        guard !complete.isEmpty, let offer, let folder, let heldFolder else { return }
        do throws(FileFailure) {
            try synchronizeComplete(folder, heldFolder)
            var parents: [Descriptor] = []
            for file in complete {
                do throws(FileFailure) {
                    guard let tree else {
                        state.name = try folder.publish(file.partialName, in: heldFolder, offer)
                        continue
                    }
                    let parent = try tree.put(
                        file.partialName, from: heldFolder, at: file.entry.path)
                    // Many folders become durable when the file system is synchronized, and need
                    // not stay open.
                    if parents.count < Self.manyFiles, parents.last !== parent {
                        parents.append(parent)
                    }
                } catch {
                    fail(file.entry, file.index, error, &answers)
                }
            }
            if parents.count < Self.manyFiles {
                for parent in parents { try parent.synchronize() }
            } else {
                try folder.folder.synchronizeAll()
            }
        } catch {
            // The peer is told of each failed file only once.
            for file in complete where !failedFiles.contains(file.index) {
                fail(file.entry, file.index, error, &answers)
            }
        }
    }

    /// Makes the bytes of all complete files durable. If that fails, removes these files, so that
    /// their bytes come again: the system reports only once that bytes of a file are lost, so the
    /// next call would succeed without them.
    private func synchronizeComplete(
        _ folder: FileFolder, _ heldFolder: Descriptor
    ) throws(FileFailure) {
        do throws(FileFailure) {
            if complete.count < Self.manyFiles {
                for file in complete { try file.descriptor?.synchronize() }
            } else {
                try folder.folder.synchronizeAll()
            }
        } catch {
            for file in complete { heldFolder.remove(file.partialName) }
            throw error
        }
    }

    private func fail(
        _ entry: FileEntry, _ number: Int, _ failure: FileFailure, _ answers: inout [UInt8]
    ) {
        let failure = Self.asReported(failure)
        failedFiles.insert(number)
        state.failures.append(
            FileTransfer.Failure(
                path: entry.path, problem: failure.problem, text: failure.text))
        isUrgent = true
        FileFrame.failed(index: UInt64(number), failure.problem).append(to: &answers)
    }

    /// Tells the peer how many files have ended, and are durable unless they have failed.
    private func reportEnded(_ answers: inout [UInt8]) {
        let ended = complete.first?.index ?? currentIndex
        guard ended > reportedEnded else { return }
        reportedEnded = ended
        state.ended = ended
        reportReceived(&answers, atOnce: true)
        FileFrame.stored(UInt64(ended)).append(to: &answers)
    }

}

/// `UTIME_OMIT` of `sys/stat.h`, which Swift cannot import.
private let UTIME_OMIT_VALUE = (1 << 30) - 2
