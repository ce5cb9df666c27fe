internal import BLESec
internal import BLESecFiles
internal import BLESecJSON
internal import BLESecLocking
internal import BLESecToolKit

/// `blesec send TARGET FILE…`
enum SendCommand {
    private static let hidden = Option(
        name: "--hidden",
        help: "In a folder, also send the files and folders whose names begin with a dot. The "
            + "receiver needs --hidden, too.")

    static let command = Command(
        name: "blesec send", summary: "send files and folders to a peer",
        operands: ["[TARGET]", "[FILE]..."],
        options: TransferConnection.options + [hidden],
        description: [
            "Sends each FILE, a file or a folder with what is in it, to a peer that runs "
                + "`blesec receive`. In a folder, names that begin with a dot are left out without "
                + "--hidden. TARGET is an endpoint, service:UUID, peer:NAME or peer:KEY, as "
                + "for `blesec connect`. With --listen, blesec waits at TARGET instead. With "
                + "--service there is no TARGET: both sides look for each other.",
            "While the peer is out of reach, blesec looks for it. A lost link only delays the "
                + "transfer. If either process ends, or the receiver has not taken everything, start "
                + "the same command again. For 7 days, what the receiver has stored is not sent "
                + "again, unless either side has changed it. If the receiver has a part of another "
                + "file, the hashes of this part are compared, and the part is not sent again "
                + "either. When everything that can be sent is sent, the same command sends it anew.",
            "A file counts as sent when the peer has it under its final name and on its disk, and "
                + "its SHA-256 is that of the bytes that the sender read. Only then is 100 % shown. "
                + "A file that is changed while it is sent is not stored, and the exit status says "
                + "so. Times of modification and the executable bit are sent as well. Symbolic "
                + "links in a folder are neither followed nor sent. A file in a folder that cannot "
                + "be read, or whose name cannot be sent, is left out, and the exit status says so.",
            "On a terminal, a line shows the progress of the current file, and a second line the "
                + "progress of all files. With --json, an object each second says the same, and "
                + "the error with which the command fails is the last object. Ctrl-C "
                + "ends the transfer and tells the peer, which keeps what has arrived.",
        ],
        examples: [
            "blesec send unix:/run/peer photo.jpg --identity key --peer SHA256:...":
                "Send a file to a peer that waits there.",
            "blesec send peer:lamp firmware/ --identity key":
                "Send a folder to a remembered peer, whenever it is nearby.",
            "blesec send --service UUID log --identity key --peer SHA256:...":
                "Send a file to a peer that looks for the same service.",
        ],
        statuses: ChannelOptions.statuses, run: run)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        var files = arguments.operands
        let target = try TransferSetup.takeTarget(&files, arguments)
        guard !files.isEmpty else { throw arguments.usage("FILE is missing") }
        try checkReadable(files)
        let setup = try TransferSetup(arguments, target: target)
        let transferConnection = try await setup.connect(Interruption())
        let paths = files
        let sendsHidden = arguments.has(hidden)
        let firstError = Locked<ChannelError?>(nil)
        try await transferConnection.run(endsWhenInterrupted: true) {
            () async throws(ChannelError) in
            try await send(paths, sendsHidden, over: transferConnection.connection, firstError)
            return true
        }
        if let error = firstError.withLock({ $0 }) { throw error }
    }

    /// Checks that all files and folders can be read, before the search for a peer begins.
    private static func checkReadable(_ paths: [String]) throws(ChannelError) {
        for path in paths where !SourcePath(path).isReadable {
            throw ChannelError(.noSuchFile, "\(path) is no file or folder that can be read")
        }
    }

    /// Sends one file after another. A file that fails is reported, and the other files are still
    /// sent. If nothing can be offered, throws at once, so that nobody waits for the peer.
    private static func send(
        _ paths: [String], _ sendsHidden: Bool, over connection: PeerConnection,
        _ firstError: Locked<ChannelError?>
    ) async throws(ChannelError) {
        let display = TransferDisplay(total: (paths.count, totalBytes(paths)))
        let refusing = Task(executorPreference: connection.loop) {
            await Forwarder.refuseStreams(of: connection)
        }
        defer { refusing.cancel() }
        var hasOffered = false
        for path in paths {
            let start = ContinuousClock.now
            let transfer: FileTransfer
            let omissionError = Locked<ChannelError?>(nil)
            do throws(ChannelError) {
                transfer = try await connection.sendFile(path, sendsHidden: sendsHidden) {
                    omission in
                    // Symbolic links, devices and pipes are never sent, so to omit one is no error.
                    let isFailure = omission.problem != .other
                    Diagnostics.note(
                        "not sent: \(omission.path): \(omission.text)", "omitted",
                        [("path", .string(omission.path)), ("reason", .string(omission.text))],
                        at: isFailure ? -1 : 0)
                    guard isFailure else { return }
                    let error = ChannelError(
                        .incomplete, "some files of \(path) were not sent")
                    omissionError.withLock { $0 = $0 ?? error }
                }
            } catch {
                // The command prints the first error when it ends, which may be much later. So with
                // several files, each error is also reported here.
                if paths.count > 1 {
                    Diagnostics.note(
                        error.reason, "not-sent", [("name", .string(path))] + error.members,
                        at: -1)
                }
                firstError.withLock { $0 = $0 ?? error }
                continue
            }
            hasOffered = true
            do throws(ChannelError) {
                let name = try await finish(transfer, display)
                let seconds = (ContinuousClock.now - start) / .seconds(1)
                display.end(
                    transfer,
                    "sent \(transfer.name)\(name == transfer.name ? "" : " as \(name)"): "
                        + TransferText.summary(transfer, seconds: seconds), "sent",
                    TransferText.members(transfer, name, seconds: seconds))
                if let error = omissionError.withLock({ $0 }) {
                    firstError.withLock { $0 = $0 ?? error }
                }
            } catch {
                display.end(
                    transfer, "\(transfer.name): \(error.reason)", "not-sent",
                    [("name", .string(transfer.name))] + error.members, isFailure: true)
                for failure in transfer.failures.prefix(8) where transfer.isFolder {
                    Diagnostics.note(
                        "not stored: \(failure.path): \(failure.problem.meaning)", "not-stored",
                        [("path", .string(failure.path))])
                }
                if error.code == .cancelled, Task.isCancelled {
                    Diagnostics.note(
                        "to go on, start this command again, and the receiver's if it has ended",
                        "resumable")
                    throw error
                }
                // Without a connection, the other files cannot be sent either.
                if await connection.status.state == .closed { throw error }
                firstError.withLock { $0 = $0 ?? error }
            }
        }
        if !hasOffered, let error = firstError.withLock({ $0 }) { throw error }
    }

    /// The bytes of all files; nil if there is a folder, whose files are not counted yet.
    private static func totalBytes(_ paths: [String]) -> UInt64? {
        var total: UInt64 = 0
        for path in paths {
            guard let bytes = SourcePath(path).bytes else { return nil }
            total = bytes > .max - total ? .max : total + bytes
        }
        return total
    }

    /// Shows the progress of a transfer until it has ended. Returns the name under which the peer has
    /// stored the file or folder.
    private static func finish(
        _ transfer: FileTransfer, _ display: TransferDisplay
    ) async throws(ChannelError) -> String {
        let showing = Task(executorPreference: EventLoop.shared) {
            await display.follow(transfer)
        }
        let result = await withTaskCancellationHandler {
            await transfer.outcome()
        } onCancel: {
            transfer.cancel()
        }
        await showing.value
        return try result.get()
    }
}
