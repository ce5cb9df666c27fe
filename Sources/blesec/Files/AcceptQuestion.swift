internal import BLESec
internal import BLESecFiles
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
    private var waiting: [CheckedContinuation<Void, Never>] = []

    init(_ choice: AcceptChoice) { self.choice = choice }

    /// Called when an accepted offer is stored. If the same offer comes again, the user is asked
    /// again: the peer could offer other bytes as the same file.
    func noteStored(_ offer: OfferIdentity) { accepted.remove(offer) }

    /// What becomes of an offer. It is withdrawn if its sender no longer waits for an answer.
    enum Decision: Sendable { case accepted, refused(reason: String), withdrawn }

    /// Decides about an offer. A question ends if its offer is withdrawn. It also ends when the task
    /// is cancelled, and then the result means nothing.
    func decision(on offer: FileOffer, from peer: PeerIdentity?) async -> Decision {
        switch choice {
        case .upTo(let limit):
            guard offer.bytes > limit else { return .accepted }
            return .refused(reason: "it is larger than \(TransferDisplay.size(limit))")
        case .ask:
            return await withTaskGroup(of: Decision.self) { group in
                group.addTask { await self.answer(to: offer, from: peer) }
                group.addTask {
                    await offer.waitUntilGone()
                    return .withdrawn
                }
                let first = await group.next() ?? .withdrawn
                group.cancelAll()
                return first
            }
        }
    }

    private func answer(to offer: FileOffer, from peer: PeerIdentity?) async -> Decision {
        let offered = OfferIdentity(offer, peer)
        // One question at a time.
        while isAsking { await withCheckedContinuation { waiting.append($0) } }
        if accepted.contains(offered) { return .accepted }
        if let key = peer?.fingerprint, acceptedKeys.contains(key) { return .accepted }
        isAsking = true
        let answer = await ask(offer, peer)
        isAsking = false
        for waiter in waiting { waiter.resume() }
        waiting = []
        switch answer {
        case .yes, .always:
            accepted.insert(offered)
            // A peer without a key cannot be told from others.
            if answer == .always, let key = peer?.fingerprint { acceptedKeys.insert(key) }
            return .accepted
        case .no: return .refused(reason: "it was declined")
        case .noTerminal:
            Diagnostics.note(
                "there is no terminal to ask: start with --accept always, or --accept SIZE",
                "no-terminal")
            return .refused(reason: "nobody is there to accept it")
        }
    }

    private enum Answer: Sendable { case yes, no, always, noTerminal }

    private func ask(_ offer: FileOffer, _ peer: PeerIdentity?) async -> Answer {
        let size = TransferDisplay.size(offer.bytes)
        let item = offer.isFolder ? "folder \(offer.name), \(offer.files) files" : offer.name
        let sender = peer?.description ?? "the peer"
        let prompt = Diagnostics.oneLine("Take \(item), \(size), from \(sender)?") + " [y/n/all] "
        let isCancelled = Locked(false)
        return await withTaskCancellationHandler {
            await thread.run {
                let terminal = unsafe open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)
                guard terminal >= 0 else { return .noTerminal }
                defer { close(terminal) }
                while true {
                    // Everything that waits for standard error comes first: it may contain escape
                    // sequences that would erase the question. This thread only asks the question,
                    // so it may sleep.
                    while isatty(STDERR_FILENO) == 1, StandardError.isBehind,
                        !isCancelled.withLock({ $0 })
                    {
                        usleep(10_000)
                    }
                    if isCancelled.withLock({ $0 }) { return .no }
                    guard (try? StandardOutput.write(Array(prompt.utf8), to: terminal)) != nil
                    else { return .no }
                    guard let line = Self.readLine(terminal, isCancelled) else {
                        // What is written next begins on a line of its own.
                        try? StandardOutput.write([UInt8(ascii: "\n")], to: terminal)
                        return .no
                    }
                    switch line.lowercased() {
                    case "y", "yes": return .yes
                    case "n", "no": return .no
                    case "a", "all": return .always
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
        while line.count < 4_096 {
            var entry = pollfd(fd: terminal, events: Int16(POLLIN), revents: 0)
            let ready = unsafe poll(&entry, 1, 200)
            if isCancelled.withLock({ $0 }) { return nil }
            if ready == 0 || (ready < 0 && errno == EINTR) { continue }
            var byte: UInt8 = 0
            let count = unsafe read(terminal, &byte, 1)
            if count < 0, errno == EINTR { continue }
            // The line was typed for another program, as long as this one is in the background.
            // Since this thread blocks SIGTTIN, the read fails, and does not stop the process.
            if count < 0, errno == EIO, tcgetpgrp(terminal) != getpgrp() {
                usleep(200_000)
                continue
            }
            guard count == 1 else { return nil }
            if byte == UInt8(ascii: "\n") { break }
            line.append(byte)
        }
        return String(decoding: line, as: UTF8.self)
    }
}

/// Checks of a folder that a path names.
enum FolderPath {
    static func isFolder(_ path: String) -> Bool {
        var status = stat()
        return unsafe stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
    }

    static func isWritable(_ path: String) -> Bool { unsafe access(path, W_OK | X_OK) == 0 }
}
