/// The sender's end of a stream of files. It reads the files, but it does not use the stream: its
/// owner passes the peer's bytes to ``receive(_:)``, and sends what ``next()`` returns. Used on one
/// thread.
final class FileSender {
    /// What the owner has to do next.
    enum Step: Sendable {
        /// Send these bytes, which may be none, and then call ``next()`` again.
        case send([UInt8])
        /// Call ``next()`` again when the peer has sent something.
        case wait
        /// End this side's direction of the stream.
        case finish
        /// Give the stream up. The transfer must not become done, because a file that was answered
        /// with `have` has changed since the offer.
        case giveUp
    }

    /// How far the transfer is.
    struct State: Sendable, Equatable {
        /// Whether the peer has accepted the offer.
        var isAccepted = false
        /// Whether this side has sent everything.
        var hasSentAll = false
        /// Whether the last step was ``Step/giveUp``.
        var hasGivenUp = false
        /// How many bytes the peer has on its disk, according to its `received` frames.
        var received: UInt64 = 0
        /// How many bytes the peer had before this transfer, according to its answers.
        var held: UInt64 = 0
        /// How many files the peer has finished with: each is stored, or has failed.
        var ended = 0
        var failures = FailureList()
        /// The name under which the peer has stored everything; nil until then.
        var name: String?
        /// Why the peer has refused the offer.
        var refusal: FileTransfer.Failure?
    }

    /// The peer's answer to a `file` frame.
    private enum Answer {
        /// The peer needs the data from this offset on.
        case from(UInt64)
        /// The peer has the file already.
        case have
        /// The peer cannot store the file.
        case failed
    }

    /// The file that is being sent.
    private struct Current {
        let descriptor: Descriptor
        let entry: FileEntry
        let version: FileSource.Version
        /// The offset where sending began; 0 after `again`. The peer held the bytes before this
        /// offset.
        var start: UInt64
        /// The offset of the next byte to send.
        var position: UInt64
        /// Whether the hash of the bytes before `start` was sent, or is not needed.
        var hasSentPrefix: Bool
        /// Whether the peer has compared that hash and holds the same bytes, or `start` is 0.
        var isAgreed: Bool
        let hash = RunningHash()
    }

    private(set) var state = State()
    private let source: FileSource
    private var reader = FileFrameReader()
    private var hasOffered = false
    /// How many of the source's entries have been announced.
    private var announcedEntryCount = 0
    /// The files that have been announced, from the current file on.
    private var announced: [(entry: FileEntry, version: FileSource.Version)] = []
    /// The peer's answers, each to the file of `announced` with the same index.
    private var answers: [Answer] = []
    /// The number of the current file, from 0.
    private var currentIndex = 0
    /// The current file; nil until it is opened.
    private var current: Current?
    /// Whether the current file must be sent again from its start, after an `again` frame.
    private var owesAgain = false
    /// The numbers of the files that the peer could not store.
    private var failedFiles: Set<UInt64> = []
    /// The numbers of the files whose failure was found on this side.
    private var skippedFiles: Set<Int> = []
    /// Whether the peer could not store a folder of the tree, or the tree itself.
    private var hasTreeFailed = false
    /// Whether the peer has asked for the data of the current file, and has then reported that it
    /// cannot store the file.
    private var hasFailedMidway = false
    /// Whether a file that the peer answered with `have` has changed since the offer.
    private var hasStaleFile = false

    /// The approximate size of the data in a step, in bytes.
    private static let stepSize = 256 << 10

    init(_ source: FileSource) { self.source = source }

    var totalBytes: UInt64 { source.offer.bytes }
    var totalFiles: Int { Int(clamping: source.offer.files) }

    // MARK: - Sending

    func next() -> Step {
        var bytes: [UInt8] = []
        if !hasOffered {
            hasOffered = true
            FileFrame.offer(source.offer).append(to: &bytes)
            return .send(bytes)
        }
        if state.refusal != nil { return .finish }
        guard state.isAccepted else { return .wait }
        bytes.reserveCapacity(Self.stepSize + FileFrame.longestBody)
        var isWaiting = false
        while bytes.count < Self.stepSize, !isWaiting {
            announce(to: &bytes)
            if announced.isEmpty, announcedEntryCount == source.entries.count {
                state.hasSentAll = true
                return bytes.isEmpty ? lastStep() : .send(bytes)
            }
            isWaiting = !sendCurrent(to: &bytes)
        }
        if !bytes.isEmpty { return .send(bytes) }
        return hasBacklog ? .send([]) : .wait
    }

