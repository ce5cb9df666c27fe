import BLESecDiscovery
import BLESecL2CAP
import Testing

@testable import BLESec

/// After a failed dial, the peer has a turn: its own channel may still arrive over the link before
/// this side ends the link.
@Suite("Links that this side's dials have made")
struct DialedLinksTests {
    private static let address = DeviceAddress(
        BluetoothAddress(bytes: [1, 2, 3, 4, 5, 6]) ?? .any, .random)
    /// The state after a dial has made a link to `address` and has then failed.
    private static func afterFailedDial(accepts: Bool = true) -> DialedLinks {
        var links = DialedLinks(accepts: accepts)
        links.insert(address)
        return links
    }

    @Test("after a failed dial the peer's turn is 500 ms, and the link is then ended exactly once")
    func turn() {
        var links = Self.afterFailedDial()
        #expect(links.peersTurn(at: Self.address) == .milliseconds(500))
        #expect(links.contains(Self.address))
        #expect(links.take(Self.address, isUsed: false) == true)
        #expect(links.take(Self.address, isUsed: false) == false)
        #expect(!links.contains(Self.address))
    }

    @Test("a link stays while a channel of the peer uses it, and is ended after that")
    func used() {
        var links = Self.afterFailedDial()
        #expect(links.take(Self.address, isUsed: true) == false)
        #expect(links.take(Self.address, isUsed: true) == false)
        #expect(links.take(Self.address, isUsed: false) == true)
    }

    @Test("if this side accepts no channels, the peer has no turn, and the link is ended")
    func dialsOnly() {
        var links = Self.afterFailedDial(accepts: false)
        #expect(links.peersTurn(at: Self.address) == nil)
        #expect(links.take(Self.address, isUsed: false) == true)
    }

    @Test("a link that no dial of this side has made is not ended, and its peer has no turn")
    func peersLink() {
        var links = DialedLinks(accepts: true)
        #expect(links.peersTurn(at: Self.address) == nil)
        #expect(links.take(Self.address, isUsed: false) == false)
    }

    @Test("the addresses are those of all links that still have to be ended")
    func addresses() {
        let other = DeviceAddress(Self.address.address, .public)
        var links = Self.afterFailedDial()
        links.insert(other)
        #expect(links.addresses == [Self.address, other])
        #expect(links.take(Self.address, isUsed: true) == false)
        #expect(links.addresses == [Self.address, other])
        #expect(links.take(Self.address, isUsed: false) == true)
        #expect(links.addresses == [other])
    }
}
