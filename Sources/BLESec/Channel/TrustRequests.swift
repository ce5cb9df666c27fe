internal import BLESecChannelCore
internal import BLESecLinks

/// Asks a trust policy or a trust store about a channel's peer; has the store remember the peer.
///
/// A store may block, so each call to a store runs on a thread of its own.
final class TrustRequests {
    /// Limits that the channels of a listener share.
    struct Limits: Sendable {
        /// How many peers of a listener may wait for an application to decide; `nil` for a dialer.
        let decisions: TrustDecisionLimiter?
        /// How many store threads there are at once.
        let stores: TrustDecisionLimiter
        /// The limits of all dialers of the process, so that repeated dials cannot pile up threads.
        static let dialers = Limits(decisions: nil, stores: TrustDecisionLimiter(64))
    }

    private let limits: Limits
    private var decisionTask: Task<Void, Never>?
    private var decisionPlace: TrustDecisionLimiter.Place?
    private var rememberTimeout: Duration?
    /// When the store must have remembered the peer; `nil` unless its answer is awaited.
    private(set) var rememberDeadline: UInt64?
    /// The result of remembering the peer.
    private(set) var rememberResult: Result<Void, ChannelError>?
    /// Passes an answer on to the channel; called on any thread.
    var onDecision: @Sendable (TrustPolicy.Verdict) -> Void = { _ in }
    var onRemembered: @Sendable (Result<Void, ChannelError>) -> Void = { _ in }

    init(_ limits: Limits) { self.limits = limits }
    /// Whether the peer has one of the listener's places for decisions by an application.
    var holdsDecisionPlace: Bool { decisionPlace != nil }

    /// Asks a question; returns the reason for a refusal if the question cannot be asked.
    func ask(_ question: Handshake.TrustQuestion) -> String? {
        let onDecision = onDecision
        switch question {
        case .evaluate(let evaluate, let identity):
            if let decisions = limits.decisions {
                decisionPlace = decisions.take()
                guard decisionPlace != nil else { return "too many trust decisions are pending" }
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

    func didDecide() {
        decisionTask = nil
        decisionPlace = nil
    }

    func cancelDecision() {
        decisionTask?.cancel()
        decisionPlace = nil
    }

    func remember(_ peer: PeerIdentity, by policy: TrustPolicy, within limit: Duration, now: UInt64)
    {
        rememberTimeout = limit
        rememberDeadline = now.after(limit)
        let onRemembered = onRemembered
        let isAsked = startStoreWork {
            onRemembered(Result { () throws(ChannelError) in try policy.remember(peer) })
        }
        if !isAsked { didRemember(.failure(ChannelError(.busy, Self.storeIsBusy))) }
    }

    /// Records the result of remembering the peer; later results are ignored.
    func didRemember(_ result: Result<Void, ChannelError>) {
        guard rememberDeadline != nil else { return }
        rememberDeadline = nil
        rememberResult = result
    }

    /// Stops waiting for a store, because the channel has failed.
    func fail(_ error: ChannelError) { didRemember(.failure(error)) }

    /// Stops waiting for a store that does not answer.
    func handleTimeout(now: UInt64) {
        guard let rememberDeadline, let rememberTimeout, now >= rememberDeadline else { return }
        didRemember(
            .failure(.late("the trust store did not remember the peer within", rememberTimeout)))
    }

    /// Runs `body` on a thread of its own. The thread has a place until `body` returns, even if the
    /// channel ends earlier, so that repeated dials cannot pile up threads behind a slow store.
    private func startStoreWork(_ body: @escaping @Sendable () -> Void) -> Bool {
        guard let place = limits.stores.take() else { return false }
        return BlockingWork.start {
            body()
            withExtendedLifetime(place) {}
        }
    }

    private static let storeIsBusy = "too many peers wait for the trust store"
}
