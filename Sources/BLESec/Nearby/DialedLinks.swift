internal import BLESecDiscovery

/// The links that this side must end: bluetoothd has made them, or may have made them, for this
/// side's dials.
///
/// bluetoothd takes 2 seconds to end a link, and ends every channel over it. So a link is ended
/// only when nothing uses the link. After a failed dial, this side waits before it ends the link, so
/// that the peer can still use the link. If both sides dial at the same time, this side's dial can
/// fail a moment before the peer's channel arrives over the same link.
struct DialedLinks {
    /// Whether peers can open channels to this side.
    let accepts: Bool
    /// The addresses of all these links.
    private(set) var addresses: Set<DeviceAddress> = []

    init(accepts: Bool) { self.accepts = accepts }
    /// Whether this side's dial made the link to an address, and the link has not been ended.
    func contains(_ address: DeviceAddress) -> Bool { addresses.contains(address) }
    mutating func insert(_ address: DeviceAddress) { addresses.insert(address) }

    /// How long to wait for the peer's channel after a failed dial to an address, before the link
    /// is ended; `nil` if peers cannot open channels to this side, or if there is no link that this
    /// side must end.
    func timeForPeer(at address: DeviceAddress) -> Duration? {
        accepts && contains(address) ? .milliseconds(500) : nil
    }

    /// If this side must end the link to an address, and nothing uses the link any more, removes the
    /// link and returns true.
    mutating func removeIfUnused(_ address: DeviceAddress, isUsed: Bool) -> Bool {
        !isUsed && addresses.remove(address) != nil
    }
}
