internal import BLESec
internal import BLESecChannelCore
internal import BLESecDelivery
internal import BLESecLinks
internal import BLESecLocking

/// Writes the bytes of a ``FileSender`` to a stream, and passes the peer's answers to the sender.
struct OutgoingFiles: Sendable {
    let connection: PeerConnection
    let source: Unshared<FileSource>
    let thread: BlockingThread
    let transfer: FileTransfer
    private let standing = Locked(Standing())

    /// The state of the link and of the present attempt, which together give the transfer's state.
    private struct Standing: Sendable {
        var isLinked = false
        /// Whether there has been a link.
        var hadLink = false
        /// The state of the present attempt while there is a link.
        var phase = FileTransfer.State.waiting

        var state: FileTransfer.State {
            isLinked ? phase : hadLink ? .waiting : .connecting
        }
    }

    /// How long the offer is repeated while the receiver is `busy`, because the receiver's earlier
    /// transfer of the same file has not ended yet.
    private static let patience: Duration = .seconds(10)

    func run() async {
        let watching = Task(executorPreference: connection.loop) { await watch() }
        defer { watching.cancel() }
        var busySince: ContinuousClock.Instant?
        while true {
            do throws(ChannelError) {
                return try await attempt()
            } catch {
                if transfer.isCancelled {
                    return transfer.end(
                        .failure(ChannelError(.cancelled, "sending was ended on this side")))
                }
                let now = ContinuousClock.now
                busySince = error.code == .busy ? busySince ?? now : nil
                let mayStillWait = busySince.map { now - $0 < Self.patience } ?? false
                // A connection that has closed stays closed, even after `sessionLost`.
                guard error.code == .sessionLost || mayStillWait,
                    await connection.status.state != .closed
                else {
                    return transfer.end(.failure(error))
                }
                // The receiver's process was replaced, or its earlier transfer has not ended yet.
                try? await connection.loop.sleep(for: .milliseconds(100))
            }
        }
    }

    /// Shows in the progress when the link is lost or comes back.
    private func watch() async {
        for await status in await connection.states() {
            show { standing in
                standing.isLinked = status.state == .connected
                if standing.isLinked { standing.hadLink = true }
            }
        }
    }

    /// Changes the standing, and shows the state that follows from it.
    private func show(_ change: (inout Standing) -> Void) {
        let state = shownState(after: change)
        transfer.update { progress in progress.state = state }
    }

    /// Changes the standing, and returns the state that follows from it.
    private func shownState(after change: (inout Standing) -> Void) -> FileTransfer.State {
        standing.withLock { standing in
            change(&standing)
            return standing.state
        }
    }

    /// The two tasks of an attempt.
    private enum Half: Sendable { case writer, reader }

    /// Offers the files once, and sends them. Ends the transfer, or throws.
    private func attempt() async throws(ChannelError) {
        show { $0.phase = .waiting }
        let stream = try await connection.open(FileFrame.label, priority: .bulk)
        let sender = Unshared(FileSender(source.value))
        // Gets an element after each read of answers: the sender may then have more to send.
        let (signals, signalFeed) = AsyncStream<Void>.makeStream(
            bufferingPolicy: .bufferingNewest(1))
        let failure = await withTaskGroup(of: Result<Half, ChannelError>.self) { group in
            group.addTask(executorPreference: connection.loop) {
                await Self.result { () async throws(ChannelError) in
                    try await write(sender, to: stream, signals)
                    return .writer
                }
            }
            group.addTask(executorPreference: connection.loop) {
                defer { signalFeed.finish() }
                return await Self.result { () async throws(ChannelError) in
                    try await read(sender, from: stream, signalFeed)
                    return .reader
                }
            }
            var failure: ChannelError?
            for await result in group {
                switch result {
                // The reader ends last, unless something has failed.
                case .success(.reader): group.cancelAll()
                case .success(.writer): break
                case .failure(let error):
                    failure = failure ?? error
                    group.cancelAll()
                }
            }
            return failure
        }
        let state = await thread.run { sender.value.state }
        // The receiver has stored everything, so later errors do not matter.
        if let name = state.name { return transfer.end(.success(name)) }
        if let failure {
            let isViolation = failure.code == .protocolViolation
            await stream.giveUp(
                isViolation ? .violation : transfer.isCancelled ? .cancelled : .other)
            // A refusal by the peer, or a file that has changed since the offer, is the reason,
            // even if the stream has failed since then.
            let hasOwnReason = state.hasGivenUp || state.refusal != nil
            guard hasOwnReason, !transfer.isCancelled else {
                throw Self.explained(failure, stream)
            }
        }
        if let refusal = state.refusal {
            throw ChannelError(refused: transfer.name, refusal)
        }
        guard let first = state.failures.listed.first else {
            throw ChannelError(.incomplete, "the peer did not store everything of \(transfer.name)")
        }
        let error =
            transfer.isFolder
            ? ChannelError(
                .incomplete,
                "\(state.failures.count) of the files in \(transfer.name) were not stored; the "
                    + "first is \(first.path): \(first.reason)")
            : ChannelError(first.problem.code, "\(transfer.name): \(first.reason)")
        transfer.end(.failure(error), state.failures.listed)
    }

