public import BLESecChannelCore
public import BLESecDiscovery
public import BLESecLinks

/// The states of a connection.
public enum ConnectionState: String, Sendable, Hashable {
    /// Searching or waiting for the peer.
    case searching
    /// Making a link to the peer.
    case dialing
    /// A Bluetooth connection to the device is up. This side finds the PSM or the GATT service,
    /// and opens the L2CAP channel or the stream over GATT.
    case opening
    /// Both sides authenticate each other.
    case handshaking
    /// A channel is ready.
    case connected
    /// The peer was not reached for a while; the connection searches, and dials at long intervals.
    case outOfRange = "out-of-range"
    /// An attempt has failed, and the connection waits before the next one.
    case backingOff = "backing-off"
    /// Closed for good.
    case closed
}

/// The status of a connection.
public struct ConnectionStatus: Sendable {
    /// The state.
    public internal(set) var state: ConnectionState
    /// Since when the connection has been in this state.
    public internal(set) var since: MonotonicTime
    /// When the state ends by itself; `nil` once closed, and while a channel is ready.
    public internal(set) var deadline: MonotonicTime?
    /// The peer of the channel or, without a channel, of the last channel.
    public internal(set) var peer: PeerIdentity?
    /// The protocol of the channel or, without a channel, of the last channel.
    public internal(set) var protocolName: String?
    /// The peer's address on the current or last link, for logs; it proves nothing.
    public internal(set) var linkDescription: String?
    /// The error that left the connection without a channel, if any.
    public internal(set) var failure: ChannelError?
    /// How many attempts and links have failed in a row since the last stable link
    /// (``ReconnectPolicy/stableAfter``).
    public internal(set) var failures = 0
}

/// The time limits and the backoff of a ``PeerConnection``.
public struct ReconnectPolicy: Sendable {
    /// How long to search without reaching the peer, before the state is
    /// ``ConnectionState/outOfRange``; 30 seconds.
    public var searching = Duration.seconds(30)
    /// How long the state ``ConnectionState/outOfRange`` lasts; 60 seconds. The search continues
    /// meanwhile. Then the state is ``ConnectionState/searching`` again, and the search begins
    /// anew. If an attempt has failed, the state lasts for the delay of ``backoff`` instead.
    public var outOfRange = Duration.seconds(60)
    /// The limit for making a link; 15 seconds.
    public var dialing = Duration.seconds(15)
    /// The limit for finding the PSM or the GATT service, and opening the L2CAP channel or the
    /// stream over GATT; 20 seconds.
    public var opening = Duration.seconds(20)
    /// The limit for the handshake, including a trust policy that asks a person; 90 seconds. The
    /// peer waits less for such a decision by default (``ChannelTimeouts/trustDecision``).
    public var handshaking = Duration.seconds(90)
    /// How long to wait after a failure: a random time up to a limit, which grows with each failure
    /// in a row, from 1 to 60 seconds.
    public var backoff = Backoff()
    /// How long a link must last to count as stable; 10 seconds. A link that has carried a message
    /// counts as stable if it lasts as long as ``Backoff/first``.
    public var stableAfter = LinkOutcome.stableAfter
    /// Whether the connection ends after the peer has said that it has sent everything. If true,
    /// nothing more is received, and the connection closes once this side has ended too and there
    /// is a link over which to tell the peer. If false, which is the default, the connection looks
    /// for the peer again.
    public var endsWithPeer = false

    /// The defaults above.
    public init() {}

    /// The limit of a state; `nil` if these rules set none.
    func limit(of state: ConnectionState) -> Duration? {
        switch state {
        case .searching: searching
        case .dialing: dialing
        case .opening: opening
        case .handshaking: handshaking
        case .outOfRange: outOfRange
        case .connected, .backingOff, .closed: nil
        }
    }
}
