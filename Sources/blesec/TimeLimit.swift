internal import BLESec
internal import BLESecToolKit

/// `--timeout SECONDS`, or another option that limits a time.
struct TimeLimit: Sendable {
    static let option = Option(
        name: "--timeout", value: "SECONDS",
        help: "Give up, with exit status 75, if no channel is ready within this time. The time "
            + "includes the wait for bluetoothd's answer and, for a listener, the wait for a peer. "
            + "By default a listener waits for ever, and each phase of a dial has a limit of its "
            + "own.")

    /// The text for ``run(orFail:_:)`` if no channel is ready in time.
    static let noChannel = "no channel was ready"

    let duration: Duration
    /// The number of seconds, for the error's text.
    private let text: String
    /// When the time is over, if it has begun (``begun``); nil if it begins anew with each wait.
    private var end: MonotonicTime?

    /// Reads `option`; nil when it was not given.
    init?(_ arguments: Arguments, _ option: Option = TimeLimit.option) throws(ChannelError) {
        guard let duration = try Seconds.read(arguments, option) else { return nil }
        self.duration = duration
        text = arguments.value(option) ?? ""
    }

    /// A limit that no option names. `duration` is a whole number of seconds.
    init(_ duration: Duration) {
        self.duration = duration
        text = String(duration.components.seconds)
    }

    /// The same limit for several waits together: the time begins now, if it has not begun yet.
    var begun: TimeLimit {
        var limit = self
        limit.end = end ?? EventLoop.shared.now.advanced(by: duration)
        return limit
    }

    /// Waits until the time is over.
    ///
    /// - Throws: when the task is cancelled.
    func wait() async throws(CancellationError) {
        let loop = EventLoop.shared
        try await loop.sleep(until: end ?? loop.now.advanced(by: duration))
    }

    /// Runs `body`, and cancels it when the time is over.
    ///
    /// - Parameter failure: what has not happened by then, such as `no channel was ready`.
    /// - Throws: `timedOut` with `failure` as the reason; the error of `body`; `cancelled` if the
    ///   task is cancelled.
    func run<Value: Sendable>(
        orFail failure: String,
        _ body: @escaping @Sendable () async throws(ChannelError) -> Value
    ) async throws(ChannelError) -> Value {
        // A result of nil means that the time is over.
        let result = await withTaskGroup(of: Result<Value, ChannelError>?.self) { group in
            group.addTask {
                do throws(ChannelError) {
                    return .success(try await body())
                } catch {
                    return .failure(error)
                }
            }
            group.addTask {
                do {
                    try await wait()
                    return nil
                } catch {
                    return .failure(ChannelError(.cancelled, "the wait was cancelled"))
                }
            }
            let first = await group.next() ?? nil
            group.cancelAll()
            // A result that was ready at the last moment, such as a channel, is returned, and not
            // discarded.
            let second = await group.next() ?? nil
            if case .success = second { return second }
            return first
        }
        guard let result else {
            throw ChannelError(.timedOut, "\(failure) within \(text) s")
        }
        return try result.get()
    }

    /// Runs `body`, which asks bluetoothd, within a limit if there is one.
    static func askBluetoothd<Value: Sendable>(
        within limit: TimeLimit?,
        _ body: @escaping @Sendable () async throws(ChannelError) -> Value
    ) async throws(ChannelError) -> Value {
        guard let limit else { return try await body() }
        return try await limit.run(orFail: "bluetoothd did not answer", body)
    }

    /// Waits until the connection has its first channel or is closed, or the task is cancelled.
    /// Returns the error `timedOut` if the time is over before that, and otherwise nil.
    func failure(awaitingChannelOf connection: PeerConnection) async -> ChannelError? {
        do throws(ChannelError) {
            try await run(orFail: Self.noChannel) { () async throws(ChannelError) in
                for await status in await connection.states() where status.state == .connected {
                    return
                }
                // The time is over, or the connection is closed.
                throw ChannelError(.cancelled, "there was no channel")
            }
            return nil
        } catch {
            return error.code == .timedOut ? error : nil
        }
    }
}