    /// The step after everything was sent.
    private func lastStep() -> Step {
        guard hasStaleFile else { return .finish }
        // The peer stores the other files first, so that a later transfer need not send them.
        guard state.ended == currentIndex else { return .wait }
        state.hasGivenUp = true
        return .giveUp
    }

    private func announce(to bytes: inout [UInt8]) {
        while announced.count < FileFrame.mostAnnounced, announcedEntryCount < source.entries.count,
            bytes.count < Self.stepSize
        {
            switch source.entries[announcedEntryCount] {
            case .folder(let path): FileFrame.folder(path).append(to: &bytes)
            case .file(let entry, let version):
                announced.append((entry, version))
                FileFrame.file(entry).append(to: &bytes)
            }
            announcedEntryCount += 1
        }
    }

    /// Appends the next frames of the current file. Returns false if there are none now, because
    /// the peer has to answer first, or because more of the file has to be hashed first.
    private func sendCurrent(to bytes: inout [UInt8]) -> Bool {
        guard let answer = answers.first else { return false }
        if hasFailedMidway {
            FileFrame.skip(.other).append(to: &bytes)
            endCurrent()
            return true
        }
        do throws(FileFailure) {
            if current == nil {
                switch answer {
                case .have:
                    endStored()
                    return true
                case .failed:
                    endCurrent()
                    return true
                case .from(let start): try openCurrent(at: start)
                }
            }
            return try sendPiece(to: &bytes)
        } catch {
            fail(error.problem, error.text, &bytes)
            return true
        }
    }

    private func openCurrent(at start: UInt64) throws(FileFailure) {
        let (entry, version) = announced[0]
        guard let file = try source.open(entry, version) else {
            throw FileFailure(.changed, Self.changedSinceOffer)
        }
        current = Current(
            descriptor: file, entry: entry, version: version, start: start, position: start,
            hasSentPrefix: start == 0, isAgreed: start == 0)
    }

    private func sendPiece(to bytes: inout [UInt8]) throws(FileFailure) -> Bool {
        guard var file = current else { return false }
        defer { if current != nil { current = file } }
        if owesAgain {
            owesAgain = false
            FileFrame.again.append(to: &bytes)
            (file.start, file.position, file.isAgreed, file.hasSentPrefix) = (0, 0, true, true)
            file.hash.restart()
        }
        var hasSentData = false
        if file.position < file.entry.size {
            let count = min(file.entry.size - file.position, UInt64(FileFrame.longestData))
            let data = try file.descriptor.read(at: file.position, atMost: Int(count))
            guard data.count == Int(count) else {
                throw FileFailure(.changed, "became shorter while it was sent")
            }
            FileFrame.data(data).append(to: &bytes)
            file.hash.add(data, at: file.position)
            file.position += count
            hasSentData = true
        }
        if file.hash.count < file.position {
            // First hashes the bytes that the peer held, and then those that were sent meanwhile.
            let end = file.hasSentPrefix ? file.position : file.start
            try file.hash.catchUp(with: file.descriptor, to: end)
            if !file.hasSentPrefix, file.hash.count == file.start {
                FileFrame.prefix(file.hash.current).append(to: &bytes)
                file.hasSentPrefix = true
            }
        }
        guard file.position == file.entry.size else { return true }
        guard file.isAgreed, file.hash.count == file.position else { return hasSentData }
        guard source.isUnchanged(file.descriptor, file.entry, file.version) else {
            throw FileFailure(.changed, "changed while it was sent")
        }
        // In `/proc`, for example, files have bytes although their size is 0.
        guard try file.descriptor.read(at: file.position, atMost: 1).isEmpty else {
            throw FileFailure(.changed, "has more bytes than its size says")
        }
        FileFrame.end(file.hash.current).append(to: &bytes)
        endCurrent()
        return true
    }

    /// Whether a part of the current file must still be hashed. If so, the sender goes on hashing,
    /// and does not wait for the peer.
    private var hasBacklog: Bool { current.map { $0.hash.count < $0.position } ?? false }

    /// Ends a file that the peer has already. If the file has changed since the offer, the peer has
    /// an old version. No frame can say this, because the file has ended for the peer.
    private func endStored() {
        let (entry, version) = announced[0]
        if !source.isInPlace(entry, version) {
            hasStaleFile = true
            state.failures.append(
                FileTransfer.Failure(
                    path: entry.path, problem: .changed, text: Self.changedSinceOffer))
        }
        endCurrent()
    }

    private static let changedSinceOffer = "changed since it was offered"

    private func endCurrent() {
        current = nil
        (owesAgain, hasFailedMidway) = (false, false)
        announced.removeFirst()
        answers.removeFirst()
        currentIndex += 1
    }

