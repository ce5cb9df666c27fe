/// The sender's end of a stream of files. It reads files and no stream; its owner passes it the
/// peer's bytes, and sends what ``next()`` returns. Used on one thread.
final class FileSender {
    /// What the owner does next.
    enum Step: Sendable {
        /// Sends these bytes, and asks again.
        case send([UInt8])
        /// Asks again when the peer has sent something.
        case wait
        /// Ends the stream's direction.
        case finish
    }

    /// How far the peer is.
    struct State: Sendable, Equatable {
        var isAccepted = false
        var hasSentAll = false
        /// How many bytes the peer has written, or had before.
        var received: UInt64 = 0
        /// How many of these it had before.
        var held: UInt64 = 0
        /// How many files have ended, stored or not.
        var ended = 0
        var failures = FailureList()
        /// Under which name the peer has stored everything.
        var name: String?
        /// Why the peer has refused the offer.
        var refusal: FileTransfer.Failure?
    }

    private enum Answer { case from(UInt64), have, failed }

    /// The file that is being sent.
    private struct Current {
        let file: Descriptor
        let entry: FileEntry
        let version: FileSource.Version
        /// Where sending began, and the offset of the next byte.
        var start: UInt64
        var position: UInt64
        var hasSentPrefix: Bool
        var isAgreed: Bool
        let hash = RunningHash()
    }

    private(set) var state = State()
    private let source: FileSource
    private var reader = FileFrameReader()
    private var hasOffered = false
    /// How many of the source's entries, and of its files, have been announced.
    private var announcedEntries = 0
    private var announced: [(entry: FileEntry, version: FileSource.Version)] = []
    /// The peer's answers from the current file on, and the number of the current file.
    private var answers: [Answer] = []
    private var index = 0
    private var current: Current?
    private var owesAgain = false
    /// The files that the peer could not store, and whether it could not store the tree itself.
    private var failed: Set<UInt64> = []
    private var hasTreeFailed = false
    /// Whether the peer has given up the current file.
    private var hasFailedMidway = false