    /// Replaces the error `streamReset` by one that names the reason in the peer's reset code.
    static func explained(_ error: ChannelError, _ stream: PeerConnection.Stream) -> ChannelError {
        guard error.code == .streamReset else { return error }
        return switch stream.resetCode.flatMap(GiveUpReason.init(rawValue:)) {
        case .cancelled: ChannelError(.cancelled, "the peer has ended the transfer")
        case .violation:
            ChannelError(
                .protocolViolation,
                "the peer reports that this side broke the rules for file transfers")
        case .other, nil: ChannelError(.streamReset, "the peer has given up the transfer")
        }
    }

    private static func result<Value>(
        of body: () async throws(ChannelError) -> Value
    ) async -> Result<Value, ChannelError> {
        do throws(ChannelError) {
            return .success(try await body())
        } catch {
            return .failure(error)
        }
    }

    /// Lets the thread read the next bytes. The task runs on the connection's loop, because Swift's
    /// shared threads open descriptors, and end the process if no descriptors are left.
    private func readNext(_ sender: Unshared<FileSender>) -> Task<FileSender.Step, Never> {
        Task(executorPreference: connection.loop) { [thread] in
            await thread.run { sender.value.next() }
        }
    }

    private func write(
        _ sender: Unshared<FileSender>, to stream: PeerConnection.Stream,
        _ signals: AsyncStream<Void>
    ) async throws(ChannelError) {
        var signalIterator = signals.makeAsyncIterator()
        // The thread reads the next bytes from the disk while the stream takes the bytes before
        // them.
        var next = readNext(sender)
        while true {
            switch await next.value {
            case .send(let bytes):
                next = readNext(sender)
                if !bytes.isEmpty { try await stream.write(bytes) }
            case .wait:
                guard await signalIterator.next(isolation: nil) != nil else { return }
                next = readNext(sender)
            case .finish:
                report(await thread.run { sender.value.state })
                return await stream.finish()
            case .giveUp:
                // This error ends the reader, too. The transfer reports the failures of the files.
                throw ChannelError(.fileChanged, "files that the peer has already have changed")
            }
            if Task.isCancelled {
                throw ChannelError(.cancelled, "sending was ended on this side")
            }
        }
    }

    private func read(
        _ sender: Unshared<FileSender>, from stream: PeerConnection.Stream,
        _ signalFeed: AsyncStream<Void>.Continuation
    ) async throws(ChannelError) {
        while let bytes = try await stream.read() {
            let result = await thread.run {
                Result { () throws(FileViolation) in
                    try sender.value.receive(bytes)
                    return sender.value.state
                }
            }
            switch result {
            case .success(let state): report(state)
            case .failure(let violation): throw ChannelError(.protocolViolation, violation.what)
            }
            signalFeed.yield()
        }
    }

    private func report(_ state: FileSender.State) {
        let shown = shownState { standing in
            if state.hasSentAll {
                standing.phase = .verifying
            } else if state.isAccepted {
                standing.phase = .transferring
            }
        }
        transfer.update(held: state.held) { progress in
            progress.bytes = state.received
            progress.files = max(progress.files, state.ended)
            progress.state = shown
        }
    }
}
