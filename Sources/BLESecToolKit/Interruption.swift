package import BLESec
internal import BLESecLocking
internal import Glibc

/// Handles SIGINT, SIGTERM and SIGHUP: the first signal runs the current action. A further signal ends
/// the process at once, unless it comes so soon that ``Signals`` ignores it.
package final class Interruption: Sendable {
    private struct State: Sendable {
        var firstSignal: Int32?
        var action: (@Sendable () -> Void)?
    }

    private let state = Locked(State())

    /// Begins to handle signals, until the process ends.
    package init() {
        _ = Signals.add { [self] number in
            let (isFirst, action) = state.withLock { state in
                defer { state.firstSignal = state.firstSignal ?? number }
                return (state.firstSignal == nil, state.action)
            }
            guard isFirst else { _exit(128 + number) }
            action?()
            return true
        }
    }

    /// The error of an interrupted command; nil if no signal was received.
    package var error: ChannelError? {
        switch state.withLock({ $0.firstSignal }) {
        case nil: nil
        case SIGINT: ChannelError(.interrupted, "interrupted")
        case SIGHUP: ChannelError(.hungUp, "the terminal hung up")
        default: ChannelError(.terminated, "terminated")
        }
    }

    /// Sets the action of the first signal, and runs it at once if a signal was already received.
    package func setAction(_ action: (@Sendable () -> Void)?) {
        let isInterrupted = state.withLock { state in
            state.action = action
            return state.firstSignal != nil
        }
        if isInterrupted { action?() }
    }

    /// Runs `body`, and cancels it when a signal is received.
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
