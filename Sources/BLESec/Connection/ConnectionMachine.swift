internal import BLESecChannelCore
internal import BLESecDiscovery
internal import BLESecLinks

/// The state machine of a connection: it decides, and its caller acts.
///
/// Its inputs are the results of attempts and channels, and the time; its outputs are the status
/// and the next step. It has no clock, randomness or link of its own.
struct ConnectionMachine {
    /// What the caller must do next.
    enum Step: Hashable {
        case nothing
        /// Search for the peer, or dial it, once more.
        case attempt
        /// Cancel the current attempt, which has taken too long.
        case abandon
    }

    let rules: ReconnectPolicy
    private(set) var status: ConnectionStatus
    /// Since when the peer has been unreachable.
    private var unreachedSince: MonotonicTime

    /// Makes a machine in the searching state; the caller must make the first attempt at once.
    init(rules: ReconnectPolicy, now: MonotonicTime) {
        self.rules = rules
        unreachedSince = now
        status = ConnectionStatus(state: .searching, since: now)
        enter(.searching, now)
    }

    var isConnected: Bool { status.state == .connected }
    var isClosed: Bool { status.state == .closed }

    /// Records the state that the attempt has reached.
    mutating func reached(_ state: ConnectionState, at now: MonotonicTime) {
        guard !isConnected, !isClosed, status.state != state else { return }
        // A search alone does not end the out-of-range or backing-off state.
        if state == .searching, status.state == .outOfRange || status.state == .backingOff {
            return
        }
        enter(state, now)
    }

    /// Records a new channel, which may replace another one.
    mutating func connected(
        _ peer: PeerIdentity, by protocolName: String = "", over link: String = "",
        at now: MonotonicTime
    ) {
        guard !isClosed else { return }
        enter(.connected, now)
        status.peer = peer
        status.protocolName = protocolName
        status.linkDescription = link
        status.failure = nil
    }

    /// Records that the channel is over, and that no other channel has replaced it.
    ///
    /// After a good link (``LinkOutcome``) the next attempt begins at once; after any other link it
    /// begins after the same delay as after a failure.
    mutating func lost(
        _ error: ChannelError?, hasCarried: Bool, at now: MonotonicTime,
        using generator: inout some RandomNumberGenerator
    ) -> Step {
        guard isConnected else { return .nothing }
        let course = LinkOutcome(
            lasted: now.duration(since: status.since), hasCarried: hasCarried,
            stableAfter: rules.stableAfter, backoff: rules.backoff)
        unreachedSince = now
        guard course == .stable else {
            fail(error, course.failures(after: status.failures), now, &generator)
            return .nothing
        }
        status.failures = 0
        status.failure = error
        enter(.searching, now)
        return .attempt
    }

    /// Records that the attempt has failed.
    mutating func failed(
        _ error: ChannelError, at now: MonotonicTime,
        using generator: inout some RandomNumberGenerator
    ) {
        guard !isConnected, !isClosed else { return }
        fail(error, status.failures + 1, now, &generator)
    }

    /// Handles the status' deadline; does nothing if the deadline has not come.
    mutating func timeout(
        at now: MonotonicTime, using generator: inout some RandomNumberGenerator
    ) -> Step {
        guard let deadline = status.deadline, now >= deadline else { return .nothing }
        switch status.state {
        case .searching:
            enter(.outOfRange, now)
            return .nothing
        case .outOfRange, .backingOff:
            enter(.searching, now)
            return .attempt
        case .dialing, .opening, .handshaking:
            let error = ChannelError(
                .timedOut, "\(status.state.rawValue) took longer than it may")
            fail(error, status.failures + 1, now, &generator)
            return .abandon
        case .connected, .closed: return .nothing
        }
    }

    /// Closes the connection for good; the first reason stands.
    mutating func close(_ error: ChannelError?, at now: MonotonicTime) {
        guard !isClosed else { return }
        enter(.closed, now)
        status.failure = error
    }

    private mutating func fail(
        _ error: ChannelError?, _ failures: Int, _ now: MonotonicTime,
        _ generator: inout some RandomNumberGenerator
    ) {
        status.failures = failures
        let isFar = now >= unreachedSince.advanced(by: rules.searching)
        enter(isFar ? .outOfRange : .backingOff, now)
        status.failure = error
        status.deadline = now.advanced(
            by: rules.backoff.delay(afterFailures: status.failures, using: &generator))
    }

    private mutating func enter(_ state: ConnectionState, _ now: MonotonicTime) {
        status.state = state
        status.since = now
        status.deadline = rules.limit(of: state).map { now.advanced(by: $0) }
    }
}
