internal import BLESecChannelCore
internal import BLESecDiscovery
internal import BLESecLinks

/// The state machine of a connection: the machine decides, and its caller acts.
///
/// The machine's inputs are the results of attempts and channels, and the time; its outputs are the
/// status and the next step. The machine has no clock, randomness or link of its own.
final class ConnectionMachine {
    /// What the caller must do next.
    enum Step: Equatable {
        case nothing
        /// Search for the peer, or dial it, once more.
        case attempt
        /// Cancel the current attempt, which has taken too long.
        case abandon
        /// Close the connection for good.
        case close(ChannelError)
    }

    /// What the machine has to know about a new channel.
    struct NewChannel {
        let peer: PeerIdentity
        let history: ChannelHistory
        var protocolName = ""
        var linkDescription = ""
        /// Whether no more messages can be queued on the channel.
        var isEnding = false
    }

    enum Admission {
        /// Use the new channel from now on, and end the channel that was in use before, if any.
        case use
        /// The new channel is over or ending: keep only its messages that have arrived.
        case keepMessages
        /// The channel in use stays: end the new channel, and keep only its messages that have arrived.
        case endAsDuplicate
        case refuse(ChannelError)
    }

    /// What to do when a channel's peer has sent its end.
    enum Ending {
        /// The channel stays in use until it is over, because this side may still send.
        case keepChannel
        /// Neither side sends anything more: close the connection.
        case closeConnection
        /// The channel is not used any more: drop it, and take the step.
        case dropChannel(then: Step)
    }

    /// No new link is made while this many channels are in use or have unread messages.
    static let mostUnreadChannels = 8
    let rules: ReconnectPolicy
    /// Whether the route, which supplies the channels, has already decided which of two channels to
    /// the peer stays. Then this machine takes every new channel.
    private let routeSettlesDuplicates: Bool
    private(set) var status: ConnectionStatus
    /// The expected peer; if none was given, `nil` until the first peer with a key has connected.
    private(set) var expectedPeer: Fingerprint?
    /// The number of the current attempt. The number changes when an attempt begins and when an attempt
    /// is over; reports with another number are ignored.
    private(set) var attempt = 0
    /// Whether this side has declared that it sends nothing more, on this link and on later links.
    private(set) var hasFinished = false
    /// Whether the peer has finished sending for good.
    private(set) var hasPeerEnded = false
    /// The history of the channel in use; nil if there is none.
    private var currentHistory: ChannelHistory?
    /// When the connection began, or when it last left the state `handshaking` or `connected`,
    /// whichever was later. Since then, the peer was not reached.
    private var unreachedSince: MonotonicTime

    /// Makes a machine in the searching state; the caller must make the first attempt at once.
    init(
        rules: ReconnectPolicy, expectedPeer: Fingerprint? = nil,
        routeSettlesDuplicates: Bool = false,
        now: MonotonicTime
    ) {
        self.rules = rules
        self.expectedPeer = expectedPeer
        self.routeSettlesDuplicates = routeSettlesDuplicates
        unreachedSince = now
        status = ConnectionStatus(state: .searching, since: now)
        enter(.searching, now)
    }

    var isConnected: Bool { status.state == .connected }
    var isClosed: Bool { status.state == .closed }
    /// Whether this side may still send, on this link or on a later link.
    var canSend: Bool { !isClosed && !hasFinished }

    /// The error of a call after this side has finished, or after the connection was closed.
    var closedError: ChannelError {
        guard isClosed else {
            return ChannelError(.closed, "this side has said that it sends nothing more")
        }
        return status.failure ?? ChannelError(.closed, "the connection is closed")
    }

    private static let noRoom = ChannelError(
        .limitExceeded, "the messages of \(mostUnreadChannels) links wait to be read")

    // MARK: - Attempts

