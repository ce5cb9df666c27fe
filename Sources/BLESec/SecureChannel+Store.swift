internal import BLESecChannelCore
internal import BLESecLinks

// Trust stores may block, so they are asked on threads of their own, and the channel waits for the answer.
extension SecureChannel {
    /// Waits for the handshake, and until the policy has written down what it learns from it. Nothing is
    /// reported before both.
    func becomeReady() async throws(ChannelError) {
        try await waitUntilReady()
        let policy = configuration.policy(for: machine.protocolName)
        guard policy.remembers else { return }
        remember(peer, by: policy)
        do throws(ChannelError) {
            while rememberResult == nil {
                try await wait(for: .remembered) { rememberResult != nil }
            }
            try rememberResult?.get()
        } catch {
            rememberDeadline = nil
            machine.fail(error)
            pump()
            throw error
        }
    }

    /// Asks the store about a peer's key, where the policy has one.
    func askStore() {
        guard let lookUp = machine.takeLookUp() else { return }
        let isAsked = startStoreWork { [weak self] in
            let verdict = lookUp()
            Task { await self?.didDecide(verdict) }
        }
        if !isAsked { machine.didDecide(.refuse(Self.storeIsBusy), now: now) }
    }

    private func remember(_ peer: PeerIdentity, by policy: TrustPolicy) {
        rememberDeadline = now.after(configuration.timeouts.trustDecision)
        let isAsked = startStoreWork { [weak self] in
            let result: Result<Void, ChannelError>
            do throws(ChannelError) {
                result = .success(try policy.remember(peer))
            } catch {
                result = .failure(error)
            }
            Task { await self?.remembered(result) }
        }
        if !isAsked { remembered(.failure(ChannelError(.busy, Self.storeIsBusy))) }
        pump()
    }

    /// Takes note of what became of remembering the peer; what comes later changes nothing.
    func remembered(_ result: Result<Void, ChannelError>) {
        guard rememberDeadline != nil else { return }
        rememberDeadline = nil
        rememberResult = result
        waiting.wake(.remembered)
    }

    /// Gives up a store that does not answer.
    func storeTimeout(now: UInt64) {
        guard let rememberDeadline, now >= rememberDeadline else { return }
        remembered(
            .failure(
                .late(
                    "the trust store did not remember the peer within",
                    configuration.timeouts.trustDecision)))
    }

    /// Keeps the timer for the store alone, now that the channel itself is over.
    func armForStore() {
        if let rememberDeadline {
            timer?.arm(at: MonotonicTime(nanoseconds: rememberDeadline))
        } else {
            timer?.disarm()
        }
    }

    /// Runs `body` on a thread of its own. A listener's place is held until it returns, whatever becomes of
    /// the channel meanwhile: a peer that comes and goes cannot pile up threads behind a slow store.
    private func startStoreWork(_ body: @escaping @Sendable () -> Void) -> Bool {
        guard let place = (storePlaces ?? Self.dialersPlaces).take() else { return false }
        return BlockingWork.start {
            body()
            withExtendedLifetime(place) {}
        }
    }

    /// What all dialers of the process have: one that dials again and again must not pile up threads
    /// either.
    private static let dialersPlaces = TrustDecisionLimiter(64)

    private static let storeIsBusy = "too many peers wait for the trust store"
}
