internal import BLESec
internal import BLESecChannelCore
internal import BLESecDelivery
internal import BLESecLinks
internal import BLESecLocking

/// Passes the bytes that arrive on a stream to a ``FileReceiver``, and writes the receiver's answers
/// to the stream.
struct IncomingFiles: Sendable {
    let connection: PeerConnection
    let stream: PeerConnection.Stream
    let receiver: Unshared<FileReceiver>
    let thread: BlockingThread
    let transfer: FileTransfer
    let folder: String
    let rules: FileFolder.Rules
    let peer: [UInt8]
    /// The id of the offer.
    let id: [UInt8]
    /// Decides whether the note about the stored offer stays; nil if the note is removed as soon as
    /// the sender knows that everything is stored.
    let session: ReceivingSession?
    /// Called once, when everything is stored, before the sender learns of that. Not called if the
    /// transfer ends earlier.
    let whenStored: @Sendable () async -> Void

    /// The time between two calls of ``FileReceiver/tick()``.
    private static let tickInterval: Duration = .milliseconds(250)
    /// The most bytes that are read from the stream at a time.
    private static let pieceSize = 256 << 10

    private enum Event: Sendable {
        case bytes([UInt8])
        case end
        case failure(ChannelError)
        case tick
    }

    /// The result of a call to the receiver on its thread.
    private struct Outcome: Sendable {
        var answers: [UInt8] = []
        var state: FileReceiver.State
        var isDone: Bool
        var violation: FileViolation?
    }

    func run() async {
        let watching = Task(executorPreference: connection.loop) { await watch() }
        await receiveOrFail()
        watching.cancel()
    }

    private func receiveOrFail() async {
        do throws(ChannelError) {
            try await receive()
        } catch {
            let isCancelled = transfer.isCancelled
            await stream.giveUp(
                error.code == .protocolViolation
                    ? .violation : isCancelled ? .cancelled : .other)
            let state = await thread.run { [receiver] in
                receiver.value.close()
                return receiver.value.state
            }
            // Everything may be stored already. Then the note about the offer stays, since the
            // sender may not know that everything is stored.
            if let name = state.name, state.failures.count == 0 {
                return transfer.end(.success(name))
            }
            transfer.end(
                .failure(
                    isCancelled
                        ? ChannelError(.cancelled, "receiving was ended on this side")
                        : OutgoingFiles.explained(error, stream)), state.failures.listed)
        }
    }

    /// Shows in the progress when the link is lost or comes back.
    private func watch() async {
        for await status in await connection.states() {
            let isLinked = status.state == .connected
            transfer.update { progress in
                progress.state = isLinked ? .transferring : .waiting
            }
        }
    }

    private func receive() async throws(ChannelError) {
        let (reply, refusal) = await thread.run {
            [receiver, folder, peer, rules, transfer] () -> ([UInt8], FileFailure?) in
            let receiver = receiver.value
            do throws(FileFailure) {
                let answer = receiver.accept(into: try FileFolder(folder, from: peer, rules))
                if receiver.state.name != nil { transfer.noteStoredBefore() }
                return (answer, receiver.refusal)
            } catch {
                // The peer learns only the kind of problem: that nothing can be written.
                let failure = FileReceiver.asReported(error)
                return (receiver.refuse(failure.problem, ""), failure)
            }
        }
        try await stream.write(reply)
        if let refusal {
            let error = ChannelError(refusal)
            // The program need not wait until the sender has read the refusal.
            transfer.end(.failure(error))
            await stream.endRefused()
            throw error
        }
        let (events, feed) = AsyncStream<Event>.makeStream()
        let (permits, permitFeed) = AsyncStream<Void>.makeStream()
        // Two permits: one piece is read from the stream while another is written to the disk.
        permitFeed.yield()
        permitFeed.yield()
        let reading = Task(executorPreference: connection.loop) { await read(permits, feed) }
        // At most one tick is queued at a time, so that ticks do not delay the data behind them.
        let isTickQueued = Locked(false)
        let ticking = Task(executorPreference: connection.loop) {
            // The sleep throws after a cancellation, and after the loop's shutdown.
            while (try? await connection.loop.sleep(for: Self.tickInterval)) != nil {
                let wasQueued = isTickQueued.withLock { isQueued in
                    defer { isQueued = true }
                    return isQueued
                }
                if !wasQueued { feed.yield(.tick) }
            }
        }
        defer {
            reading.cancel()
            ticking.cancel()
            feed.finish()
            permitFeed.finish()
        }
        // The sender may learn that everything is stored long before it ends its direction.
        var isStored = false
        for await event in events {
            if transfer.isCancelled { break }
            switch event {
            case .bytes(let bytes):
                let outcome = await ask { receiver throws(FileViolation) in
                    try receiver.receive(bytes)
                }
                permitFeed.yield()
                try await handle(outcome, &isStored)
            case .tick:
                let outcome = await ask { receiver in receiver.tick() }
                try await handle(outcome, &isStored)
                isTickQueued.withLock { $0 = false }
            case .failure(let error): throw error
            case .end:
                let outcome = await ask { receiver throws(FileViolation) in
                    try receiver.finish()
                }
                do throws(ChannelError) {
                    try await handle(outcome, &isStored)
                } catch {
                    // If everything is stored, the transfer is done, even if the sender cannot
                    // learn of it now.
                    guard outcome.isDone else { throw error }
                }
                await stream.finish()
                return await complete(outcome)
            }
        }
        throw ChannelError(.cancelled, "receiving was ended on this side")
    }