    /// Begins an attempt, and returns its number. If there is no room for a new link, the attempt
    /// fails at once, and the result is `nil`.
    func begin(
        hasRoom: Bool, at now: MonotonicTime, using generator: inout some RandomNumberGenerator
    ) -> Int? {
        // From now on, late reports of the previous attempt are ignored.
        attempt += 1
        if hasRoom { return attempt }
        _ = failed(Self.noRoom, at: now, using: &generator)
        return nil
    }

    /// Records the state that an attempt has reached.
    ///
    /// - Parameter attempt: the attempt's number; `nil` if a ``NearbyService``, which makes its own
    ///   attempts, reports the state.
    func reached(_ state: ConnectionState, in attempt: Int? = nil, at now: MonotonicTime) {
        guard (attempt ?? self.attempt) == self.attempt, state.belongsToAttempt, !isConnected,
            !isClosed, status.state != state
        else { return }
        if state == .searching { continueSearch(now) } else { enter(state, now) }
    }

    /// Records that a ``NearbyService`` has called off the dial whose state was reported last.
    func dialCancelled(at now: MonotonicTime) { continueSearch(now) }

    /// Returns to the search after a dial. The search's deadline is ``ReconnectPolicy/searching``
    /// after ``unreachedSince``, or now if that time has passed already, so that dials to strangers
    /// do not postpone it. Does nothing in another state: a search alone does not end the
    /// out-of-range or backing-off state.
    private func continueSearch(_ now: MonotonicTime) {
        guard [.dialing, .opening, .handshaking].contains(status.state) else { return }
        enter(.searching, now)
        status.deadline = max(now, unreachedSince.advanced(by: rules.searching))
    }

    /// Records that an attempt has failed, and returns what to do next.
    ///
    /// - Parameters:
    ///   - attempt: the attempt's number; `nil` for any other failure, such as a failed dial that a
    ///     ``NearbyService`` reports.
    ///   - isFinal: whether no further attempt can be made.
    func failed(
        _ error: ChannelError, in attempt: Int? = nil, isFinal: Bool = false,
        at now: MonotonicTime, using generator: inout some RandomNumberGenerator
    ) -> Step {
        guard (attempt ?? self.attempt) == self.attempt else { return .nothing }
        // Waiting does not resolve an error of configuration.
        if isFinal || error.code == .configuration { return .close(error) }
        guard !isConnected, !isClosed else { return .nothing }
        // The attempt may have reported states that arrive only after this failure. They are
        // ignored from now on.
        if attempt != nil { self.attempt += 1 }
        fail(error, status.failures + 1, now, &generator)
        return .nothing
    }

    // MARK: - Channels

    /// Why a channel to `peer` is not used: the connection is closed, or another peer is expected.
    /// Nil if the channel may be used.
    func refusal(of peer: PeerIdentity) -> ChannelError? {
        if isClosed { return closedError }
        guard let expectedPeer, peer.fingerprint != expectedPeer else { return nil }
        return ChannelError(.untrusted, "the channel leads to \(peer), and not to \(expectedPeer)")
    }

    /// Decides what to do with a new channel.
    ///
    /// - Parameter isCurrentOver: whether the channel in use is over, or there is none.
    func admit(
        _ channel: NewChannel, isCurrentOver: Bool, hasRoom: Bool, at now: MonotonicTime
    ) -> Admission {
        if let error = refusal(of: channel.peer) { return .refuse(error) }
        guard hasRoom else { return .refuse(Self.noRoom) }
        if channel.isEnding { return .keepMessages }
        if !isCurrentOver, !routeSettlesDuplicates, let currentHistory,
            !channel.history.stays(insteadOf: currentHistory)
        {
            return .endAsDuplicate
        }
        attempt += 1
        expectedPeer = expectedPeer ?? channel.peer.fingerprint
        currentHistory = channel.history
        enter(.connected, now)
        status.peer = channel.peer
        status.protocolName = channel.protocolName
        status.linkDescription = channel.linkDescription
        status.failure = nil
        return .use
    }

