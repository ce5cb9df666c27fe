internal import BLESecChannelCore
internal import BLESecLinks

/// Asks a trust policy or its store about a channel's peer, and asks the store to remember the
/// peer.
///
/// A store may block, so each call to a store runs on a thread of its own.
final class TrustRequests {
    /// Limits that all channels of one listener share, or all channels that have no listener.
    struct Limits: Sendable {
        /// Limits the peers that wait for an application to decide; `nil` without a listener.
        let decisions: ConcurrencyLimit?
        /// Limits the threads that call a trust store.
        let storeThreads: ConcurrencyLimit
        /// The limits of all channels that have no listener, so that repeated dials cannot create
        /// more and more threads.
        static let dialers = Limits(decisions: nil, storeThreads: ConcurrencyLimit(64))
    }

    private let limits: Limits
    private var decisionTask: Task<Void, Never>?
    private var decisionPlace: ConcurrencyLimit.Place?
    private var rememberTimeout: Duration?
    /// The deadline for the store to remember the peer; `nil` while no answer is awaited.
    private(set) var rememberDeadline: UInt64?
    /// The result of remembering the peer.
    private(set) var rememberResult: Result<Void, ChannelError>?
    /// Passes an answer on to the channel; called on any thread.
    var onDecision: @Sendable (TrustPolicy.Verdict) -> Void = { _ in }
    var onRemembered: @Sendable (Result<Void, ChannelError>) -> Void = { _ in }

    init(_ limits: Limits) { self.limits = limits }
    /// Whether the peer has one of the listener's places for decisions by an application.
    var holdsDecisionPlace: Bool { decisionPlace != nil }

    /// Asks a question. If it cannot be asked now, returns the reason.
    func ask(_ question: TrustQuestion) -> ChannelError? {
        let onDecision = onDecision
        switch question {
        case .evaluate(let evaluate, let identity):
            if let decisions = limits.decisions {
                decisionPlace = decisions.take()
                guard decisionPlace != nil else {
                    return ChannelError(.limitExceeded, "too many trust decisions are pending")
                }
            }
            decisionTask = Task {
                do {
                    onDecision(try await evaluate(identity))
                } catch {
                    onDecision(.refuse("the trust policy failed: \(error)"))
                }
            }
            return nil
        case .lookUp(let lookUp):
            return startStoreWork { onDecision(lookUp()) } ? nil : Self.storeIsBusy
        }
    }

    /// Called when the question is answered, or no answer is awaited any more.
    func didDecide() {
        decisionTask = nil
        decisionPlace = nil
    }

    /// Cancels the task that asks the application, because the answer is not needed any more.
    func cancelDecision() {
        guard let task = decisionTask else { return }
        task.cancel()
        // The application may go on asking a person, so the place is given back only when the task
        // has ended.
        Task { [decisionPlace] in
            await task.value
            withExtendedLifetime(decisionPlace) {}
        }
        didDecide()
    }

    func remember(_ peer: PeerIdentity, by policy: TrustPolicy, within limit: Duration, now: UInt64)
    {
        rememberTimeout = limit
        rememberDeadline = now.after(limit)
        let onRemembered = onRemembered
        let isStarted = startStoreWork {
            onRemembered(Result { () throws(ChannelError) in try policy.remember(peer) })
        }
        if !isStarted { didRemember(.failure(Self.storeIsBusy)) }
    }

    /// Records the result of remembering the peer; later results are ignored.
    func didRemember(_ result: Result<Void, ChannelError>) {
        guard rememberDeadline != nil else { return }
        rememberDeadline = nil
        rememberResult = result
    }

    /// Stops waiting for the store to remember the peer, because the channel has failed.
    func fail(_ error: ChannelError) { didRemember(.failure(error)) }

    /// Stops waiting for the store to remember the peer, if the deadline has passed.
    func handleTimeout(now: UInt64) {
        guard let rememberDeadline, let rememberTimeout, now >= rememberDeadline else { return }
        didRemember(
            .failure(.late("the trust store did not remember the peer within", rememberTimeout)))
    }

    /// Runs `body` on a thread of its own; returns false if there are too many such threads, or if
    /// none can be created. A thread counts until `body` returns, even if the channel ends earlier.
    private func startStoreWork(_ body: @escaping @Sendable () -> Void) -> Bool {
        guard let place = limits.storeThreads.take() else { return false }
        return BlockingWork.start {
            body()
            withExtendedLifetime(place) {}
        }
    }

    private static let storeIsBusy = ChannelError(
        .limitExceeded, "no thread is free to ask the trust store")
}
