internal import BLESec
internal import BLESecToolKit

/// A connection with this machine's input and output at one end, over links that come and go.
struct ConnectionSession: Sendable {
    /// What becomes of something that was sent.
    enum Fate: String, Sendable { case sent, delivered, received, unknown }

    let connection: PeerConnection
    let interruption: Interruption
    /// How long the first link may take.
    let timeLimit: TimeLimit?
    /// What is to be sent next; nil at the end.
    let input: @Sendable () async throws(ChannelError) -> [UInt8]?
    /// Takes what has come.
    let output: @Sendable ([UInt8]) async throws(ChannelError) -> Void
    /// Is told what becomes of the first, the second and so on that was sent, each in its order.
    var tell: @Sendable (Fate, Int, [UInt8]) -> Void = { _, _, _ in }
    /// Takes note of how the connection stands.
    let stands: @Sendable (ConnectionStatus) throws(ChannelError) -> Void
    /// Whether the end of the input leaves the peer to end as well.
    let waitsForPeer: Bool

    /// How long a side that is stopped stays to say so.
    private static let linkShutdown = Duration.seconds(2)

    private enum Event: Sendable {
        /// All input was given to links, and what became of each is known; so many are unknown.
        case sentEverything(unknown: Int)
        /// The peer has ended, and everything is written.
        case wroteEverything
        /// The input, the output or a file failed.
        case localFailure(ChannelError)
        case closed(ChannelError?)
        case interrupted
    }

    /// Moves messages until the input has ended, and returns of how many nobody knows what became of
    /// them.
    func run() async throws(ChannelError) -> Int {
        let (events, feed) = AsyncStream<Event>.makeStream()
        interruption.setAction { feed.yield(.interrupted) }
        let parts: [@Sendable () async -> Event?] = [sendInput, writeOutput, watch, limit]
        let tasks = parts.map { part in
            Task(executorPreference: connection.loop) {
                if let event = await part() { feed.yield(event) }
            }
        }
        defer {
            interruption.setAction(nil)
            for task in tasks { task.cancel() }
        }
        return try await follow(events)
    }

    private func follow(_ events: AsyncStream<Event>) async throws(ChannelError) -> Int {
        var unknown: Int?
        var wrote = false
        for await event in events {
            switch event {
            case .sentEverything(let count):
                unknown = count
                guard waitsForPeer else {
                    await leave(.done)
                    return count
                }
                await connection.finish()
            case .wroteEverything: wrote = true
            case .localFailure(let error):
                await leave(.interrupted)
                throw error
            case .interrupted:
                await leave(waitsForPeer ? .interrupted : .done)
                throw interruption.error ?? ChannelError(.terminated, "ended")
            case .closed(let error?): throw error
            case .closed(nil): break
            }
            if let unknown, wrote {
                await leave(.done)
                return unknown
            }
        }
        return unknown ?? 0
    }

    private func sendInput() async -> Event? {
        let (sent, feed) = AsyncStream<(PendingDelivery, [UInt8])>.makeStream()
        let fates = Task(executorPreference: connection.loop) {
            var number = 0
            var unknown = 0
            for await (outgoing, message) in sent {
                number += 1
                let fate: Fate =
                    switch await outgoing.delivery() {
                    case .delivered: .delivered
                    case .received: .received
                    case .unknown: .unknown
                    }
                if fate == .unknown { unknown += 1 }
                tell(fate, number, message)
            }
            return unknown
        }
        defer { fates.cancel() }
        var number = 0
        while true {
            let message: [UInt8]?
            do throws(ChannelError) {
                message = try await input()
            } catch {
                return error.code == .cancelled ? nil : .localFailure(error)
            }
            guard let message else { break }
            let outgoing: PendingDelivery
            do throws(ChannelError) {
                outgoing = try await connection.send(message)
            } catch {
                // What has closed the connection is told by it.
                let isClosed = await connection.status.state == .closed
                return isClosed || error.code == .cancelled ? nil : .localFailure(error)
            }
            number += 1
            tell(.sent, number, message)
            feed.yield((outgoing, message))
        }
        feed.finish()
        return .sentEverything(unknown: await fates.value)
    }

    private func writeOutput() async -> Event? {
        while true {
            let message: [UInt8]?
            do throws(ChannelError) {
                message = try await connection.receive()
            } catch {
                // The watch says so too.
                return nil
            }
            do throws(ChannelError) {
                guard let message else { return .wroteEverything }
                try await output(message)
                // Nothing counts as delivered that is not written.
                try await connection.confirm(through: connection.lastReceived)
            } catch {
                return .localFailure(error)
            }
        }
    }

    private func watch() async -> Event? {
        var failure: ChannelError?
        for await status in await connection.states(keeping: 64) {
            do throws(ChannelError) {
                try stands(status)
            } catch {
                return .localFailure(error)
            }
            if status.state == .closed { failure = status.failure }
        }
        return .closed(failure)
    }

    /// Gives up when there is no link in time.
    private func limit() async -> Event? {
        guard let timeLimit else { return nil }
        do throws(ChannelError) {
            try await timeLimit.run("channel") { () async throws(ChannelError) in
                for await status in await connection.states() where status.state == .connected {
                    return
                }
            }
            return nil
        } catch {
            return error.code == .timedOut ? .localFailure(error) : nil
        }
    }

    /// Ends the connection, and does not wait for ever.
    private func leave(_ reason: EndReason) async {
        let loop = connection.loop
        let stop = Task(executorPreference: loop) {
            try await loop.sleep(for: Self.linkShutdown)
            await connection.abort()
        }
        try? await connection.close(reason)
        stop.cancel()
    }
}
