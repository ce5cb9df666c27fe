internal import BLESec
internal import BLESecFiles
internal import BLESecJSON
internal import BLESecLinks
internal import BLESecLocking
internal import BLESecToolKit

/// `blesec receive TARGET DIR`
enum ReceiveCommand {
    private static let accept = Option(
        name: "--accept", value: "WHAT",
        help: "Which files and folders to take. With ask (the default), blesec asks about each of "
            + "them on the terminal; the answer `all` is for this and all further offers of the "
            + "same key. With always, all of them are taken. With a size such as 10M, a file or "
            + "folder is taken if it has no more bytes than that. The units are K, M, G and T.")
    private static let overwrite = Option(
        name: "--overwrite",
        help: "Replace files of the same name. By default, the new file gets a number, as in "
            + "`photo (2).jpg`. A folder is never replaced: the new folder gets a number.")
    private static let hidden = Option(
        name: "--hidden", help: "Take files and folders whose names begin with a dot.")
    private static let quota = Option(
        name: "--quota", value: "SIZE",
        help: "The most bytes of incomplete files that a peer may have in DIR. By default there is "
            + "no limit but the free space.")
    private static let keep = Option(
        name: "--keep", help: "When the sender has ended, wait for the next one.")

    static let command = Command(
        name: "blesec receive", summary: "receive files and folders from a peer",
        operands: ["[TARGET]", "[DIR]"],
        options: TransferConnection.options + [accept, overwrite, hidden, quota, keep],
        description: [
            "Receives what a peer sends with `blesec send` into the folder DIR. TARGET is as for "
                + "`blesec send`: blesec dials it, or waits there with --listen. With --service "
                + "there is no TARGET.",
            "A file is under its final name only once it is complete, its SHA-256 is the sender's, "
                + "and it is on the disk. Nothing is ever overwritten, unless --overwrite is "
                + "given. Until a file is complete it is in DIR/.blesec-partial, under a name that "
                + "only this peer and this file have. An interrupted transfer goes on there. What "
                + "is not continued for 7 days is removed.",
            "A name is refused if it is not UTF-8, has control characters or characters that "
                + "change the direction of text, begins with a dot (without --hidden), or leads "
                + "out of DIR. Symbolic links are never followed. A file that does not fit on the "
                + "disk is refused before it is sent.",
            "The command ends when the sender has ended, or with Ctrl-C. The exit status is 0 if "
                + "everything that was accepted was stored.",
        ],
        examples: [
            "blesec receive unix:/run/peer . --listen --identity key --peer SHA256:...":
                "Wait for files of that peer, and ask about each of them.",
            "blesec receive ~/inbox --service UUID --identity key --peer SHA256:... --accept 10M "
                + "--keep": "Take files of up to 10 MiB from that peer, whenever it is nearby.",
        ],
        statuses: ChannelOptions.statuses, run: run)

