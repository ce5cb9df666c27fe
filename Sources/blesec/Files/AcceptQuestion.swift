internal import BLESec
internal import BLESecFiles
internal import BLESecLocking
internal import BLESecToolKit
internal import Glibc

/// What `--accept` says.
enum AcceptChoice: Sendable {
    case ask
    case upTo(UInt64)
}

/// Decides whether a file is taken, and asks on the terminal for that.
actor AcceptQuestion {
    private let choice: AcceptChoice
    /// What was accepted before: the same offer comes again when the sender is started anew.
    private var accepted: Set<Offered> = []

    /// What a person was asked about.
    private struct Offered: Hashable {
        let peer: String
        let id: [UInt8]
        let isFolder: Bool
        let name: String
        let files: Int
        let bytes: UInt64

        init(_ offer: FileOffer, _ peer: String) {
            self.peer = peer
            (id, isFolder, name) = (offer.id, offer.isFolder, offer.name)
            (files, bytes) = (offer.files, offer.bytes)
        }
    }
    private var acceptsAll = false
    private let thread = BlockingThread.required()
    private var isAsking = false
    private var waiting: [CheckedContinuation<Void, Never>] = []

    init(_ choice: AcceptChoice) { self.choice = choice }

    /// Why an offer is not taken; nil if it is.
    func refusal(of offer: FileOffer, from peer: String) async -> String? {
        switch choice {
        case .upTo(let limit):
            guard offer.bytes > limit else { return nil }
            return "it is larger than \(TransferDisplay.size(limit))"
        case .ask:
            let offered = Offered(offer, peer)
            // One question at a time.
            while isAsking { await withCheckedContinuation { waiting.append($0) } }
            if acceptsAll || accepted.contains(offered) { return nil }
            isAsking = true
            let answer = await ask(offer, peer)
            isAsking = false
            for waiter in waiting { waiter.resume() }
            waiting = []
            switch answer {
            case .yes:
                accepted.insert(offered)
                return nil
            case .always:
                acceptsAll = true
                return nil
            case .no: return "it was declined"
            case .noTerminal:
                Diagnostics.note(
                    "there is no terminal to ask: start with --accept always, or --accept SIZE",
                    "no-terminal")
                return "nobody is there to accept it"
            }
        }
    }

    private enum Answer: Sendable { case yes, no, always, noTerminal }

    private func ask(_ offer: FileOffer, _ peer: String) async -> Answer {
        let size = TransferDisplay.size(offer.bytes)
        let what = offer.isFolder ? "folder \(offer.name), \(offer.files) files" : offer.name
        let prompt = Diagnostics.oneLine("Take \(what), \(size), from \(peer)?") + " [y/n/all] "
        let isOver = Locked(false)
        return await withTaskCancellationHandler {
            await thread.run {
                let terminal = unsafe open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)
                guard terminal >= 0 else { return .noTerminal }
                defer { close(terminal) }
                while true {
                    guard (try? StandardOutput.write(Array(prompt.utf8), to: terminal)) != nil,
                        let line = Self.readLine(terminal, isOver)
                    else { return .no }
                    switch line.lowercased() {
                    case "y", "yes": return .yes
                    case "n", "no": return .no
                    case "a", "all": return .always
                    default: continue
                    }
                }
            }
        } onCancel: {
            isOver.withLock { $0 = true }
        }
    }

    /// The next line; nil at the end, or when nobody waits for it any more.
    private static func readLine(_ terminal: Int32, _ isOver: Locked<Bool>) -> String? {
        var line: [UInt8] = []
        while line.count < 4_096 {
            var entry = pollfd(fd: terminal, events: Int16(POLLIN), revents: 0)
            let ready = unsafe poll(&entry, 1, 200)
            if isOver.withLock({ $0 }) { return nil }
            if ready == 0 || ready < 0 && errno == EINTR { continue }
            var byte: UInt8 = 0
            let count = unsafe read(terminal, &byte, 1)
            if count < 0, errno == EINTR { continue }
            guard count == 1 else { return nil }
            if byte == UInt8(ascii: "\n") { break }
            line.append(byte)
        }
        return String(decoding: line, as: UTF8.self)
    }
}

/// A folder by its path.
enum FolderPath {
    static func isFolder(_ path: String) -> Bool {
        var status = stat()
        return unsafe stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
    }

    static func isWritable(_ path: String) -> Bool { unsafe access(path, W_OK | X_OK) == 0 }
}
