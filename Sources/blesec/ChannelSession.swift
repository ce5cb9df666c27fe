internal import BLESec
internal import BLESecToolKit

/// Sends standard input over a channel, and writes what the channel receives to standard output.
struct ChannelSession: Sendable {
    let channel: SecureChannel
    let isDirect: Bool
    /// Whether another peer may follow, so that standard output stays open.
    let keepsOutput: Bool
    let interruption: Interruption
    private let progress = PipeProgress()

    init(
        channel: SecureChannel, isDirect: Bool, keepsOutput: Bool, interruption: Interruption
    ) {
        self.channel = channel
        self.isDirect = isDirect
        self.keepsOutput = keepsOutput
        self.interruption = interruption
    }

    private enum Event: Sendable {
        /// Standard input has ended, and the end was sent to the peer.
        case sentEverything
        /// The peer has said that it sends no more, and all its messages are written.
        case wroteEverything
        /// Standard input or output failed, or a message could not be confirmed.
        case localFailure(ChannelError)
        /// Sending failed with this error. If the channel has failed, receiving throws the same
        /// error after the last message.
        case cannotSend(ChannelError)
        case cannotReceive(ChannelError)
        /// The channel has ended, with this error; nil if it ended in good order.
        case channelEnded(ChannelError?)
        case interrupted
    }

    /// Moves bytes until both directions are complete, or throws the reason why they are not.
    func run() async throws(ChannelError) {
        progress.begin()
        defer { progress.end() }
        let (events, feed) = AsyncStream<Event>.makeStream()
        interruption.setAction { feed.yield(.interrupted) }
        let sending = Task(executorPreference: channel.loop) { _ = feed.yield(await sendInput()) }
        let receiving = [writeOutput, watch].map { part in
            Task(executorPreference: channel.loop) { _ = feed.yield(await part()) }
        }
        let outcome: Result<Void, ChannelError>
        do throws(ChannelError) {
            try await follow(events)
            try await close()
            outcome = .success(())
        } catch {
            outcome = .failure(error)
        }
        interruption.setAction(nil)
        for task in [sending] + receiving { task.cancel() }
        // The next session must not read input before this session has put back the bytes that it
        // could not send.
        await sending.value
        try outcome.get()
        if !keepsOutput { try await StandardOutput.finish() }
    }

    private func follow(_ events: AsyncStream<Event>) async throws(ChannelError) {
        var sentEverything = false
        var wroteEverything = false
        var failure: ChannelError?
        var channelHasEnded = false
        for await event in events {
            switch event {
            case .sentEverything: sentEverything = true
            case .wroteEverything: wroteEverything = true
            case .localFailure(let error):
                await leave()
                throw error
            case .interrupted:
                await leave()
                throw interruption.error ?? ChannelError(.terminated, "ended")
            case .cannotReceive(let error):
                await leave()
                throw error
            // The channel is over, or this side is ending the channel, since the session has
            // reached its maximum age. The queued messages are still sent before the channel ends.
            case .cannotSend(let error) where error.code == .closed: break
            case .cannotSend(let error), .channelEnded(let error?): failure = failure ?? error
            case .channelEnded(nil): channelHasEnded = true
            }
            // All received messages are written before an error of the channel is reported.
            guard wroteEverything else { continue }
            if let failure { throw failure }
            // In direct mode it is no error if the channel is over before everything is sent: a
            // peer that has closed receives nothing more.
            if sentEverything || (channelHasEnded && isDirect) { return }
            if channelHasEnded {
                throw ChannelError(
                    .truncated, "the channel ended before everything was sent; open it again")
            }
        }
    }

    /// Waits until both sides have completed the channel. A signal ends the wait and the channel.
    private func close() async throws(ChannelError) {
        do throws(ChannelError) {
            try await interruption.cancelling { [channel, isDirect] () async throws(ChannelError) in
                // In negotiated mode the channel completes by itself when the peer's program has
                // taken everything. This wait has no limit, since the channel notices a lost peer.
                if isDirect { try await channel.close() } else { try await channel.waitUntilOver() }
            }
        } catch {
            await channel.abort()
            throw error
        }
    }

    private func sendInput() async -> Event {
        while true {
            let bytes: [UInt8]?
            do throws(ChannelError) {
                bytes = try await StandardInput.shared.next()
            } catch {
                return .localFailure(error)
            }
            do throws(ChannelError) {
                guard let bytes else {
                    try await channel.finish()
                    return .sentEverything
                }
                try await channel.send(bytes)
                progress.sent(bytes.count)
            } catch {
                // None of the bytes were queued.
                if let bytes { StandardInput.shared.putBack(bytes) }
                return .cannotSend(error)
            }
        }
    }

    private func writeOutput() async -> Event {
        while true {
            let message: [UInt8]?
            do throws(ChannelError) {
                message = try await channel.receive()
            } catch {
                return .cannotReceive(error)
            }
            do throws(ChannelError) {
                guard let message else {
                    // Standard output is closed here, so that its reader sees the end even while
                    // standard input continues.
                    if !keepsOutput { try await StandardOutput.finish() }
                    return .wroteEverything
                }
                try await StandardOutput.send(message)
                progress.received(message.count)
                // A message is confirmed, and so delivered, only after it is written.
                if !isDirect { try await channel.confirm(through: channel.lastReceived) }
            } catch {
                return .localFailure(error)
            }
        }
    }

    private func watch() async -> Event {
        do throws(ChannelError) {
            try await channel.waitUntilOver()
            return .channelEnded(nil)
        } catch {
            return .channelEnded(error)
        }
    }

    /// Ends the channel early. In negotiated mode, tells the peer that not everything was sent,
    /// unless this side has already sent its end.
    private func leave() async {
        guard !isDirect else { return await channel.abort() }
        try? await channel.finish(.interrupted)
        await endWithinLimits(on: channel.loop) {
            try? await channel.close(within: $0)
        } orAbort: {
            await channel.abort()
        }
    }
}