    /// With --keep, the shortest time from the beginning of a connection that fails to the
    /// beginning of the next connection.
    private static let shortestRepetitionTime = Duration.seconds(1)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        var operands = arguments.operands
        let target = try TransferSetup.takeTarget(&operands, arguments)
        guard let folder = operands.first else { throw arguments.usage("DIR is missing") }
        guard operands.count == 1 else {
            throw arguments.usage("unexpected argument `\(operands[1])`")
        }
        var options = FileOffer.Options()
        options.allowsHidden = arguments.has(hidden)
        options.overwrites = arguments.has(overwrite)
        if let text = arguments.value(quota) {
            options.quota = try size(text, quota, arguments)
        }
        let choice: AcceptChoice
        switch arguments.value(accept) {
        case nil, "ask": choice = .ask
        case "always": choice = .upTo(.max)
        case let text?: choice = .upTo(try size(text, accept, arguments))
        }
        let inbox = Inbox(folder: folder, options: options, question: AcceptQuestion(choice))
        try inbox.check()
        let setup = try TransferSetup(arguments, target: target)
        let interruption = Interruption()
        let loop = EventLoop.shared
        repeat {
            let earliestRepetition = loop.now.advanced(by: shortestRepetitionTime)
            let transferConnection = try await setup.connect(interruption)
            do throws(ChannelError) {
                try await transferConnection.run { () async throws(ChannelError) in
                    try await inbox.receive(from: transferConnection.connection)
                }
            } catch {
                // As in `listen`, the time limit ends the command even with --keep. An error of
                // the configuration, or of a socket that this user may not dial, would only come
                // again.
                guard arguments.has(keep), interruption.error == nil,
                    !transferConnection.hasReachedTimeLimit, !transferConnection.isDenied,
                    error.code != .configuration
                else { throw error }
                Diagnostics.print(error)
                _ = try? await interruption.cancelling { () async throws(ChannelError) in
                    try? await loop.sleep(until: earliestRepetition)
                }
            }
            if let error = inbox.takeFailure() {
                guard arguments.has(keep) else { throw error }
            }
        } while arguments.has(keep) && interruption.error == nil
        if let error = interruption.error { throw error }
    }

    /// Parses a number of bytes, which may have one of the units K, M, G and T: powers of 1,024.
    private static func size(
        _ text: String, _ option: Option, _ arguments: Arguments
    ) throws(ChannelError) -> UInt64 {
        let units: [Character: UInt64] = ["K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40]
        var digits = text[...]
        var unit: UInt64 = 1
        if let last = digits.last?.uppercased().first, let known = units[last] {
            unit = known
            digits.removeLast()
        }
        guard digits.utf8.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }),
            let number = UInt64(digits)
        else {
            let words = option == accept ? "ask, always or " : ""
            throw arguments.usage(
                "\(option.name) is \(words)a size such as 500K, 10M or 2G, and not `\(text)`")
        }
        let (bytes, overflows) = number.multipliedReportingOverflow(by: unit)
        return overflows ? .max : bytes
    }
}

/// Receives files into a folder, and reports them.
private final class Inbox: Sendable {
    private let folder: String
    private let options: FileOffer.Options
    private let question: AcceptQuestion
    private let outcomes = Locked(Outcomes())

    init(folder: String, options: FileOffer.Options, question: AcceptQuestion) {
        self.folder = folder
        self.options = options
        self.question = question
    }

    func check() throws(ChannelError) {
        guard FolderPath.isFolder(folder) else {
            throw ChannelError(.cannotCreate, "\(folder) is no folder: make it first")
        }
        guard FolderPath.isWritable(folder) else {
            throw ChannelError(.cannotCreate, "\(folder) cannot be written to")
        }
    }

    /// Returns the error of the first accepted file that is not stored; nil if everything is
    /// stored. Forgets the errors of all files.
    func takeFailure() -> ChannelError? {
        outcomes.withLock { outcomes in
            defer { outcomes.missing = MissingFiles() }
            return outcomes.missing.failure
        }
    }

    /// Receives files until the sender has ended, or throws. Returns true, which tells
    /// ``TransferConnection/run(endsWhenInterrupted:_:)`` to close the connection in good order.
    func receive(from connection: PeerConnection) async throws(ChannelError) -> Bool {
        let display = TransferDisplay()
        let session = ReceivingSession()
        await withDiscardingTaskGroup { group in
            group.addTask { await Forwarder.refuseStreams(of: connection) }
            for await offer in connection.incomingFiles(in: session) {
                group.addTask { await self.handle(offer, from: connection, display) }
            }
        }
        if Task.isCancelled { throw ChannelError(.cancelled, "interrupted") }
        let status = await connection.status
        if status.state == .closed, let failure = status.failure { throw failure }
        await session.end()
        return true
    }

    /// Adds the remedy to the error for a name that begins with a dot.
    private func explained(_ error: ChannelError, _ offer: FileOffer) -> ChannelError {
        guard error.code == .refused, !options.allowsHidden,
            FileName.isAllowed(offer.name, allowsHidden: true),
            !FileName.isAllowed(offer.name, allowsHidden: false)
        else { return error }
        return ChannelError(
            .refused,
            "\(offer.name) is not taken, since its name begins with a dot: start with --hidden")
    }

