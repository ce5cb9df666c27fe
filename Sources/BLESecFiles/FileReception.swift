/// A transfer that a ``FileReceiver`` has accepted, until everything is stored or nothing more
/// comes. Used on one thread.
final class FileReception {
    private(set) var state = FileReceiver.State()
    let folder: FileFolder
    private let offer: FileFrame.Offer
    /// What is held of the offer; nil if all of it was stored before.
    private var held: HeldOffer?
    private var announced: AnnouncedFiles
    private var current = CurrentFile.notBegun
    private var completeFiles = CompleteFiles()
    private var hasTreeFailed = false
    private var answers = Answers()
    /// The number in the last `received` frame.
    private var reportedReceived: UInt64 = 0
    /// The number in the last `stored` frame.
    private var reportedEnded = 0

    /// The file whose data arrives now: the first announced file that has not ended.
    private enum CurrentFile {
        /// No data of the file has arrived yet, or there is no such file.
        case notBegun
        case writing(PartialFile)
        /// The file has failed, and the peer was told. The rest of its data is dropped.
        case dropping
    }

    /// After this many further bytes, the peer is told again how many bytes have arrived.
    private static let reportStep: UInt64 = 1 << 20
    /// How long one call of ``tick()`` hashes, at the most.
    private static let hashingTimePerTick: Duration = .milliseconds(200)

    /// Finds out what is held of the offer, or that everything was stored before.
    init(_ offer: FileFrame.Offer, in folder: FileFolder) throws(FileFailure) {
        guard FileName.isAllowed(offer.name, allowsHidden: folder.rules.allowsHidden) else {
            throw FileFailure(
                .badName,
                FileName.isAllowed(offer.name, allowsHidden: true)
                    ? "names that begin with a dot are not taken" : Self.forbiddenName.text)
        }
        self.offer = offer
        self.folder = folder
        announced = AnnouncedFiles(of: offer)
        let offerFolder: Descriptor
        do throws(FileFailure) {
            offerFolder = try folder.open(offer)
        } catch {
            guard error.problem == .noSpace else { throw error }
            // Old rests may occupy the space.
            folder.removeOldIfDue()
            offerFolder = try folder.open(offer)
        }
        do throws(FileFailure) {
            if let name = folder.notes.storedName(offer) {
                // An earlier process may have ended after it gave the file this name, but before it
                // made the name durable.
                try folder.folder.synchronize()
                state.name = name
                // An earlier process may have ended between the two steps of a rename by `linkat`.
                folder.remove(offer)
            } else {
                // What is held of this offer is locked, and so it stays, even if the calendar clock
                // was set forward meanwhile.
                folder.removeOldIfDue()
                held = try HeldOffer(offerFolder, offer, in: folder)
            }
        } catch {
            folder.removeIfEmpty(offer, offerFolder)
            throw error
        }
        // Unowned is safe, since only this object owns `held`, and thus this closure.
        held?.reservation.unwritten = { [unowned self] in unwritten }
    }

    /// Removes the folders that hold nothing for a later transfer. Called when nothing more comes.
    func close() {
        current = .notBegun
        completeFiles = CompleteFiles()
        if let held = held.take() { held.close() }
        folder.removeEmpty()
    }

    /// How many bytes of the announced files are still to be written, plus
    /// ``SpaceReservation/block`` for each file that does not exist yet.
    private var unwritten: UInt64 {
        switch current {
        case .notBegun: announced.unwritten
        case .writing(let file): announced.unwrittenAfterFirst + file.missing
        case .dropping: announced.unwrittenAfterFirst
        }
    }

    // MARK: - Answers

    /// The bytes for the peer. While the sender has enough answered files to go on with, answers
    /// are collected, because a record with answers costs the link as much as a record with data.
    private struct Answers {
        var bytes: [UInt8] = []
        /// How many announced files are answered in `bytes`.
        var files = 0
        /// Whether the peer needs `bytes` at once.
        var isUrgent = false

        /// While the sender has answers for this many files that have not ended, further answers
        /// wait.
        static let leastAnswered = 64
    }

    private func answer(_ frame: FileFrame, isUrgent: Bool = false) {
        frame.append(to: &answers.bytes)
        if isUrgent { answers.isUrgent = true }
    }

    func takeAnswers() -> [UInt8] {
        defer { answers = Answers() }
        return answers.bytes
    }

    /// Takes the answers, unless they can wait until more bytes can be sent with them.
    func takeDueAnswers() -> [UInt8] {
        reportReceived(atOnce: false)
        let answered = announced.waiting.count - answers.files
        guard answers.isUrgent || answered < Answers.leastAnswered else { return [] }
        return takeAnswers()
    }