    /// About how many bytes a step has.
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
        bytes.reserveCapacity(Self.stepSize + FileFrame.longest)
        var isWaiting = false
        while bytes.count < Self.stepSize, !isWaiting {
            announce(to: &bytes)
            if announced.isEmpty, announcedEntries == source.entries.count {
                state.hasSentAll = true
                return bytes.isEmpty ? .finish : .send(bytes)
            }
            isWaiting = !sendCurrent(to: &bytes)
        }
        if !bytes.isEmpty { return .send(bytes) }
        return hasBacklog ? .send([]) : .wait
    }

    private func announce(to bytes: inout [UInt8]) {
        while announced.count < FileFrame.mostAhead, announcedEntries < source.entries.count,
            bytes.count < Self.stepSize
        {
            switch source.entries[announcedEntries] {
            case .folder(let path): FileFrame.folder(path).append(to: &bytes)
            case .file(let entry, let version):
                announced.append((entry, version))
                FileFrame.file(entry).append(to: &bytes)
            }
            announcedEntries += 1
        }
    }

    /// Sends a piece of the current file; returns false if that waits for the peer.
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
                case .have, .failed:
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
            throw FileFailure(.changed, "changed since it was announced")
        }
        current = Current(
            file: file, entry: entry, version: version, start: start, position: start,
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
        var hasMoved = false
        if file.position < file.entry.size {
            let count = min(file.entry.size - file.position, UInt64(FileFrame.longestData))
            let data = try file.file.read(at: file.position, atMost: Int(count))
            guard data.count == Int(count) else {
                throw FileFailure(.changed, "became shorter while it was sent")
            }
            FileFrame.data(data).append(to: &bytes)
            file.hash.add(data, at: file.position)
            file.position += count
            hasMoved = true
        }
        if file.hash.count < file.position {
            // The prefix, and what was sent before it was hashed.
            let end = file.hasSentPrefix ? file.position : file.start
            try file.hash.catchUp(with: file.file, to: end)
            if !file.hasSentPrefix, file.hash.count == file.start {
                FileFrame.prefix(file.hash.current).append(to: &bytes)
                file.hasSentPrefix = true
            }
        }
        guard file.position == file.entry.size else { return true }
        guard file.isAgreed, file.hash.count == file.position else { return hasMoved }
        guard source.isUnchanged(file.file, file.entry, file.version) else {
            throw FileFailure(.changed, "changed while it was sent")
        }
        FileFrame.end(file.hash.current).append(to: &bytes)
        endCurrent()
        return true
    }

    /// Whether a part of the current file is still to be hashed, so that waiting is no use.
    private var hasBacklog: Bool { current.map { $0.hash.count < $0.position } ?? false }

    private func endCurrent() {
        current = nil
        (owesAgain, hasFailedMidway) = (false, false)
        announced.removeFirst()
        answers.removeFirst()
        index += 1
    }

    private func fail(_ problem: FileProblem, _ text: String, _ bytes: inout [UInt8]) {
        state.failures.append(
            FileTransfer.Failure(path: announced[0].entry.path, problem: problem, text: text))
        FileFrame.skip(problem).append(to: &bytes)
        endCurrent()
    }

    // MARK: - Receiving

    /// Takes bytes of the peer.
    func receive(_ bytes: [UInt8]) throws(FileViolation) {
        reader.append(bytes)
        while let frame = try reader.next(where: { $0.rawValue >= FileFrame.Kind.accept.rawValue })
        { try receive(frame) }
    }

    private func receive(_ frame: FileFrame) throws(FileViolation) {
        guard hasOffered, state.refusal == nil, state.name == nil else {
            throw FileViolation("an answer to nothing")
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
            guard state.isAccepted else { throw FileViolation("an answer before the first one") }
        }
        switch frame {
        case .from(let offset):
            guard offset <= (try unanswered()).size else {
                throw FileViolation("more bytes held than a file has")
            }
            state.held += offset
            add(.from(offset))
        case .have:
            state.held += (try unanswered()).size
            add(.have)
        case .agreed(let number), .restart(let number):
            // The file may have ended meanwhile.
            guard number >= UInt64(index) else { return }
            guard number == UInt64(index), var file = current, file.start > 0, !file.isAgreed,
                file.hasSentPrefix, !owesAgain
            else { throw FileViolation("a hash compared that was not sent") }
            if case .agreed = frame { file.isAgreed = true } else { owesAgain = true }
            current = file
        case .received(let count):
            guard count <= source.offer.bytes else { throw FileViolation("more bytes than sent") }
            state.received = max(state.received, count)
        case .failed(let number, let problem): try failed(number, problem)
        case .stored(let count):
            let next = answers.prefix { if case .from = $0 { false } else { true } }
            guard count >= UInt64(state.ended), count <= UInt64(index + next.count) else {
                throw FileViolation("files stored that were not sent")
            }
            state.ended = Int(count)
        case .done(let name):
            guard state.hasSentAll, state.ended == index, state.failures.count == 0 else {
                throw FileViolation("an end before all files have ended")
            }
            guard FileName.isAllowed(name, allowsHidden: true) else {
                throw FileViolation("a final name that is none")
            }
            state.name = name
            state.received = source.offer.bytes
        default: throw FileViolation("a frame that does not belong here")
        }
    }

    private func unanswered() throws(FileViolation) -> FileEntry {
        guard answers.count < announced.count else { throw FileViolation("an answer to nothing") }
        return announced[answers.count].entry
    }

    private func add(_ answer: Answer) { answers.append(answer) }

    private func failed(_ number: UInt64, _ problem: FileProblem) throws(FileViolation) {
        if number == source.offer.files, source.offer.isFolder {
            // A folder, or the tree itself.
            guard !hasTreeFailed else { throw FileViolation("a second failure of a tree") }
            hasTreeFailed = true
            return state.failures.append(
                FileTransfer.Failure(path: source.offer.name, problem: problem))
        }
        guard number >= UInt64(state.ended), number <= UInt64(index + answers.count),
            failed.insert(number).inserted
        else { throw FileViolation("a failure of a file that was not announced, or a second one") }
        let ahead = Int(number) - index
        if ahead == answers.count {
            _ = try unanswered()
            add(.failed)
        } else if ahead == 0 {
            // The rest of the current file is of no use.
            hasFailedMidway = true
        } else if ahead > 0 {
            throw FileViolation("a failure of a file that has not begun")
        }
        state.failures.append(
            FileTransfer.Failure(path: source.path(ofFile: Int(number)) ?? "", problem: problem))
    }
}
