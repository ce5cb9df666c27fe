internal import BLESecDiscovery
internal import BLESecLinks

/// The links that bluetoothd has made for this side's dials, and that this side must end.
///
/// bluetoothd takes 2 seconds to end a link, and ends every channel over it. So a link is ended
/// only when nothing uses it. After a failed dial, this side waits before it ends the link (the
/// peer's turn): two sides that dial each other end one another's attempts, and the peer's channel
/// arrives a moment after this side's dial has failed.
struct DialedLinks {
    /// The time that a peer has to open a channel of its own after a dial has failed.
    static let peersTurn = Duration.milliseconds(500)

    /// Whether peers can open channels to this side.
    let accepts: Bool
    private var made: Set<DeviceAddress> = []
    /// Until when it is the peer's turn.
    private var turns: [DeviceAddress: MonotonicTime] = [:]

    init(accepts: Bool) { self.accepts = accepts }

    /// Whether bluetoothd has made the link to an address for this side, and this side has not
    /// ended the link.
    func contains(_ address: DeviceAddress) -> Bool { made.contains(address) }

    /// Records that bluetoothd has made a link.
    mutating func insert(_ address: DeviceAddress) { made.insert(address) }

    /// Records that a dial over the link to an address has failed; returns the end of the peer's
    /// turn. The result is `nil` if peers cannot open channels to this side, or if the link is not
    /// to be ended by this side.
    mutating func beginTurn(of address: DeviceAddress, at now: MonotonicTime) -> MonotonicTime? {
        guard accepts, contains(address) else { return nil }
        let end = now.advanced(by: Self.peersTurn)
        turns[address] = end
        return end
    }

    /// Ends the peer's turn: its link has arrived, or this side does not wait any longer.
    mutating func endTurn(of address: DeviceAddress) { turns[address] = nil }

    /// Removes a link, and returns true, if the link is to be ended now.
    mutating func take(_ address: DeviceAddress, at now: MonotonicTime, isUsed: Bool) -> Bool {
        guard contains(address), !isUsed, turns[address].map({ $0 <= now }) ?? true else {
            return false
        }
        turns[address] = nil
        made.remove(address)
        return true
    }
}
