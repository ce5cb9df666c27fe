internal import BLESec
internal import BLESecStore
internal import BLESecToolKit

/// The options of connections that reconnect.
enum PersistentArguments {
    static let persist = Option(
        name: "--persist",
        help: "Whenever the link is lost, get a new one, until both sides have sent everything. "
            + "What each side sends arrives exactly once. The peer needs --persist, too.")

    static let idle = Option(
        name: "--idle", value: "SECONDS",
        help: "Treat the peer as lost after it has sent nothing for this time. The peer is pinged "
            + "after half of this time. The default is 20 seconds. `listen` and `connect` take this "
            + "option only with --persist; without --persist, the time is 60 seconds.")

    /// The configuration of a channel that carries messages exactly once, and detects a lost peer
    /// quickly.
    static func configuration(
        _ options: ChannelOptions, _ arguments: Arguments
    ) throws(ChannelError) -> ChannelConfiguration {
        var configuration = options.configuration
        guard configuration.mode == .negotiated else {
            throw arguments.usage(
                "a connection that reconnects needs acknowledgements, which "
                    + "\(ChannelOptions.direct.name) does not have")
        }
        configuration.timeouts.idle = try Seconds.read(arguments, idle) ?? .seconds(20)
        configuration.carriesDelivery = true
        return configuration
    }

    static let store = Option(
        name: "--store", value: "DIR",
        help:
            "Keep what is not confirmed yet in DIR, so that it outlives this process. To continue, "
            + "start the same command again, with the same --input and --output if it had them. "
            + "Without --input, standard input is sent from its beginning again. Without --output, "
            + "standard output gets only what follows. DIR is for one transfer. Once everything "
            + "was queued for sending, standard input is not read any more. The exit status is then "
            + "65 if bytes wait there at the end, or if the file of --input has got more bytes. When "
            + "everything was sent and received, blesec "
            + "only tells the peer so: it waits at most 30 seconds for a link, or the time of "
            + "--timeout, and the exit status is 0. `blesec outbox DIR list` shows what waits. Goes with "
            + "--persist, one --peer, and --identity or --certificate.")
    static let input = Option(
        name: "--input", value: "FILE",
        help:
            "Send FILE, a regular file, instead of standard input. With --store, a command that is "
            + "started again continues where it was. Goes with --persist.")
    static let output = Option(
        name: "--output", value: "FILE",
        help:
            "Write to FILE, a regular file that is empty or does not exist, instead of to standard "
            + "output. With --store, FILE has each byte once, even if the machine crashes. "
            + "Goes with --persist.")

    static let all = [persist, idle, store, input, output]

    /// Refuses options that need `--persist`.
    static func refuseWithoutPersist(_ arguments: Arguments) throws(ChannelError) {
        try arguments.refuse([idle, store, input, output], "goes with \(persist.name)")
    }

    /// The guarantee that messages arrive exactly once. This side confirms a message when it has
    /// written the message to its output.
    static func delivery(_ store: PeerConnection.Store? = nil) -> PeerConnection.Guarantee {
        var options = PeerConnection.DeliveryOptions()
        options.acknowledgement = .manual
        options.store = store
        return .exactlyOnce(options)
    }

    /// Opens the store that the arguments name, for the one peer that is accepted.
    private static func openStore(
        _ arguments: Arguments, _ options: ChannelOptions, to peer: PeerKey?
    ) throws(ChannelError) -> PeerConnection.Store? {
        guard let directory = arguments.value(store) else { return nil }
        let keys = try arguments.values(ChannelOptions.peer).map(PeerKey.init(parsing:))
        guard let peer = peer ?? keys.first, keys.count < 2 else {
            throw arguments.usage("\(store.name) needs one \(ChannelOptions.peer.name)")
        }
        let configuration = options.configuration
        let isTLS = configuration.protocols == [TLSContext.protocolName]
        guard isTLS || arguments.has(ChannelOptions.identity) else {
            throw arguments.usage(
                "\(store.name) needs a key that stays: \(ChannelOptions.identity.name) FILE, or "
                    + "--certificate FILE without other protocols")
        }
        let own =
            isTLS ? configuration.tls?.identity.fingerprint : configuration.identity?.fingerprint
        guard let own else { throw arguments.usage("\(store.name) needs a key") }
        return try .open(in: directory, own: own, peer: peer.fingerprint)
    }

