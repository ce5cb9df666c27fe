internal import BLESec
internal import BLESecLocking
internal import BLESecToolKit

/// Moves messages between a connection and this process's input and output.
struct ConnectionSession: Sendable {
    let connection: PeerConnection
    let interruption: Interruption
    /// The time limit for the first channel.
    let timeLimit: TimeLimit?
    /// Returns the next message to send, and the note that the store keeps with the message; nil at the
    /// end.
    let input: @Sendable () async throws(ChannelError) -> (message: [UInt8], note: [UInt8]?)?
    let output: @Sendable ([UInt8]) async throws(ChannelError) -> Void
    /// The file that ``output`` writes to; nil if messages are confirmed as soon as they are
    /// written.
    var outputFile: OutputFile?
    /// Is called twice for each message: with nil when the message is sent, and with its fate when
    /// the fate is known. `number` counts the messages from 1, in the order of sending.
    var onDelivery: @Sendable (_ fate: Delivery?, _ number: Int, _ message: [UInt8]) -> Void = {
        _, _, _ in
    }
    /// Is called with each state of the connection. If it throws, the session ends.
    let onStatus: @Sendable (ConnectionStatus) throws(ChannelError) -> Void
    /// Whether a message of the peer was received, and is not written yet.
    private let isWriting = Locked(false)
    /// Why a message of the peer could not be written or confirmed. While
    /// ``leaveAfterSending()`` runs, no event is handled, so that function throws this error.
    private let outputFailure = Locked<ChannelError?>(nil)
    /// Why the output file could not be synchronized to the disk, or why the messages in it could
    /// not be confirmed.
    private let fileFailure = Locked<ChannelError?>(nil)
    /// Whether the session also waits until the peer has said that it sends no more. If false, the
    /// session ends as soon as all input was sent and each message has a fate.
    let waitsForPeerEnd: Bool

    private typealias Sent = (delivery: PendingDelivery, message: [UInt8])

    private enum Event: Sendable {
        /// All input was sent, and each message has a fate; `unknown` counts messages that may
        /// have arrived or not.
        case sentEverything(unknown: Int)
        /// The peer has said that it sends no more, and all its messages are written.
        case wroteEverything
        /// The input, the output, sending or `onStatus` failed, or the first channel took too long.
        case localFailure(ChannelError)
        /// The connection was closed, with this error; nil if it was closed in good order.
        case closed(ChannelError?)
        /// ``end()`` has returned: nil if it has closed the connection in good order.
        case ended(ChannelError?)
        case interrupted
    }

    /// Moves messages until this side and, if ``waitsForPeerEnd`` is true, the peer have sent
    /// everything. Returns the number of sent messages whose fate is unknown.
    func run() async throws(ChannelError) -> Int {
        let (events, feed) = AsyncStream<Event>.makeStream()
        interruption.setAction { feed.yield(.interrupted) }
        let (sent, sentFeed) = AsyncStream<Sent>.makeStream()
        let fates = Task(executorPreference: connection.loop) { await reportFates(of: sent) }
        let parts: [@Sendable () async -> Event?] = [
            { await sendInput(to: sentFeed, fates) }, writeOutput, watch, awaitChannel,
            refuseStreams,
        ]
        let tasks = parts.map { part in
            Task(executorPreference: connection.loop) {
                if let event = await part() { feed.yield(event) }
            }
        }
        defer {
            interruption.setAction(nil)
            for task in tasks { task.cancel() }
            fates.cancel()
        }
        do throws(ChannelError) {
            return try await follow(events, feed)
        } catch {
            // Once the connection is closed, each message has a fate, which is still reported.
            if await connection.status.state == .closed {
                for task in tasks { task.cancel() }
                _ = await fates.value
            }
            throw error
        }
    }

    private func follow(
        _ events: AsyncStream<Event>, _ feed: AsyncStream<Event>.Continuation
    ) async throws(ChannelError) -> Int {
        var unknown: Int?
        var wroteEverything = false
        /// Ends the connection, once this side has everything.
        var closing: Task<Void, Never>?
        defer { closing?.cancel() }
        for await event in events {
            switch event {
            case .sentEverything(let count):
                unknown = count
                guard waitsForPeerEnd else {
                    try await leaveAfterSending()
                    return count
                }
                await connection.finish()
            case .wroteEverything: wroteEverything = true
            case .localFailure(let error):
                // Both sides have everything, but no link was made in time to tell the peer so.
                if let unknown, error.code == .timedOut, await connection.isSettled {
                    await leave(nil)
                    return unknown
                }
                await leave(.interrupted)
                throw error
            case .interrupted:
                await leave(waitsForPeerEnd ? .interrupted : nil)
                throw interruption.error ?? ChannelError(.terminated, "ended")
            // The event `ended` follows, and has the result that counts.
            case .closed where closing != nil: break
            case .closed(let error?): throw fileFailure.withLock { $0 } ?? error
            case .closed(nil): break
            case .ended(let error?): throw error
            case .ended(nil): return unknown ?? 0
            }
            if unknown != nil, wroteEverything, closing == nil {
                closing = Task(executorPreference: connection.loop) {
                    feed.yield(.ended(await end()))
                }
            }
        }
        return unknown ?? 0
    }

    /// Ends the connection when this side has everything, and returns the error if that fails. The
    /// peer may not have everything yet.
    private func end() async -> ChannelError? {
        do throws(ChannelError) {
            try await connection.close(within: Self.closeTimeout)
            return nil
        } catch {
            return error
        }
    }