    /// Asks whether the offer is accepted, and then refuses it or receives it.
    private func handle(
        _ offer: FileOffer, from connection: PeerConnection, _ display: TransferDisplay
    ) async {
        let peer = await connection.status.peer
        display.pause()
        let identity = OfferIdentity(offer, peer)
        let decision = await question.decision(on: offer, from: peer)
        display.resume()
        // After Ctrl-C, nobody has declined the offer; the sender learns that this side has ended.
        guard !Task.isCancelled else { return await offer.cancel() }
        switch decision {
        case .accepted: break
        case .refused(let reason):
            Diagnostics.note(
                "refused \(offer.name): \(reason)", "refused",
                [("name", .string(offer.name)), ("reason", .string(reason))])
            return await offer.refuse(.declined, reason)
        case .withdrawn: return
        }
        let start = ContinuousClock.now
        // The user's answer is forgotten before the sender learns that the file is stored. From
        // then on, the sender could offer other bytes as the same file.
        let transfer = offer.accept(into: folder, options) { [question] in
            await question.noteStored(identity)
        }
        let showing = Task(executorPreference: connection.loop) { await display.follow(transfer) }
        let result = await withTaskCancellationHandler {
            await transfer.outcome()
        } onCancel: {
            transfer.cancel()
        }
        await showing.value
        do throws(ChannelError) {
            let name = try result.get()
            await question.noteStored(identity)
            let isNew = outcomes.withLock { outcomes in
                outcomes.missing.remove(offer)
                return outcomes.reported.insert(identity)
            }
            if transfer.wasStoredBefore, !isNew {
                // The file was reported as received before. The sender, perhaps a new process, has
                // offered it again.
                display.erase()
            } else {
                let seconds = (ContinuousClock.now - start) / .seconds(1)
                display.end(
                    transfer,
                    "received \(name): " + TransferText.summary(transfer, seconds: seconds),
                    "received", TransferText.members(transfer, name, seconds: seconds))
            }
        } catch let cause {
            let error = explained(cause, offer)
            outcomes.withLock { outcomes in
                // A second copy of an offer is refused as `busy` while the first copy is received.
                // If the first copy was stored meanwhile, nothing is missing.
                let isFirstCopyStored =
                    error.code == .busy && outcomes.reported.contains(identity)
                if !isFirstCopyStored { outcomes.missing.add(offer, error) }
            }
            display.end(
                transfer, "\(transfer.name): \(error.reason)", "not-received",
                [("name", .string(transfer.name))] + error.members, isFailure: true)
            if Task.isCancelled {
                Diagnostics.note(
                    "what has arrived stays for 7 days; to go on, start both commands again",
                    "resumable")
            }
        }
        // Before the command ends, the sender should learn that everything is stored.
        await withTaskCancellationHandler {
            await transfer.waitUntilSettled()
        } onCancel: {
            transfer.cancel()
        }
    }
}

/// What has become of the accepted offers.
private struct Outcomes {
    var missing = MissingFiles()
    var reported = ReportedOffers()
}

/// The last offers that were reported as received. If the sender does not learn that an offer is
/// stored, the sender repeats the offer; the command reports the offer only once.
private struct ReportedOffers {
    private var offers: [OfferIdentity] = []
    private static let limit = 1_000

    func contains(_ offer: OfferIdentity) -> Bool { offers.contains(offer) }

    /// Adds an offer, and returns whether it is new.
    mutating func insert(_ offer: OfferIdentity) -> Bool {
        guard !contains(offer) else { return false }
        if offers.count == Self.limit { offers.removeFirst() }
        offers.append(offer)
        return true
    }
}

/// The accepted files and folders whose transfer has failed, and that were not stored later. The
/// sender may offer such a file again: after the sender's process was replaced, or after this side
/// has answered `busy` because an earlier transfer of the file had not ended.
private struct MissingFiles {
    /// What identifies an offer. The name is compared too, since a peer may give the same id to
    /// different files, by mistake or to deceive.
    private struct Key: Equatable {
        let id: [UInt8]
        let name: String

        init(_ offer: FileOffer) { (id, name) = (offer.id, offer.name) }
    }

    private var offers: [(key: Key, failure: ChannelError)] = []
    /// The most failed offers that are kept. Further failed offers count as missing, even if they
    /// are stored later.
    private static let limit = 1_000
    private var failureBeyondLimit: ChannelError?

    var failure: ChannelError? { offers.first?.failure ?? failureBeyondLimit }

    mutating func add(_ offer: FileOffer, _ failure: ChannelError) {
        let key = Key(offer)
        guard !offers.contains(where: { $0.key == key }) else { return }
        if offers.count < Self.limit {
            offers.append((key, failure))
        } else {
            failureBeyondLimit = failureBeyondLimit ?? failure
        }
    }

    mutating func remove(_ offer: FileOffer) {
        let key = Key(offer)
        offers.removeAll { $0.key == key }
    }
}