    /// Reads the note that earlier runs with the store have left about the file of `option`; nil if
    /// there were no such runs, or if they used no file.
    ///
    /// - Throws: `badKey` when earlier runs used a file and this run uses none, or the other way
    ///   round. With `allowsNoFile`, this run may do without the file of earlier runs.
    private static func note(
        _ bytes: [UInt8], of option: Option, _ arguments: Arguments, allowsNoFile: Bool = false
    ) throws(ChannelError) -> FileNote? {
        let note = try FileNote(bytes)
        guard !bytes.isEmpty, (note != nil) != arguments.has(option) else { return note }
        guard note != nil else {
            throw ChannelError(
                .badKey,
                "the store was used without \(option.name); leave it out, or use another directory")
        }
        guard allowsNoFile else {
            throw ChannelError(
                .badKey, "the store was used with \(option.name) FILE; give it again")
        }
        return note
    }

    /// Sends the input to the peer, and writes the peer's messages to the output, over links of
    /// `route`. Returns when both sides have sent and written everything.
    static func pipe(
        over route: PeerRoute, to peer: PeerKey?, _ arguments: Arguments, _ options: ChannelOptions,
        _ notes: ConnectionNotes, _ interruption: Interruption
    ) async throws(ChannelError) {
        let store = try openStore(arguments, options, to: peer)
        let connection = await PeerConnection.start(
            route, to: peer, delivery: delivery(store))
        let notedFiles = await connection.notes
        let isFinished = await connection.hasFinished
        let inputFile: InputFile?
        let outputFile: OutputFile?
        do throws(ChannelError) {
            // When everything was queued for sending, no input is needed.
            let sent = try note(notedFiles.sent, of: input, arguments, allowsNoFile: isFinished)
            let written = try note(notedFiles.confirmed, of: output, arguments)
            inputFile = try arguments.value(input).map { path throws(ChannelError) in
                try InputFile(path, sent, isFinished: isFinished)
            }
            outputFile = try arguments.value(output).map { path throws(ChannelError) in
                try OutputFile(path, written)
            }
            if store != nil, notedFiles.confirmed.isEmpty {
                // Stores a note about the output before any byte is written. The note of a file
                // says which bytes are confirmed. When the command is started again, it removes the
                // other bytes from the file.
                try await connection.confirm(
                    through: 0, noting: outputFile?.note(0) ?? FileNote.withoutFile)
                try await connection.waitUntilCommitted()
            }
        } catch {
            await connection.abort()
            throw error
        }
        if isFinished {
            Diagnostics.note(
                "the store says that everything was queued for sending before", "finished")
        }
        let progress = PipeProgress()
        let session = ConnectionSession(
            connection: connection, interruption: interruption, timeLimit: options.timeLimit,
            input: { () throws(ChannelError) in
                if let inputFile { return try inputFile.next() }
                return try await StandardInput.shared.next().map { ($0, FileNote.withoutFile) }
            },
            output: { message throws(ChannelError) in
                if let outputFile {
                    try outputFile.write(message)
                } else {
                    try await StandardOutput.send(message)
                }
                progress.received(message.count)
            },
            outputFile: outputFile,
            // `fate` is nil when the message is sent.
            onDelivery: { fate, _, message in if fate == nil { progress.sent(message.count) } },
            onStatus: { status throws(ChannelError) in try notes.report(status) },
            waitsForPeerEnd: true)
        progress.begin()
        defer { progress.end() }
        _ = try await session.run()
        let unknown = await connection.unknownCount
        if outputFile == nil { try await StandardOutput.finish() }
        let dropped = await connection.droppedCount
        var reasons: [String] = []
        if await connection.wasStoreRolledBack {
            reasons.append(
                "the store was an older copy: what was sent or received after the copy was made may "
                    + "be missing or repeated")
        } else if unknown > 0 {
            reasons.append(
                "the peer's state was lost; of what was sent, \(unknown) pieces may be missing")
        }
        if await connection.mayMissMessages, await !connection.wasStoreRolledBack {
            reasons.append(
                "a process was replaced without its state; of what was received, pieces may be "
                    + "missing or repeated")
        }
        if dropped > 0 {
            let pieces = dropped == 1 ? "1 piece is" : "\(dropped) pieces are"
            reasons.append(
                "\(pieces) missing, since `blesec outbox` dropped what had not been sent")
        }
        guard reasons.isEmpty else {
            throw ChannelError(.unacknowledged, reasons.joined(separator: "; "))
        }
        if isFinished, inputFile == nil, StandardInput.hasBytes {
            throw ChannelError(
                .badKey,
                "the store says that everything was sent; standard input was not sent: use "
                    + "another directory")
        }
    }
}
