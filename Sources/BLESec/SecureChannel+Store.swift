internal import BLESecChannelCore
internal import BLESecLinks

// A trust store may block, so each query runs on a thread of its own, and the channel waits for the
// answer.
extension SecureChannel {
    /// Waits for the handshake, and until the policy has remembered the peer, if it remembers
    /// peers. Returns only after both.
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

    /// Asks the trust store about the peer's key, if the policy has a store.
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

    /// Records the result of remembering the peer; later results are ignored.
    func remembered(_ result: Result<Void, ChannelError>) {
        guard rememberDeadline != nil else { return }
        rememberDeadline = nil
        rememberResult = result
        waiting.wake(.remembered)
    }

    /// Stops waiting for a store that does not answer.
    func storeTimeout(now: UInt64) {
        guard let rememberDeadline, now >= rememberDeadline else { return }
        remembered(
            .failure(
                .late(
                    "the trust store did not remember the peer within",
                    configuration.timeouts.trustDecision)))
    }

    /// Keeps the timer for the store only, because the channel itself is over.
    func armForStore() {
        if let rememberDeadline {
            timer?.arm(at: MonotonicTime(nanoseconds: rememberDeadline))
        } else {
            timer?.disarm()
        }
    }

    /// Runs `body` on a thread of its own, and holds a listener's place until `body` returns, even
    /// if the channel ends earlier: a peer that connects repeatedly cannot pile up threads behind a
    /// slow store.
    private func startStoreWork(_ body: @escaping @Sendable () -> Void) -> Bool {
        guard let place = (storePlaces ?? Self.dialersPlaces).take() else { return false }
        return BlockingWork.start {
            body()
            withExtendedLifetime(place) {}
        }
    }

    /// The places shared by all dialers of the process: a program that dials repeatedly must not
    /// pile up threads either.
    private static let dialersPlaces = TrustDecisionLimiter(64)

    private static let storeIsBusy = "too many peers wait for the trust store"
}