    /// Tells the peer how many bytes have arrived, if they are at least ``reportStep`` more than at
    /// the last report. If `atOnce` is true, one byte more is enough.
    private func reportReceived(atOnce: Bool) {
        guard
            state.received >= reportedReceived + Self.reportStep
                || atOnce && state.received > reportedReceived
        else { return }
        reportedReceived = state.received
        answer(.received(state.received))
    }

    /// Tells the peer how many files have ended, and are durable unless they have failed.
    private func reportEnded() {
        let ended = completeFiles.firstIndex ?? announced.firstIndex
        guard ended > reportedEnded else { return }
        reportedEnded = ended
        state.ended = ended
        reportReceived(atOnce: true)
        answer(.stored(UInt64(ended)))
    }

    // MARK: - Failures

    private func fail(_ entry: FileEntry, _ index: Int, _ failure: FileFailure) {
        let failure = FileReceiver.asReported(failure)
        state.failures.append(
            FileTransfer.Failure(
                path: entry.path, problem: failure.problem, text: failure.text))
        answer(.failed(index: UInt64(index), failure.problem), isUrgent: true)
    }

    /// Records that a folder of the tree, or the tree itself, has failed. The peer is told of the
    /// first such failure only.
    private func failTree(_ path: String, _ failure: FileFailure) {
        let failure = FileReceiver.asReported(failure)
        state.failures.append(
            FileTransfer.Failure(path: path, problem: failure.problem, text: failure.text))
        guard !hasTreeFailed else { return }
        hasTreeFailed = true
        answer(.failed(index: offer.files, failure.problem))
    }

    /// Records that the current file has failed, and tells the peer. Keeps the file's bytes.
    private func failCurrent(_ failure: FileFailure) {
        current = .dropping
        if let first = announced.first { fail(first.entry, announced.firstIndex, failure) }
    }

    // MARK: - Frames

    func receive(_ frame: FileFrame) throws(FileViolation) {
        switch frame {
        case .folder(let path): try makeFolder(path)
        case .file(let entry): try announce(entry)
        case .data(let bytes): try write(bytes)
        case .prefix(let hash): try receivePrefix(hash)
        case .again:
            if case .dropping = current { return }
            guard case .writing(let file) = current, file.beginAgain() else {
                throw FileViolation("a new beginning of a file that was not requested")
            }
        case .end(let hash): try end(hash)
        case .skip(let problem): try skip(problem)
        default: throw FileViolation("a frame that does not belong here")
        }
    }

    private func makeFolder(_ path: String) throws(FileViolation) {
        try announced.countFolder()
        guard let held else { return }
        do throws(FileFailure) {
            try held.makeFolder(path, try parts(of: path))
        } catch {
            failTree(path, error)
        }
    }

    private func announce(_ entry: FileEntry) throws(FileViolation) {
        let index = try announced.countFile(entry)
        answers.files += 1
        do throws(FileFailure) {
            let parts = try parts(of: entry.path)
            guard offer.isFolder || FileName.areSame(entry.path, offer.name) else {
                throw Self.forbiddenName
            }
            guard entry.seconds <= FileFrame.greatestSizeOrTime else {
                throw FileFailure(.other, "the time is out of range")
            }
            let start = try held?.prepare(entry, parts)
            announced.append(entry, from: start)
            state.held += start ?? entry.size
            if let start {
                answer(.from(start))
            } else {
                state.received += entry.size
                answer(.have)
            }
        } catch {
            announced.append(entry, from: nil)
            fail(entry, index, error)
        }
        endFilesWithoutData()
    }

    /// The parts of a path in the tree, or of the name of a single file.
    private func parts(of path: String) throws(FileFailure) -> [String] {
        guard let parts = FileName.parts(of: path, allowsHidden: folder.rules.allowsHidden) else {
            throw Self.forbiddenName
        }
        return parts
    }

    private static var forbiddenName: FileFailure {
        FileFailure(.badName, "the name is not allowed")
    }

    /// Ends the files for which no data comes, as soon as all files before them have ended.
    private func endFilesWithoutData() {
        if case .notBegun = current { announced.removeWithoutData() }
        reportEnded()
    }

    // MARK: - Data

    /// Opens the file whose data comes now, and returns it; nil if its data is dropped.
    private func begin() throws(FileViolation) -> PartialFile? {
        switch current {
        case .dropping: return nil
        case .writing(let file): return file
        case .notBegun: break
        }
        guard let next = announced.first, let start = next.start, let held else {
            throw FileViolation("data that belongs to no file")
        }
        do throws(FileFailure) {
            let file = try held.open(next.entry, from: start)
            state.received += start
            current = .writing(file)
            return file
        } catch {
            failCurrent(error)
            return nil
        }
    }

