internal import BLESec
internal import BLESecToolKit

/// `--timeout SECONDS`
struct TimeLimit: Sendable {
    static let option = Option(
        name: "--timeout", value: "SECONDS",
        help: "Give up, with exit status 75, if no channel is ready within this time. For a "
            + "listener, the time begins when the listener starts to wait for a peer. By default a "
            + "listener waits for ever, and each phase of a dial has a limit of its own.")

    let duration: Duration
    private let text: String

    /// Reads the option; nil when it was not given.
    init?(_ arguments: Arguments) throws(ChannelError) {
        guard let duration = try Seconds.read(arguments, Self.option) else { return nil }
        self.duration = duration
        text = arguments.value(Self.option) ?? ""
    }

    /// Runs `body`, and cancels it when the time is over.
    ///
    /// - Throws: `timedOut`, whose reason names what was awaited; the error of `body`; `cancelled`
    ///   if the task is cancelled.
    func run<Value: Sendable>(
        awaiting awaited: String,
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
            group.addTask { [duration] in
                do {
                    try await EventLoop.shared.sleep(for: duration)
                    return nil
                } catch {
                    return .failure(ChannelError(.cancelled, "the wait was cancelled"))
                }
            }
            let first = await group.next() ?? nil
            group.cancelAll()
            // A channel that was ready at the last moment is returned, and not discarded.
            let second = await group.next() ?? nil
            if case .success = second { return second }
            return first
        }
        guard let result else {
            throw ChannelError(.timedOut, "no \(awaited) was ready within \(text) s")
        }
        return try result.get()
    }

    /// Waits until the connection has its first channel or is closed, or the task is cancelled.
    /// Returns the error `timedOut` if the time is over before that, and otherwise nil.
    func failure(awaitingChannelOf connection: PeerConnection) async -> ChannelError? {
        do throws(ChannelError) {
            try await run(awaiting: "channel") { () async throws(ChannelError) in
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
