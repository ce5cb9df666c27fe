package import BLESec
internal import BLESecLocking
internal import Glibc

/// The first SIGINT, SIGTERM or SIGHUP, which ends what is going on politely. The second ends the
/// process at once.
package final class Interruption: Sendable {
    private struct State: Sendable {
        var number: Int32?
        var action: (@Sendable () -> Void)?
    }

    private let state = Locked(State())

    /// Begins to look for signals, for as long as the process lives.
    package init() {
        _ = Signals.add { [self] number in
            let (isFirst, action) = state.withLock { state in
                defer { state.number = state.number ?? number }
                return (state.number == nil, state.action)
            }
            guard isFirst else { _exit(128 + number) }
            action?()
            return true
        }
    }

    /// What a command ends with that was interrupted; nil when it was not.
    package var error: ChannelError? {
        switch state.withLock({ $0.number }) {
        case nil: nil
        case SIGINT: ChannelError(.interrupted, "interrupted")
        case SIGHUP: ChannelError(.hungUp, "the terminal hung up")
        default: ChannelError(.terminated, "terminated")
        }
    }

    /// Sets what the first signal does; at once, if it has come already.
    package func setAction(_ action: (@Sendable () -> Void)?) {
        let isLate = state.withLock { state in
            state.action = action
            return state.number != nil
        }
        if isLate { action?() }
    }

    /// Runs `body`, which a signal cancels.
    package func cancelling<Value: Sendable>(
        _ body: @escaping @Sendable () async throws(ChannelError) -> Value
    ) async throws(ChannelError) -> Value {
        let task = Task(executorPreference: EventLoop.shared) { () -> Result<Value, ChannelError> in
            do throws(ChannelError) {
                return .success(try await body())
            } catch {
                return .failure(error)
            }
        }
        setAction { task.cancel() }
        defer { setAction(nil) }
        do throws(ChannelError) {
            return try await task.value.get()
        } catch {
            throw self.error ?? error
        }
    }
}