    private func write(_ bytes: [UInt8]) throws(FileViolation) {
        guard let file = try begin(), !file.awaitsAgain else { return }
        guard UInt64(bytes.count) <= file.missing else {
            throw FileViolation("more bytes than a file has")
        }
        do throws(FileFailure) {
            try file.write(bytes)
            state.received += UInt64(bytes.count)
            try catchUp(file)
        } catch {
            failCurrent(error)
        }
    }

    private func receivePrefix(_ hash: [UInt8]) throws(FileViolation) {
        guard let file = try begin() else { return }
        guard file.setPeerPrefixHash(hash) else {
            throw FileViolation("a hash of held bytes where none are held, or a second one")
        }
        do throws(FileFailure) {
            // If few bytes are held, they are hashed and compared at once; otherwise piece by piece.
            try catchUp(file)
        } catch {
            failCurrent(error)
        }
    }

    /// Hashes a piece of the current file. If this side's bytes can be compared with the peer's
    /// now, tells the peer the result.
    private func catchUp(_ file: PartialFile) throws(FileFailure) {
        try file.catchUp()
        let written = file.position
        guard let areSame = try file.comparePrefixes() else { return }
        let index = UInt64(announced.firstIndex)
        if areSame {
            answer(.agreed(index), isUrgent: true)
        } else {
            state.received -= written
            reportedReceived = min(reportedReceived, state.received)
            answer(.restart(index), isUrgent: true)
        }
    }

    private func end(_ hash: [UInt8]) throws(FileViolation) {
        if let file = try begin() {
            guard file.isComplete else { throw FileViolation("an end before the last byte") }
            do throws(FileFailure) {
                guard try file.finishedHash() == hash else {
                    held?.remove(file.entry)
                    throw FileFailure(.wrongHash, "the bytes are not those that the sender read")
                }
                try file.setTime()
                completeFiles.append(file, announced.firstIndex)
            } catch {
                failCurrent(error)
            }
        }
        endCurrent()
        if completeFiles.isFull || !offer.isFolder { flush() }
    }

    private func skip(_ problem: FileProblem) throws(FileViolation) {
        guard let first = announced.first else { throw FileViolation("a skip without a file") }
        if case .dropping = current {
            // This side has recorded its own failure.
        } else {
            state.failures.append(FileTransfer.Failure(path: first.entry.path, problem: problem))
            // The held bytes of a file that has changed are of no use.
            if problem == .changed { held?.remove(first.entry) }
        }
        endCurrent()
    }

    private func endCurrent() {
        current = .notBegun
        announced.removeFirst()
        endFilesWithoutData()
    }

    // MARK: - Storing

    /// Hashes bytes that are not hashed yet, and makes files durable that have been complete for a
    /// second. Called four times a second.
    func tick() {
        let start = ContinuousClock.now
        while case .writing(let file) = current, file.hasBacklog,
            ContinuousClock.now - start < Self.hashingTimePerTick
        {
            do throws(FileFailure) {
                try catchUp(file)
            } catch {
                failCurrent(error)
            }
        }
        if completeFiles.tick() { flush() }
        reportReceived(atOnce: true)
    }

    /// Makes all complete files durable. Puts them into the tree, or gives a single file its final
    /// name.
    private func flush() {
        let files = completeFiles.take()
        if let held, !files.isEmpty {
            if offer.isFolder {
                for (file, failure) in held.storeInTree(files) {
                    fail(file.entry, file.index, failure)
                }
            } else {
                for file in files { store(file, held) }
            }
        }
        reportEnded()
    }

    /// Gives a single file its final name.
    private func store(_ file: CompleteFiles.File, _ held: HeldOffer) {
        do throws(FileFailure) {
            state.name = try held.publish(file)
        } catch {
            fail(file.entry, file.index, error)
        }
    }

    /// Gives everything its final name, and tells the peer that name. Called when the peer has
    /// ended its direction of the stream. Returns whether everything is stored.
    func finish() throws(FileViolation) -> Bool {
        guard announced.first == nil else {
            throw FileViolation("an end in the middle of a file")
        }
        flush()
        reportReceived(atOnce: true)
        held?.removeUnannouncedIfNeeded()
        guard state.failures.count == 0 else { return false }
        if offer.isFolder, let held {
            do throws(FileFailure) {
                state.name = try held.publishTree()
            } catch {
                failTree(offer.name, error)
                return false
            }
        }
        guard let name = state.name else { throw FileViolation("an end without a file") }
        answer(.done(name))
        return true
    }
}
