public import BLESecChannelCore
public import BLESecDiscovery
public import BLESecLinks

/// How far a connection is from a channel.
public enum ConnectionState: String, Sendable, Hashable {
    /// The peer is looked for, or waited for.
    case searching
    /// A link to it is being made.
    case dialing
    /// The link is there, and the way to the channel is asked for and opened.
    case opening
    /// Both sides prove themselves.
    case handshaking
    /// There is a channel.
    case connected
    /// Nobody has been reached for a while; it goes on looking, and dialing at long intervals.
    case outOfRange = "out-of-range"
    /// An attempt has failed, and the next one waits.
    case backingOff = "backing-off"
    /// Closed, for good.
    case closed
}

/// How a connection stands, and for how long at most.
public struct ConnectionStatus: Sendable {
    /// The state.
    public internal(set) var state: ConnectionState
    /// Since when.
    public internal(set) var since: MonotonicTime
    /// When the state ends by itself. Nil once closed; what is connected has the timeouts of its
    /// channel.
    public internal(set) var deadline: MonotonicTime?
    /// Who is at the other end, or was last.
    public internal(set) var peer: PeerIdentity?
    /// What the channel speaks, or the last one did.
    public internal(set) var protocolName: String?
    /// Where the link leads, or the last one did, for logs; proves nothing.
    public internal(set) var linkDescription: String?
    /// Why there is no channel, as far as something went wrong.
    public internal(set) var failure: ChannelError?
    /// Attempts that failed since the last good link.
    public internal(set) var failures = 0
}

/// The bounds of a ``PeerConnection``.
public struct ReconnectPolicy: Sendable {
    /// Looking for the peer before it counts as out of range, and failing to reach it; 30 seconds.
    public var searching = Duration.seconds(30)
    /// Out of range before the search begins anew; 60 seconds.
    public var outOfRange = Duration.seconds(60)
    /// Making a link; 15 seconds.
    public var dialing = Duration.seconds(15)
    /// Finding the way to the channel, and opening it; 20 seconds.
    public var opening = Duration.seconds(20)
    /// The handshake, a trust policy that asks somebody included; 90 seconds.
    public var handshaking = Duration.seconds(90)
    /// How long to wait after failures; from one second to a minute, less a random half.
    public var backoff = Backoff()
    /// A link that lasts so long was a good one, as is one that has carried a message and lasts as
    /// long as the first backoff; 10 seconds.
    public var stableAfter = Duration.seconds(10)
    /// Whether the peer's word that it has sent everything is the end of what is received; the
    /// connection closes then once this side has ended too. Otherwise the peer has left, and is
    /// looked for again; so by default.
    public var endsWithPeer = false

    /// The defaults above.
    public init() {}

    /// How long a state may take; nil where that is not for these rules to say.
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
