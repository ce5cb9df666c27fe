internal import BLESec
internal import BLESecChannelCore
internal import BLESecDelivery
internal import BLESecLinks
internal import BLESecLocking

/// Moves what arrives on a stream to a ``FileReceiver``, and its answers back.
struct IncomingFiles: Sendable {
    let connection: PeerConnection
    let stream: PeerConnection.Stream
    let receiver: Unshared<FileReceiver>
    let thread: BlockingThread
    let transfer: FileTransfer
    let folder: String
    let rules: FileFolder.Rules
    let peer: [UInt8]

    /// When nothing arrives, how often the receiver is asked what it has to say.
    private static let tick: Duration = .milliseconds(250)

    private enum Event: Sendable {
        case bytes([UInt8])
        case end
        case failure(ChannelError)
        case tick
    }

    /// What the receiver says on its thread.
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
            let failures = await thread.run { [receiver] in
                receiver.value.close()
                return receiver.value.state.failures.first
            }
            transfer.end(
                .failure(
                    isCancelled
                        ? ChannelError(.cancelled, "receiving was ended on this side")
                        : OutgoingFiles.explained(error, stream)), failures)
        }
    }

    private func watch() async {
        for await status in await connection.states() {
            let isLinked = status.state == .connected
            transfer.update { progress in
                if !isLinked {
                    progress.state = .waiting
                } else if progress.state != .verifying {
                    progress.state = .transferring
                }
            }
        }
    }

    private func receive() async throws(ChannelError) {
        let accepted = await thread.run { [receiver, folder, peer, rules] in
            let receiver = receiver.value
            do throws(FileFailure) {
                let answer = receiver.accept(into: try FileFolder(folder, from: peer, rules))
                return (
                    answer, receiver.isReceiving, FileFailure(.other, "it was answered before")
                )
            } catch {
                return (receiver.refuse(error.problem, ""), false, error)
            }
        }
        try await stream.write(accepted.0)
        guard accepted.1 else {
            await stream.endRefused()
            let failure = await thread.run { [receiver] in receiver.value.refusal }
            throw ChannelError(failure ?? accepted.2)
        }
        let (events, feed) = AsyncStream<Event>.makeStream()
        let (permits, permit) = AsyncStream<Void>.makeStream()
        // One piece is read while another one is written.
        permit.yield()
        permit.yield()
        let reading = Task(executorPreference: connection.loop) { await read(permits, feed) }
        // One tick at a time, so that they do not wait before data.
        let isTicking = Locked(false)
        let ticking = Task(executorPreference: connection.loop) {
            while !Task.isCancelled {
                try? await connection.loop.sleep(for: Self.tick)
                let wasTicking = isTicking.withLock { isTicking in
                    defer { isTicking = true }
                    return isTicking
                }
                if !wasTicking { feed.yield(.tick) }
            }
        }
        defer {
            reading.cancel()
            ticking.cancel()
            feed.finish()
            permit.finish()
        }
        for await event in events {
            if transfer.isCancelled { break }
            switch event {
            case .bytes(let bytes):
                let outcome = await ask { receiver throws(FileViolation) in
                    try receiver.receive(bytes)
                }
                permit.yield()
                try await handle(outcome)
            case .tick:
                try await handle(await ask { receiver in receiver.rest() })
                isTicking.withLock { $0 = false }
            case .failure(let error): throw error
            case .end:
                let outcome = await ask { receiver throws(FileViolation) in
                    try receiver.finish()
                }
                do throws(ChannelError) {
                    try await handle(outcome)
                } catch {
                    // What is stored is stored, even if the sender cannot learn of it now.
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
                guard let bytes = try await stream.read(atMost: 1 << 18) else {
                    feed.yield(.end)
                    return
                }
                feed.yield(.bytes(bytes))
            }
        } catch {
            feed.yield(.failure(error))
        }
    }

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

    private func handle(_ outcome: Outcome) async throws(ChannelError) {
        transfer.update(held: outcome.state.held) { progress in
            progress.bytes = min(outcome.state.received, progress.totalBytes)
            progress.files = max(progress.files, outcome.state.ended)
        }
        if !outcome.answers.isEmpty { try await stream.write(outcome.answers) }
        if let violation = outcome.violation {
            throw ChannelError(.protocolViolation, violation.what)
        }
    }

    private func complete(_ outcome: Outcome) async {
        // The sender has learned of it, or its process is gone.
        let isKnown = (try? await stream.waitUntilTaken()) != nil
        if isKnown { await thread.run { [receiver] in receiver.value.forget() } }
        if outcome.isDone, let name = outcome.state.name { return transfer.end(.success(name)) }
        await thread.run { [receiver] in receiver.value.close() }
        let failures = outcome.state.failures.first
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