    private func fail(_ problem: FileProblem, _ text: String, _ bytes: inout [UInt8]) {
        state.failures.append(
            FileTransfer.Failure(path: announced[0].entry.path, problem: problem, text: text))
        FileFrame.skip(problem).append(to: &bytes)
        skippedFiles.insert(currentIndex)
        endCurrent()
    }

    // MARK: - Receiving

    /// Processes bytes that the peer sent.
    func receive(_ bytes: [UInt8]) throws(FileViolation) {
        reader.append(bytes)
        // The types from `accept` on are those that a receiver sends.
        while let frame = try reader.next(where: { $0.rawValue >= FileFrame.Kind.accept.rawValue })
        { try receive(frame) }
    }

    private func receive(_ frame: FileFrame) throws(FileViolation) {
        guard hasOffered, state.refusal == nil, state.name == nil else {
            throw FileViolation("an answer before the offer, or after its end")
        }
        switch frame {
        case .accept:
            guard !state.isAccepted else { throw FileViolation("a second answer to an offer") }
            state.isAccepted = true
            return
        case .refuse(let problem, let text):
            guard !state.isAccepted else { throw FileViolation("a refusal of what was accepted") }
            state.refusal = FileTransfer.Failure(
                path: source.offer.name, problem: problem, text: text)
            return
        default:
            guard state.isAccepted else { throw FileViolation("a frame before the answer") }
        }
        switch frame {
        case .from(let offset):
            guard offset <= (try firstUnanswered()).size else {
                throw FileViolation("more bytes held than a file has")
            }
            state.held += offset
            answers.append(.from(offset))
        case .have:
            state.held += (try firstUnanswered()).size
            answers.append(.have)
        case .agreed(let number), .restart(let number):
            // The file may have ended before this answer arrived.
            guard number >= UInt64(currentIndex) else { return }
            guard number == UInt64(currentIndex), var file = current, file.start > 0,
                !file.isAgreed, file.hasSentPrefix, !owesAgain
            else { throw FileViolation("a comparison with a hash that was not sent") }
            if case .agreed = frame { file.isAgreed = true } else { owesAgain = true }
            current = file
        case .received(let count):
            guard count <= source.offer.bytes else {
                throw FileViolation("more bytes received than were offered")
            }
            state.received = max(state.received, count)
        case .failed(let number, let problem): try failed(number, problem)
        case .stored(let count):
            // The peer's count may already include the next files, as far as the peer needs no data
            // of them.
            let answersWithoutData = answers.prefix { if case .from = $0 { false } else { true } }
            guard count >= UInt64(state.ended),
                count <= UInt64(currentIndex + answersWithoutData.count)
            else { throw FileViolation("files stored that were not sent") }
            state.ended = Int(count)
        case .done(let name):
            guard state.hasSentAll, state.ended == currentIndex, state.failures.count == 0 else {
                throw FileViolation("an end before all files have ended")
            }
            guard FileName.isAllowed(name, allowsHidden: true) else {
                throw FileViolation("a final name that is not allowed")
            }
            state.name = name
            state.received = source.offer.bytes
        default: throw FileViolation("a frame that does not belong here")
        }
    }

    /// The first announced file that the peer has not answered.
    private func firstUnanswered() throws(FileViolation) -> FileEntry {
        guard answers.count < announced.count else {
            throw FileViolation("an answer to a file that was not announced")
        }
        return announced[answers.count].entry
    }

    private func failed(_ number: UInt64, _ problem: FileProblem) throws(FileViolation) {
        if number == source.offer.files, source.offer.isFolder {
            // This number means a folder of the tree, or the tree itself.
            guard !hasTreeFailed else { throw FileViolation("a second failure of a tree") }
            hasTreeFailed = true
            return state.failures.append(
                FileTransfer.Failure(path: source.offer.name, problem: problem))
        }
        guard number >= UInt64(state.ended), number <= UInt64(currentIndex + answers.count),
            failedFiles.insert(number).inserted
        else { throw FileViolation("a failure of a file that was not announced, or a second one") }
        // The file's index in `announced`; negative if the file has ended on this side.
        let index = Int(number) - currentIndex
        if index == answers.count {
            _ = try firstUnanswered()
            answers.append(.failed)
        } else if index == 0 {
            // The peer drops the rest of the current file, so it is not sent.
            hasFailedMidway = true
        } else if index > 0 {
            throw FileViolation("a failure of a file that has not begun")
        }
        // The peer's report and this side's `skip` for the same file can cross.
        guard !skippedFiles.contains(Int(number)) else { return }
        state.failures.append(
            FileTransfer.Failure(path: source.path(ofFile: Int(number)) ?? "", problem: problem))
    }
}
