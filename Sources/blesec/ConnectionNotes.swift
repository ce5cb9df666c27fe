internal import BLESec
internal import BLESecJSON
internal import BLESecLocking
internal import BLESecToolKit

/// Reports a connection on standard error, and remembers its peer.
final class ConnectionNotes: Sendable {
    private let memory: PeerMemory
    /// The endpoint that was last dialed, and the description of the link to it.
    private let dialed = Locked<(linkDescription: String, endpoint: Endpoint)?>(nil)
    /// Whether the last state that ``report(_:)`` reported as text was `connected`.
    private let wasConnected = Locked(false)
    /// The error of a dial that the permissions of a Unix socket have forbidden; nil before such a
    /// dial.
    private let denial = Locked<ChannelError?>(nil)
    /// The peer of the connection's channels; nil before the first channel.
    private let peer = Locked<Fingerprint?>(nil)
    private let nearby: NearbyNotes

    init(_ memory: PeerMemory, _ failures: FailureLog) {
        self.memory = memory
        nearby = NearbyNotes(failures: failures)
    }

    /// Reports the events of a `NearbyService`, and records the endpoint that it has dialed.
    var onEvent: @Sendable (NearbyEvent) -> Void {
        { [self] event in
            if case .handshaking(let candidate, let endpoint?) = event {
                self.didDial(endpoint, linkDescription: candidate.address.description)
            }
            nearby.onEvent(event)
        }
    }

    /// Accepts any peer until the first channel, and then only the peer of that channel.
    var onlyFirstPeer: TrustPolicy {
        memory.restricting(
            .anyone.requiring { [self] claimed throws(ChannelError) in
                guard let known = peer.withLock({ $0 }), claimed.fingerprint != known else {
                    return .admit
                }
                return .refuse(
                    "the peer is \(claimed), and only \(known), the first peer, is accepted")
            })
    }

    /// Dials an endpoint, and records it. If this user may not connect to a Unix socket, the next
    /// ``report(_:)`` throws the error, so that nobody waits in vain.
    func dial(
        _ endpoint: Endpoint, _ configuration: ChannelConfiguration,
        _ progress: PeerRoute.Progress, isOnlyAttempt: Bool = false
    ) async throws(ChannelError) -> SecureChannel {
        do throws(ChannelError) {
            let channel = try await PeerRoute.dial(
                endpoint, configuration, progress, isOnlyAttempt: isOnlyAttempt)
            didDial(endpoint, linkDescription: channel.linkDescription)
            return channel
        } catch {
            // For a Bluetooth endpoint, `permission` means that pairing is required, which may
            // change. So only the error of a Unix socket is final.
            if error.code == .permission, endpoint.description.hasPrefix("unix") {
                denial.withLock { $0 = error }
            }
            throw error
        }
    }

    /// Whether the permissions of a Unix socket have forbidden a dial.
    var isDenied: Bool { denial.withLock { $0 != nil } }

    /// Records the endpoint that was dialed, and the description of the link to it.
    func didDial(_ endpoint: Endpoint, linkDescription: String) {
        dialed.withLock { $0 = (linkDescription, endpoint) }
    }

    /// Remembers the peer of a channel that is ready. If the channel's link is the link to the
    /// dialed endpoint, also remembers that endpoint.
    ///
    /// - Parameter linkDescription: the description of the channel's link; nil on a side that dials
    ///   no endpoint.
    func remember(_ peer: PeerIdentity?, linkDescription: String?) throws(ChannelError) {
        let dialed = dialed.withLock { $0 }
        let isDialed = dialed?.linkDescription == linkDescription
        try memory.remember(peer, at: isDialed ? dialed?.endpoint : nil)
    }

    /// Reports the connection's state, and remembers the peer of a channel that is ready.
    func report(_ status: ConnectionStatus) throws(ChannelError) {
        if let error = denial.withLock({ $0 }) { throw error }
        if status.state == .connected {
            peer.withLock { $0 = status.peer?.fingerprint }
            try remember(status.peer, linkDescription: status.linkDescription)
        }
        if Diagnostics.isJSON { return Diagnostics.note("", "state", Self.members(status)) }
        let hadChannel = wasConnected.withLock { isConnected in
            defer { isConnected = status.state == .connected }
            return isConnected
        }
        let reason = status.failure.map { ": \($0.reason)" } ?? ""
        switch status.state {
        case .connected:
            let peer = status.peer?.description ?? ""
            let uri = status.peer?.uri.map { ", \($0)" } ?? ""
            Diagnostics.note(
                "channel ready: \(status.protocolName ?? "") with \(peer)\(uri)", "ready")
        case .searching where hadChannel: Diagnostics.note("the link is gone\(reason)", "state")
        case .backingOff:
            let pause = status.deadline?.duration(since: status.since) ?? .zero
            // A tenth of a second has 10^17 attoseconds.
            let tenths = pause.components.attoseconds / 100_000_000_000_000_000
            Diagnostics.note(
                "no channel\(reason); next attempt in "
                    + "\(Double(pause.components.seconds) + Double(tenths) / 10) s", "state")
        case .outOfRange: Diagnostics.note("the peer is out of range; still looking", "state")
        case .dialing: Diagnostics.note("state: dialing", "state", at: 1)
        case .searching, .opening, .handshaking, .closed:
            Diagnostics.note("state: \(status.state.rawValue)", "state", at: 2)
        }
    }

    /// Reports the steps of a single attempt, with `--verbose`.
    static let attemptProgress: PeerRoute.Progress = { state in
        let name = state.rawValue
        Diagnostics.note("state: \(name)", "state", [("state", .string(name))], at: 1)
    }

    private static func members(_ status: ConnectionStatus) -> [(String, JSONValue)] {
        var members: [(String, JSONValue)] = [("state", .string(status.state.rawValue))]
        if status.state == .connected {
            members.append(("protocol", .string(status.protocolName ?? "")))
            members.append(("peer", .string(status.peer?.description ?? "")))
            if let uri = status.peer?.uri { members.append(("uri", .string(uri))) }
        }
        if let failure = status.failure {
            members += failure.members
            members.append(("failures", .number(status.failures)))
        }
        if let deadline = status.deadline {
            let milliseconds = deadline.duration(since: status.since) / .milliseconds(1)
            members.append(("milliseconds", .number(Int(milliseconds))))
        }
        return members
    }
}
