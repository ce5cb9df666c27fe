internal import BLESecDiscovery

/// The links that bluetoothd has made for this side's dials, or may have made, and that this side
/// must end.
///
/// bluetoothd takes 2 seconds to end a link, and ends every channel over it. So a link is ended
/// only when nothing uses it. After a failed dial, this side waits before it ends the link. This
/// wait is the peer's turn: if both sides dial at the same time, this side's dial can fail a moment
/// before the peer's channel arrives over the same link.
struct DialedLinks {
    /// Whether peers can open channels to this side.
    let accepts: Bool
    private var made: Set<DeviceAddress> = []
    init(accepts: Bool) { self.accepts = accepts }
    /// Whether this side's dial made the link to an address, and the link has not been ended.
    func contains(_ address: DeviceAddress) -> Bool { made.contains(address) }
    /// The addresses of all these links.
    var addresses: Set<DeviceAddress> { made }
    mutating func insert(_ address: DeviceAddress) { made.insert(address) }

    /// How long the peer's turn lasts after a failed dial to an address; `nil` if peers cannot open
    /// channels to this side, or if there is no link that this side must end.
    func peersTurn(at address: DeviceAddress) -> Duration? {
        accepts && contains(address) ? .milliseconds(500) : nil
    }

    /// If the link to an address is to be ended now, removes the link and returns true.
    mutating func take(_ address: DeviceAddress, isUsed: Bool) -> Bool {
        !isUsed && made.remove(address) != nil
    }
}
