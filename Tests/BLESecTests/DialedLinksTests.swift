import BLESecDiscovery
import BLESecL2CAP
import Testing

@testable import BLESec

/// After a failed dial, this side waits before it ends the link, because a channel that the peer
/// has dialed may still arrive over the link.
@Suite("Links that this side's dials have made")
struct DialedLinksTests {
    private static let address = DeviceAddress(
        BluetoothAddress(bytes: [1, 2, 3, 4, 5, 6]) ?? .any, .random)
    /// The state after a dial has made a link to `address` and has then failed.
    private static func linksAfterFailedDial(accepts: Bool = true) -> DialedLinks {
        var links = DialedLinks(accepts: accepts)
        links.insert(address)
        return links
    }

    @Test("after a failed dial the peer gets 500 ms, and the link is then ended exactly once")
    func timeForPeer() {
        var links = Self.linksAfterFailedDial()
        #expect(links.timeForPeer(at: Self.address) == .milliseconds(500))
        #expect(links.contains(Self.address))
        #expect(links.removeIfUnused(Self.address, isUsed: false) == true)
        #expect(links.removeIfUnused(Self.address, isUsed: false) == false)
        #expect(!links.contains(Self.address))
    }

    @Test("a link stays while a channel of the peer uses it, and is ended after that")
    func used() {
        var links = Self.linksAfterFailedDial()
        #expect(links.removeIfUnused(Self.address, isUsed: true) == false)
        #expect(links.removeIfUnused(Self.address, isUsed: true) == false)
        #expect(links.removeIfUnused(Self.address, isUsed: false) == true)
    }

    @Test("if this side accepts no channels, the peer gets no time, and the link is ended")
    func dialsOnly() {
        var links = Self.linksAfterFailedDial(accepts: false)
        #expect(links.timeForPeer(at: Self.address) == nil)
        #expect(links.removeIfUnused(Self.address, isUsed: false) == true)
    }

    @Test("a link that no dial of this side has made is not ended, and its peer gets no time")
    func peersLink() {
        var links = DialedLinks(accepts: true)
        #expect(links.timeForPeer(at: Self.address) == nil)
        #expect(links.removeIfUnused(Self.address, isUsed: false) == false)
    }

    @Test("the addresses are those of all links that still have to be ended")
    func addresses() {
        let other = DeviceAddress(Self.address.address, .public)
        var links = Self.linksAfterFailedDial()
        links.insert(other)
        #expect(links.addresses == [Self.address, other])
        #expect(links.removeIfUnused(Self.address, isUsed: true) == false)
        #expect(links.addresses == [Self.address, other])
        #expect(links.removeIfUnused(Self.address, isUsed: false) == true)
        #expect(links.addresses == [other])
    }
}