    private func read(
        _ permits: AsyncStream<Void>, _ feed: AsyncStream<Event>.Continuation
    ) async {
        do throws(ChannelError) {
            var iterator = permits.makeAsyncIterator()
            while await iterator.next(isolation: nil) != nil {
                guard let bytes = try await stream.read(atMost: Self.pieceSize) else {
                    feed.yield(.end)
                    return
                }
                feed.yield(.bytes(bytes))
            }
        } catch {
            feed.yield(.failure(error))
        }
    }

    /// Calls the receiver on its thread.
    private func ask(
        _ body: @escaping @Sendable (FileReceiver) throws(FileViolation) -> [UInt8]
    ) async -> Outcome {
        await thread.run { [receiver] in
            let receiver = receiver.value
            var answers: [UInt8] = []
            var violation: FileViolation?
            do throws(FileViolation) {
                answers = try body(receiver)
            } catch {
                violation = error
            }
            return Outcome(
                answers: answers, state: receiver.state, isDone: receiver.isDone,
                violation: violation)
        }
    }

    /// Publishes the progress, and sends the answers. If everything is stored and `isStored` is
    /// still false, first sets `isStored` and calls ``whenStored``.
    private func handle(
        _ outcome: Outcome, _ isStored: inout Bool
    ) async throws(ChannelError) {
        if outcome.state.name != nil, !isStored {
            isStored = true
            await whenStored()
        }
        transfer.update(held: outcome.state.held) { progress in
            progress.bytes = min(outcome.state.received, progress.totalBytes)
            progress.files = max(progress.files, outcome.state.ended)
        }
        if !outcome.answers.isEmpty { try await stream.write(outcome.answers) }
        if let violation = outcome.violation {
            throw ChannelError(.protocolViolation, violation.what)
        }
    }

    /// Ends the transfer, and then waits until the sender has learned how it has ended. The sender
    /// may stay away for long, and the program need not wait for it.
    private func complete(_ outcome: Outcome) async {
        if outcome.isDone, let name = outcome.state.name {
            transfer.end(.success(name))
        } else {
            await thread.run { [receiver] in receiver.value.close() }
            endIncomplete(outcome)
        }
        // If the wait does not throw, the sender has received the last answer.
        guard (try? await stream.waitUntilTaken()) != nil else { return }
        if let session {
            guard outcome.isDone else { return }
            let keepsNote = session.recordStored(id, in: folder, from: peer)
            if keepsNote { return }
        }
        await thread.run { [receiver] in receiver.value.forget() }
    }

    private func endIncomplete(_ outcome: Outcome) {
        let failures = outcome.state.failures.listed
        let first = failures.first
        let reason =
            first.map { transfer.isFolder ? "\($0.path): \($0.reason)" : $0.reason }
            ?? "it was not sent"
        transfer.end(
            .failure(
                ChannelError(
                    transfer.isFolder ? .incomplete : first?.problem.code ?? .incomplete,
                    "it was not stored: \(reason)")), failures)
    }
}