    /// Reports the fate of each message, in the order of sending, and returns how many are unknown.
    private func reportFates(of sent: AsyncStream<Sent>) async -> Int {
        var number = 0
        var unknown = 0
        for await (pending, message) in sent {
            number += 1
            let fate = await pending.delivery()
            if fate == .unknown { unknown += 1 }
            onDelivery(fate, number, message)
        }
        return unknown
    }

    /// Sends all input. `fates` reads what is written to `sent`, and counts the unknown messages.
    private func sendInput(
        to sent: AsyncStream<Sent>.Continuation, _ fates: Task<Int, Never>
    ) async -> Event? {
        defer { sent.finish() }
        var number = 0
        while true {
            let next: (message: [UInt8], note: [UInt8]?)?
            do throws(ChannelError) {
                next = await isFinished ? nil : try await input()
            } catch {
                return error.code == .cancelled ? nil : .localFailure(error)
            }
            guard let (message, note) = next else { break }
            let pending: PendingDelivery
            do throws(ChannelError) {
                pending = try await connection.send(message, noting: note)
            } catch {
                // The connection itself reports why it was closed.
                let isClosed = await connection.status.state == .closed
                return isClosed || error.code == .cancelled ? nil : .localFailure(error)
            }
            number += 1
            onDelivery(nil, number, message)
            sent.yield((pending, message))
        }
        sent.finish()
        return .sentEverything(unknown: await fates.value)
    }

    /// Whether an earlier process with the same store has already sent everything.
    private var isFinished: Bool { get async { await connection.hasFinished } }

    private func writeOutput() async -> Event? {
        guard let file = outputFile else { return await writeOutput(to: nil, length: 0) }
        // The file is synchronized to the disk in the background. One call of `synchronize` is
        // enough for all messages that were written during the previous call.
        let (written, feed) = AsyncStream<(number: UInt64, length: Int)>.makeStream(
            bufferingPolicy: .bufferingNewest(1))
        let confirming = Task(executorPreference: connection.loop) { () -> ChannelError? in
            for await (number, length) in written {
                do throws(ChannelError) {
                    try await file.synchronize()
                    try await connection.confirm(through: number, noting: file.note(length))
                } catch {
                    // The connection itself reports why it was closed.
                    if error.code == .closed { return nil }
                    // The error that `abort` causes must not hide this error.
                    fileFailure.withLock { $0 = error }
                    await connection.abort()
                    return error
                }
            }
            return nil
        }
        let event = await writeOutput(to: feed, length: file.durableLength)
        feed.finish()
        return await confirming.value.map { .localFailure($0) } ?? event
    }

    /// Writes the peer's messages to the output, which has `length` bytes already. For each written
    /// message, `feed` gets the message's number and the output's new length. Without `feed`, each written
    /// message is confirmed at once.
    private func writeOutput(
        to feed: AsyncStream<(number: UInt64, length: Int)>.Continuation?, length: Int
    ) async -> Event? {
        var length = length
        while true {
            let message: [UInt8]?
            do throws(ChannelError) {
                message = try await connection.receive()
            } catch {
                // The task that watches the connection reports the error.
                return nil
            }
            do throws(ChannelError) {
                guard let message else { return .wroteEverything }
                isWriting.withLock { $0 = true }
                try await output(message)
                isWriting.withLock { $0 = false }
                // A message is confirmed, and so delivered, only after it is written.
                length += message.count
                let number = await connection.lastReceived
                if let feed {
                    feed.yield((number, length))
                } else {
                    try await connection.confirm(through: number)
                }
            } catch {
                // The connection itself reports why it was closed.
                guard error.code != .closed else { return nil }
                outputFailure.withLock { $0 = error }
                return .localFailure(error)
            }
        }
    }

    private func watch() async -> Event? {
        var failure: ChannelError?
        for await status in await connection.states(keeping: 64) {
            do throws(ChannelError) {
                try onStatus(status)
            } catch {
                return .localFailure(error)
            }
            if status.state == .closed { failure = status.failure }
        }
        return .closed(failure)
    }

    /// Refuses each stream, so that a peer that runs another command does not wait.
    private func refuseStreams() async -> Event? {
        await Forwarder.refuseStreams(of: connection)
        return nil
    }

    /// Returns a failure if the first channel is not ready within the time limit.
    private func awaitChannel() async -> Event? {
        await timeLimit?.failure(awaitingChannelOf: connection).map(Event.localFailure)
    }

    /// How long ``end()`` waits without any progress.
    private static let closeTimeout: Duration = .seconds(30)

    /// Ends the connection after each message of this side has its fate. If the output has not
    /// taken a message of the peer yet, first waits for the output; a signal ends this wait.
    private func leaveAfterSending() async throws(ChannelError) {
        try await interruption.cancelling { () async throws(ChannelError) in await leave(nil) }
        if let error = interruption.error { throw error }
        if let error = outputFailure.withLock({ $0 }) { throw error }
        guard !isWriting.withLock({ $0 }) else {
            throw ChannelError(
                .truncated, "a line from the peer was not written: standard output takes no more")
        }
    }

    /// Ends the connection before both sides have finished, within a time limit. Without a reason,
    /// the peer is not told that the connection ends, and waits for a new link.
    private func leave(_ reason: EndReason?) async {
        await endWithinLimits(on: connection.loop) { limit in
            if let reason {
                try? await connection.close(reason, within: limit)
            } else {
                try? await connection.leave(within: limit)
            }
        } orAbort: {
            await connection.abort()
        }
    }
}
