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
    /// Whether this user may not connect to the Unix socket.
    var isDenied: Bool { notes.isDenied }

    fileprivate init(
        _ connection: PeerConnection, _ interruption: Interruption, _ timeLimit: TimeLimit?,
        _ notes: ConnectionNotes, explained: @escaping @Sendable (ChannelError) -> ChannelError,
        end: @escaping @Sendable () async -> Void
    ) {
        self.connection = connection
        self.interruption = interruption
        self.timeLimit = timeLimit
        self.notes = notes
        self.explained = explained
        self.end = end
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
        let reportFailure = Locked<ChannelError?>(nil)
        let watching = Task(executorPreference: connection.loop) { () -> ChannelError? in
            for await status in await connection.states(keeping: 64) {
                do throws(ChannelError) {
                    try notes.report(status)
                } catch {
                    reportFailure.withLock { $0 = error }
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
        // The peer's end counts as received only when `receive` has returned it, so this task
        // calls `receive`. The peer should send no message before its end.
        let receiving = Task(executorPreference: connection.loop) { () -> ChannelError? in
            guard
                let error = await Forwarder.awaitMessage(
                    on: connection,
                    "run `blesec send` on one side and `blesec receive` on the other")
            else { return nil }
            // Unlike `leave`, `close(.interrupted)` does not wait until this side has confirmed the
            // peer's message.
            try? await connection.close(.interrupted, within: Self.interruptedCloseTimeout)
            await connection.abort()
            return error
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
        // If the signal came when both sides were complete, `close` would only wait for the peer to
        // learn that.
        if endsWhenInterrupted, interruption.error != nil, await !connection.isSettled {
            // `close` gets at most five seconds in all, because it, too, may come to wait for that.
            let closing = Task(executorPreference: connection.loop) {
                try? await connection.close(within: Self.interruptedCloseTimeout)
            }
            let stop = Task(executorPreference: connection.loop) {
                try await connection.loop.sleep(for: Self.interruptedCloseTimeout * 5)
                closing.cancel()
            }
            await closing.value
            stop.cancel()
        }
        await endWithinLimits(on: connection.loop) { limit in
            try? await connection.leave(within: limit)
        } orAbort: {
            await connection.abort()
        }
        limiting.cancel()
        let timeLimitFailure = await limiting.value
        receiving.cancel()
        let unexpectedMessage = await receiving.value
        let connectionFailure = await watching.value
        await end()
        // One of these errors, if there is any, has caused `failure` and `connectionFailure`.
        let cause =
            interruption.error ?? timeLimitFailure ?? unexpectedMessage
            ?? reportFailure.withLock { $0 }
        if let cause { throw cause }
        if let failure {
            // The error that closed the connection explains more than the error of a call that
            // failed because the connection was closed.
            let isConsequence = [.closed, .cancelled].contains(failure.code)
            throw explained(isConsequence ? connectionFailure ?? failure : failure)
        }
    }

    /// How long `close` waits without any progress.
    private static let closeTimeout: Duration = .seconds(10)
    /// How long `close` waits after a signal, when the user waits for the command to exit.
    private static let interruptedCloseTimeout: Duration = .seconds(1)
}

/// What the connections of one command are made with: the options, the keys and the target. They
/// are read once, since reading a key can ask for its passphrase. The commands make the
/// ``Interruption`` only after that: until then, Ctrl-C has its default effect, and ends the command
/// at the question.
struct TransferSetup {
    private let arguments: Arguments
    private let memory: PeerMemory
    /// The operand TARGET; nil if both sides look for each other.
    private let operand: String?
    /// The target to dial; nil with --listen, or without an operand.
    private let target: Target?
    private let options: ChannelOptions

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

    /// - Parameter operand: the operand TARGET, as ``takeTarget(_:_:)`` returns it.
    init(_ arguments: Arguments, target operand: String?) throws(ChannelError) {
        self.arguments = arguments
        self.operand = operand
        let memory = try PeerMemory(arguments)
        self.memory = memory
        let isWaiting = arguments.has(RouteArguments.listen)
        if isWaiting, let operand, let nameOrKey = PeerMemory.nameOrKey(operand) {
            throw arguments.usage(
                "--listen waits at an endpoint, and not at \(operand): name the endpoint, and "
                    + "`--remember \(nameOrKey)` to accept only that peer")
        }
        let target =
            try isWaiting
            ? nil
            : operand.map { text throws(ChannelError) in
                try Target(text, arguments, memory)
            }
        self.target = target
        options = try ChannelOptions(
            arguments, operandKey: target?.peer, rememberedKey: memory.rememberedKey, memory)
    }

    /// Starts a connection: dials the target or, with --listen, waits there. Without a target, both
    /// sides look for each other.
    func connect(_ interruption: Interruption) async throws(ChannelError) -> TransferConnection {
        let failures = FailureLog()
        let notes = ConnectionNotes(memory, failures)
        let remembered = memory.rememberedKey
        var options = options
        var configuration = try PersistentArguments.configuration(options, arguments)
        if remembered != nil {
            // An earlier connection may have remembered the peer. The policy accepts only that peer
            // from then on.
            options.acceptsOnlyCertainPeers = true
        } else if !options.acceptsOnlyCertainPeers {
            configuration.trust = notes.onlyFirstPeer
        }
        let route: PeerRoute
        var timeLimit = options.timeLimit
        var explained: @Sendable (ChannelError) -> ChannelError = { $0 }
        let end: @Sendable () async -> Void
        if let target {
            let dialer = try TargetDialer(
                target, arguments, options, configuration, isOnlyAttempt: false,
                rememberedKey: remembered, memory, notes)
            (route, explained, end) = (.dialing(dialer.dial), dialer.explained, dialer.end)
        } else {
            let routing = try await RouteArguments(
                arguments, endpoint: operand, options, configuration, notes, failures, interruption)
            (route, timeLimit, end) = (routing.route, routing.timeLimit, routing.end)
        }
        var delivery = PeerConnection.DeliveryOptions()
        // A message of a peer that runs another command is taken, and never confirmed.
        delivery.acknowledgement = .manual
        delivery.streams.window = 1 << 20
        let connection = await PeerConnection.start(
            route, to: target?.peer ?? remembered, delivery: .exactlyOnce(delivery))
        return TransferConnection(
            connection, interruption, timeLimit, notes, explained: explained, end: end)
    }
}
