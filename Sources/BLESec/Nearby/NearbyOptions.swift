public import BLESecChannelCore
public import BLESecDiscovery

/// How a service is found, and lets itself be found.
public struct NearbyOptions: Sendable {
    /// The adapter, as in `hci1`; nil takes the first that is on.
    public var adapter: String?
    /// Whether this side advertises and accepts.
    public var accepts = true
    /// Whether this side scans and dials.
    public var dials = true
    /// The ways that are offered to who dials, and taken to who is dialed.
    public var transports = Transports.all
    /// How the payload is advertised; by name, which phones can do too.
    public var carrier = AdvertisementCarrier.name
    /// Whether the advertisement tells the PSM; without it a peer asks over GATT.
    public var advertisesPSM = true
    /// Whom to dial, and when.
    package var rules = DialPolicy.Rules()
    /// Begin to scan anew so often, for an adapter that reports who advertises only then.
    public var scansAnewEvery: Duration?
    /// How long a tag and a PSM are used; 15 minutes.
    public var renewal = Duration.seconds(15 * 60)

    /// What a channel may run over.
    public struct Transports: OptionSet, Sendable, Hashable {
        /// The bits.
        public let rawValue: UInt8

        /// Takes the bits.
        public init(rawValue: UInt8) { self.rawValue = rawValue }

        /// An L2CAP channel: the fast one, which is taken where there is one.
        public static let l2cap = Transports(rawValue: 1)
        /// The byte stream over two characteristics, for peers without L2CAP channels. A listener
        /// serves one device at a time over it.
        public static let gattStream = Transports(rawValue: 2)
        /// Both.
        public static let all: Transports = [.l2cap, .gattStream]
    }

    /// The defaults above.
    public init() {}
}

/// What happens around a service, for logs.
package enum NearbyEvent: Sendable {
    /// What became of the adapter, or of bluetoothd.
    case adapter(AdapterState)
    /// Somebody who advertises the service is dialed.
    case dialing(Candidate)
    /// The link to it is there, and the way to its channel is asked for and opened.
    case opening(Candidate)
    /// The link to its channel is there, where that can be dialed without asking again.
    case handshaking(Candidate, Endpoint?)
    /// Dialing made no channel.
    case dialFailed(Candidate, ChannelError)
    /// Somebody who dialed was not let in.
    case acceptFailed(PeerFailure)
    /// Whether this side can be found has changed.
    case advertising(AdvertisingState)
    /// A channel ended in favour of another one to the same peer.
    case duplicate(PeerIdentity)
}

/// How a service stands.
public struct NearbyStatus: Sendable {
    /// Whether the adapter can be used.
    public let adapter: AdapterState
    /// Whether the service lets itself be found; nil for one that does not accept.
    public let advertising: AdvertisingState?
}

/// Whether a service lets itself be found.
public enum AdvertisingState: Sendable {
    /// It advertises.
    case on
    /// In 10 s 32 peers have dialed and proven nothing: it does not for 30 s, and then by a new tag
    /// and PSM.
    case crowded
    /// bluetoothd or the kernel refused what was to be published, and is asked again.
    case failed(ChannelError)
}