    /// Decides what to do when the peer of a channel has sent its end.
    ///
    /// - Parameter isFinal: whether the end, if its reason is `done`, holds for later links too.
    func peerEnded(
        _ reason: EndReason, isFinal: Bool, hasCarriedMessage: Bool, isCurrent: Bool,
        at now: MonotonicTime, using generator: inout some RandomNumberGenerator
    ) -> Ending {
        guard isCurrent else { return .dropChannel(then: .nothing) }
        if reason.error == nil, isFinal {
            hasPeerEnded = true
            return haveBothEnded ? .closeConnection : .keepChannel
        }
        return .dropChannel(
            then: lost(
                reason.explanation, hasCarriedMessage: hasCarriedMessage && reason != .duplicate,
                at: now, using: &generator))
    }

    func finish() { hasFinished = true }
    /// Whether neither side sends anything more, so that the connection is to be closed.
    var haveBothEnded: Bool { hasFinished && hasPeerEnded && isConnected }

    /// Records that the channel in use is over, or not used any more.
    ///
    /// After a stable link (``LinkOutcome``) the next attempt begins at once; after any other link
    /// it begins after the delay of the backoff.
    func lost(
        _ error: ChannelError?, hasCarriedMessage: Bool, at now: MonotonicTime,
        using generator: inout some RandomNumberGenerator
    ) -> Step {
        guard let history = currentHistory.take() else { return .nothing }
        // Every further link to this peer would end in the same way.
        if let error, error.code == .sessionLost { return .close(error) }
        let outcome = LinkOutcome(
            lasted: now.duration(since: history.readyTime), hasCarriedMessage: hasCarriedMessage,
            stableAfter: rules.stableAfter, backoff: rules.backoff)
        guard outcome == .stable else {
            fail(error, outcome.failures(after: status.failures), now, &generator)
            return .nothing
        }
        status.failures = 0
        status.failure = error
        enter(.searching, now)
        return .attempt
    }

    // MARK: - Time

    /// Handles the status's deadline; does nothing if the deadline has not come.
    func timeout(
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
            let error = ChannelError(.timedOut, "\(status.state.rawValue) took longer than it may")
            attempt += 1
            fail(error, status.failures + 1, now, &generator)
            return .abandon
        case .connected, .closed: return .nothing
        }
    }

    /// Closes the connection for good; the first reason stands.
    func close(_ error: ChannelError?, at now: MonotonicTime) {
        attempt += 1
        currentHistory = nil
        guard !isClosed else { return }
        enter(.closed, now)
        status.failure = error
    }

    private func fail(
        _ error: ChannelError?, _ failures: Int, _ now: MonotonicTime,
        _ generator: inout some RandomNumberGenerator
    ) {
        status.failures = failures
        enter(.backingOff, now)
        if now >= unreachedSince.advanced(by: rules.searching) { status.state = .outOfRange }
        status.failure = error
        status.deadline = now.advanced(
            by: rules.backoff.delay(afterFailures: status.failures, using: &generator))
    }

    private func enter(_ state: ConnectionState, _ now: MonotonicTime) {
        // Until now, the peer was reached; of a handshake, it may turn out that a stranger was.
        if [.handshaking, .connected].contains(status.state) { unreachedSince = now }
        status.state = state
        status.since = now
        status.deadline = rules.limit(of: state).map { now.advanced(by: $0) }
    }
}

extension ConnectionState {
    /// Whether an attempt can report this state.
    fileprivate var belongsToAttempt: Bool {
        [.searching, .dialing, .opening, .handshaking].contains(self)
    }
}

extension EndReason {
    /// Why a channel has ended, as an error for the side whose peer ended it.
    fileprivate var explanation: ChannelError {
        switch self {
        case .duplicate: ChannelError(.closed, "the peer kept another channel instead")
        case .interrupted: ChannelError(.truncated, "the peer was interrupted")
        case .untrusted: ChannelError(.refused, "the peer does not trust this side any more")
        case .expired: ChannelError(.closed, "the session reached its maximum age")
        default: ChannelError(.closed, "the peer has left")
        }
    }
}
