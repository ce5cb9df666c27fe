public import BLESecChannelCore
public import BLESecDiscovery
internal import BLESecLinks

/// How a service finds peers and is found by them.
public struct NearbyOptions: Sendable {
    /// The adapter, such as `hci1`; `nil` takes the first adapter that is on.
    public var adapter: String?
    /// Whether this side advertises and accepts.
    public var accepts = true
    /// Whether this side scans and dials.
    public var dials = true
    /// The transports that this side offers when it accepts, and uses when it dials.
    public var transports = Transports.all
    /// How the tag and the PSM are advertised: by default in the device name, which phones support
    /// too.
    public var carrier = AdvertisementCarrier.name
    /// Whether the advertisement contains the PSM; without it, a peer reads the PSM over GATT.
    public var advertisesPSM = true
    /// Which candidates to dial, and when.
    package var rules = DialPolicy.Rules()
    /// How often to restart the scan, for an adapter that reports advertisers only at the start of
    /// a scan; `nil` leaves restarts to bluetoothd.
    public var scansAnewEvery: Duration?
    /// How long a tag (the random bytes that distinguish this side's advertisements) and a PSM are
    /// used; 15 minutes. A value of less than 1 second counts as 1 second. Time in which the machine
    /// is suspended does not count.
    public var renewal = Duration.seconds(15 * 60)

    /// The transports of a channel.
    public struct Transports: OptionSet, Sendable, Hashable {
        /// The option bits.
        public let rawValue: UInt8
        /// Makes a set from option bits.
        public init(rawValue: UInt8) { self.rawValue = rawValue }
        /// An L2CAP channel: the faster transport, preferred if both are available.
        public static let l2cap = Transports(rawValue: 1)
        /// The byte stream over two GATT characteristics, for peers without L2CAP channels. A
        /// listener serves one device at a time over such a stream.
        public static let gattStream = Transports(rawValue: 2)
        /// Both transports.
        public static let all: Transports = [.l2cap, .gattStream]
    }

    /// The defaults above.
    public init() {}
}

/// What the parts of a service share.
struct NearbySetup: Sendable {
    let service: BluetoothUUID
    let adapter: BluetoothAdapter
    let configuration: ChannelConfiguration
    let options: NearbyOptions
    var loop: EventLoop { adapter.bluetoothd.loop }
}

/// An event of a service, for logs.
package enum NearbyEvent: Sendable {
    /// The state of the adapter, or of bluetoothd, has changed.
    case adapter(AdapterState)
    /// A dial to a peer that advertises the service has begun.
    case dialing(Candidate)
    /// The link to the candidate is up. The service now finds a transport and opens it.
    case opening(Candidate)
    /// The channel's transport is open. The endpoint can be dialed again without a query over GATT;
    /// it is `nil` for the byte stream over GATT, which has no such endpoint.
    case handshaking(Candidate, Endpoint?)
    /// A dial has failed.
    case dialFailed(Candidate, ChannelError)
    /// A dial was called off, for example because a link of the candidate was accepted.
    case dialCancelled(Candidate)
    /// An accepted link has not become a channel, or a channel that has paired has ended before the
    /// program had it.
    case acceptFailed(PeerFailure)
    /// The advertising state has changed.
    case advertising(AdvertisingState)
    /// A channel ended in favour of another channel to the same peer.
    case duplicate(PeerIdentity)
}

/// The status of a service.
public struct NearbyStatus: Sendable {
    /// Whether the adapter can be used.
    public let adapter: AdapterState
    /// Whether the service advertises; `nil` for a service that does not accept.
    public let advertising: AdvertisingState?
}

/// Whether a service advertises.
public enum AdvertisingState: Sendable {
    /// The service advertises.
    case on
    /// Within 10 s, the peers of 32 accepted links have failed to authenticate: the service stops
    /// advertising for 30 s, and then advertises with a new tag and PSM.
    case crowded
    /// What the service publishes could not be updated, or bluetoothd refuses to publish it again;
    /// the service will try again.
    case failed(ChannelError)
}
