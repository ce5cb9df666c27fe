internal import BLESec
internal import BLESecFiles
internal import BLESecJSON
internal import BLESecLocking
internal import BLESecToolKit
internal import Glibc

/// The value of `--accept`.
enum AcceptChoice: Sendable {
    case ask
    /// Accept files and folders of at most this many bytes.
    case upTo(UInt64)
}

/// What two offers have in common if they count as the same offer.
struct OfferIdentity: Hashable {
    private let peer: PeerIdentity?
    private let id: [UInt8]
    private let version: [UInt8]
    private let isFolder: Bool
    private let name: String
    private let files: Int
    private let bytes: UInt64

    init(_ offer: FileOffer, _ peer: PeerIdentity?) {
        self.peer = peer
        (id, version) = (offer.id, offer.version)
        (isFolder, name) = (offer.isFolder, offer.name)
        (files, bytes) = (offer.files, offer.bytes)
    }
}

/// Decides whether an offered file or folder is accepted, and asks on the terminal if `--accept` is
/// `ask`.
actor AcceptQuestion {
    private let choice: AcceptChoice
    /// The offers that were accepted, and are not stored yet. A sender that is started anew makes
    /// the same offer again, and the user is not asked again.
    private var accepted: Set<OfferIdentity> = []
    /// The keys of the peers for which the answer was `all`.
    private var acceptedKeys: Set<Fingerprint> = []
    private let thread = BlockingThread.required()
    private var isAsking = false
    /// The offers that wait for the end of another offer's question, each under a number of its own,
    /// the ticket.
    private var waiting: [UInt64: CheckedContinuation<Void, Never>] = [:]
    private var lastTicket: UInt64 = 0
    /// Whether the last question ended because its offer was withdrawn.
    private var wasWithdrawn = false

    init(_ choice: AcceptChoice) { self.choice = choice }

    /// Called when an accepted offer is stored. If the same offer comes again, the user is asked
    /// again: the peer could offer other bytes as the same file.
    func noteStored(_ offer: OfferIdentity) { accepted.remove(offer) }

    /// What becomes of an offer; `withdrawn` if the sender no longer waits for an answer.
    enum Decision: Sendable { case accepted, refused(reason: String), withdrawn }

    /// Decides about an offer. A question ends when its offer is withdrawn. A question also ends
    /// when the task is cancelled; the result then means nothing.
    func decision(on offer: FileOffer, from peer: PeerIdentity?) async -> Decision {
        switch choice {
        case .upTo(let limit):
            guard offer.bytes > limit else { return .accepted }
            return .refused(reason: "it is larger than \(TransferDisplay.size(limit))")
        case .ask:
            let isGone = Locked(false)
            return await withTaskGroup(of: Decision.self) { group in
                group.addTask { await self.answer(to: offer, from: peer, isGone) }
                group.addTask {
                    await offer.waitUntilGone()
                    // A cancellation ends the wait too, and is no withdrawal.
                    if !Task.isCancelled { isGone.withLock { $0 = true } }
                    return .withdrawn
                }
                let first = await group.next() ?? .withdrawn
                group.cancelAll()
                return first
            }
        }
    }

    private func answer(
        to offer: FileOffer, from peer: PeerIdentity?, _ isGone: Locked<Bool>
    ) async -> Decision {
        let offered = OfferIdentity(offer, peer)
        // One question at a time.
        while isAsking, !Task.isCancelled { await waitForEndOfQuestion() }
        if Task.isCancelled { return .withdrawn }
        if accepted.contains(offered) { return .accepted }
        if let key = peer?.fingerprint, acceptedKeys.contains(key) { return .accepted }
        isAsking = true
        let answer = await ask(offer, peer, afterWithdrawal: wasWithdrawn)
        let isWithdrawn = isGone.withLock { $0 }
        if answer != .notAsked { wasWithdrawn = isWithdrawn }
        if isWithdrawn, answer != .notAsked {
            // The note is printed before the next question, so that nobody answers the next
            // question as if it were about this offer.
            Diagnostics.note(
                "\(offer.name) is no longer offered", "withdrawn", [("name", .string(offer.name))])
        }
        isAsking = false
        for waiter in waiting.values { waiter.resume() }
        waiting = [:]
        if isWithdrawn { return .withdrawn }
        switch answer {
        case .notAsked: return .withdrawn
        case .yes, .all:
            accepted.insert(offered)
            // A peer without a key cannot be distinguished from other peers.
            if answer == .all, let key = peer?.fingerprint { acceptedKeys.insert(key) }
            return .accepted
        case .no: return .refused(reason: "it was declined")
        case .noTerminal:
            Diagnostics.note(
                "there is no terminal to ask: start with --accept always, or --accept SIZE",
                "no-terminal")
            return .refused(reason: "nobody is there to accept it")
        }
    }

    /// Waits until a question ends, or the task is cancelled.
    private func waitForEndOfQuestion() async {
        lastTicket += 1
        let ticket = lastTicket
        await withTaskCancellationHandler {
            await withCheckedContinuation { waiter in
                if Task.isCancelled { waiter.resume() } else { waiting[ticket] = waiter }
            }
        } onCancel: {
            Task { await self.stopWaiting(ticket) }
        }
    }

    private func stopWaiting(_ ticket: UInt64) { waiting.removeValue(forKey: ticket)?.resume() }

    private enum Answer: Sendable {
        case yes, no, all, noTerminal
        /// The task was cancelled before the question was on the terminal.
        case notAsked
    }

    /// The time, in microseconds, that a person needs to notice that an offer was withdrawn. What
    /// is typed within this time may still be an answer to that offer's question.
    private static let reactionTime: UInt32 = 1_000_000

    /// Asks on the terminal. What was typed before the question is discarded. After a question
    /// whose offer was withdrawn, the next question waits for ``reactionTime``. The thread that
    /// asks does nothing else, so it may sleep.
    private func ask(
        _ offer: FileOffer, _ peer: PeerIdentity?, afterWithdrawal: Bool
    ) async -> Answer {
        let size = TransferDisplay.size(offer.bytes)
        let item = offer.isFolder ? "folder \(offer.name), \(offer.files) files" : offer.name
        let sender = peer?.description ?? "the peer"
        let question = "Take \(item), \(size), from \(sender)?"
        let isCancelled = Locked(false)
        return await withTaskCancellationHandler {
            await thread.run {
                let terminal = unsafe open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)
                guard terminal >= 0 else { return .noTerminal }
                defer { close(terminal) }
                if afterWithdrawal { usleep(Self.reactionTime) }
                var hasAsked = false
                while true {
                    // Text that still waits to be written to standard error is written first: it
                    // may contain escape sequences that would erase the question.
                    while isatty(STDERR_FILENO) == 1, StandardError.isBehind,
                        !isCancelled.withLock({ $0 })
                    {
                        usleep(10_000)
                    }
                    if isCancelled.withLock({ $0 }) { return hasAsked ? .no : .notAsked }
                    do throws(ChannelError) {
                        try TerminalQuestion.show(
                            question, answers: "y/n/all", on: terminal, discardsInput: !hasAsked)
                    } catch {
                        return .no
                    }
                    hasAsked = true
                    guard let line = Self.readLine(terminal, isCancelled) else {
                        // What is written next begins on a line of its own.
                        try? StandardOutput.write([UInt8(ascii: "\n")], to: terminal)
                        return .no
                    }
                    switch line.lowercased() {
                    case "y", "yes": return .yes
                    case "n", "no": return .no
                    case "a", "all": return .all
                    default: continue
                    }
                }
            }
        } onCancel: {
            isCancelled.withLock { $0 = true }
        }
    }

    /// The next line; nil at the end of the input, after an error, or after cancellation.
    private static func readLine(_ terminal: Int32, _ isCancelled: Locked<Bool>) -> String? {
        var line: [UInt8] = []
        var reads = TerminalReads(terminal)
        while line.count < 4_096 {
            // A cancellation is noticed within 200 ms.
            var entry = pollfd(fd: terminal, events: Int16(POLLIN), revents: 0)
            let ready = unsafe poll(&entry, 1, 200)
            if isCancelled.withLock({ $0 }) { return nil }
            if ready == 0 || (ready < 0 && errno == EINTR) { continue }
            var byte: UInt8 = 0
            let count = unsafe read(terminal, &byte, 1)
            if count < 0, errno == EINTR { continue }
            if count < 0, reads.mayRetry(after: errno) { continue }
            guard count == 1 else { return nil }
            if byte == UInt8(ascii: "\n") { break }
            line.append(byte)
        }
        return String(decoding: line, as: UTF8.self)
    }
}

/// Checks of the folder at a path.
enum FolderPath {
    static func isFolder(_ path: String) -> Bool {
        var status = stat()
        return unsafe stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
    }

    static func isWritable(_ path: String) -> Bool { unsafe access(path, W_OK | X_OK) == 0 }
}
