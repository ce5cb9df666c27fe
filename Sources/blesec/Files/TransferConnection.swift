internal import BLESec
internal import BLESecLinks
internal import BLESecLocking
internal import BLESecToolKit

/// The connection of `blesec send` and `blesec receive`: this side dials TARGET, or waits at
/// TARGET for the peer, or both sides look for each other.
struct TransferConnection: Sendable {
    /// The options for the connection, which both commands have.
    static let options =
        ChannelOptions.all.filter { $0 != ChannelOptions.direct } + NearbyArguments.all
        + PeerMemory.all + [RouteArguments.listen, PersistentArguments.idle]

    let connection: PeerConnection
    let interruption: Interruption
    let timeLimit: TimeLimit?
    private let timeIsOver = Locked(false)
    private let notes: ConnectionNotes
    /// Maps the error that ended the search or the channel to the error to report.
    private let explained: @Sendable (ChannelError) -> ChannelError
    /// Ends the search for the peer, or closes the service or the listener.
    private let end: @Sendable () async -> Void

    /// Whether the time limit has ended the connection.
    var hasReachedTimeLimit: Bool { timeIsOver.withLock { $0 } }

    /// Removes TARGET from the operands, and returns it. With --service, returns nil unless the
    /// first operand is peer:NAME or peer:KEY.
    static func takeTarget(
        _ operands: inout [String], _ arguments: Arguments
    ) throws(ChannelError) -> String? {
        if arguments.has(NearbyArguments.service), operands.first?.hasPrefix("peer:") != true {
            return nil
        }
        guard !operands.isEmpty else { throw arguments.usage("TARGET is missing") }
        return operands.removeFirst()
    }

    /// Starts a connection: dials the target or, with --listen, waits there. Without a target, both
    /// sides look for each other.
    static func start(
        _ arguments: Arguments, target text: String?, _ interruption: Interruption
    ) async throws(ChannelError) -> TransferConnection {
        let memory = try PeerMemory(arguments)
        let failures = FailureLog()
        let notes = ConnectionNotes(memory, failures)
        let isWaiting = arguments.has(RouteArguments.listen)
        if isWaiting, let text, let peer = PeerMemory.peer(text) {
            throw arguments.usage(
                "--listen waits at an endpoint, and not at \(text): name the endpoint, and "
                    + "`--remember \(peer)` to accept only that peer")
        }
        let dialTarget =
            try isWaiting
            ? nil
            : text.map { text throws(ChannelError) in
                try Target(text, arguments, memory)
            }
        let remembered = try dialTarget?.peer == nil ? memory.rememberedKey : nil
        let options = try ChannelOptions(
            arguments, operandKey: dialTarget?.peer, onlyKey: remembered, memory)
        var configuration = try PersistentArguments.configuration(options, arguments)
        if !options.acceptsOnlyCertainPeers { configuration.trust = notes.onlyFirstPeer }
        let route: PeerRoute
        var explained: @Sendable (ChannelError) -> ChannelError = { $0 }
        let end: @Sendable () async -> Void
        if let dialTarget {
            let dialer = try TargetDialer(
                dialTarget, arguments, options, configuration, isOnlyAttempt: false,
                rememberedKey: remembered, memory, notes)
            (route, explained, end) = (.dialing(dialer.dial), dialer.explained, dialer.end)
        } else {
            let routing = try await RouteArguments(
                arguments, endpoint: text, options, configuration, notes, failures, interruption)
            (route, end) = (routing.route, routing.end)
        }
        var delivery = PeerConnection.DeliveryOptions()
        delivery.streams.window = 1 << 20
        let connection = await PeerConnection.start(
            route, to: dialTarget?.peer ?? remembered, delivery: .exactlyOnce(delivery))
        return TransferConnection(
            connection: connection, interruption: interruption, timeLimit: options.timeLimit,
            notes: notes, explained: explained, end: end)
    }

    /// Reports the connection's states while `body` runs, and then ends the connection. If `body`
    /// returns true, this side first waits until the peer has said that it sends no more.
    ///
    /// With `endsWhenInterrupted`, a signal ends the connection for the peer as well. Otherwise,
    /// after a signal, the peer waits for this side's next process.
    ///
    /// Throws the error of a signal or of the time limit, if there is one. Otherwise throws the
    /// error of `body`, or, if `body` failed because the connection was closed, the error that
    /// closed the connection.
    func run(
        endsWhenInterrupted: Bool = false,
        _ body: @escaping @Sendable () async throws(ChannelError) -> Bool
    ) async throws(ChannelError) {
        let watching = Task(executorPreference: connection.loop) { () -> ChannelError? in
            for await status in await connection.states(keeping: 64) {
                do throws(ChannelError) {
                    try notes.report(status)
                } catch {
                    await connection.abort()
                    return error
                }
                if status.state == .closed { return status.failure }
            }
            return nil
        }
        let limiting = Task(executorPreference: connection.loop) { () -> ChannelError? in
            let failure = await timeLimit?.failure(awaitingChannelOf: connection)
            if failure != nil {
                timeIsOver.withLock { $0 = true }
                await connection.abort()
            }
            return failure
        }
        var failure: ChannelError?
        var isComplete = false
        do throws(ChannelError) {
            isComplete = try await interruption.cancelling(body)
        } catch {
            failure = error
        }
        if isComplete {
            // The fate of every file is known. The peer should learn that this side has ended; if
            // the peer is gone already, nothing is lost.
            _ = try? await interruption.cancelling { [connection] () async throws(ChannelError) in
                try await connection.close(within: Self.closeTimeout)
            }
        }
        if endsWhenInterrupted, interruption.error != nil {
            try? await connection.close(within: Self.interruptedCloseTimeout)
        }
        await endWithinLimits(on: connection.loop) { limit in
            try? await connection.leave(within: limit)
        } orAbort: {
            await connection.abort()
        }
        limiting.cancel()
        let timeLimitFailure = await limiting.value
        let connectionFailure = await watching.value
        await end()
        // A signal, or the time limit, is the cause of any other error.
        if let error = interruption.error ?? timeLimitFailure { throw error }
        if let failure {
            // The error that closed the connection explains more than the error of a call that
            // failed because the connection was closed.
            let isConsequence = [.closed, .cancelled].contains(failure.code)
            throw explained(isConsequence ? connectionFailure ?? failure : failure)
        }
    }

    /// Resets the streams that the peer opens for anything but files, so that the peer does not
    /// wait for them.
    static func refuseOthers(_ connection: PeerConnection) async {
        for await stream in connection.incomingStreams {
            await stream.reset()
            await stream.stop()
        }
    }

    /// How long `close` waits without any progress.
    private static let closeTimeout: Duration = .seconds(10)
    /// How long `close` waits after a signal, when the user waits for the command to exit.
    private static let interruptedCloseTimeout: Duration = .seconds(1)
}
