import BLESecDiscovery
import BLESecL2CAP
import Testing

@testable import BLESec

@Suite("The links of dials")
struct DialedLinksTests {
    private static let address = DeviceAddress(
        BluetoothAddress(bytes: [1, 2, 3, 4, 5, 6]) ?? .any, .random)
    /// The links after a dial over a link of this side has failed.
    private static func failed(accepts: Bool = true) -> DialedLinks {
        var links = DialedLinks(accepts: accepts)
        links.insert(address)
        return links
    }

    @Test("after a failed dial the peer has 500 ms, and then the link is ended once")
    func turn() {
        var links = Self.failed()
        #expect(links.turn(of: Self.address) == .milliseconds(500))
        #expect(links.contains(Self.address))
        #expect(links.take(Self.address, isUsed: false) == true)
        #expect(links.take(Self.address, isUsed: false) == false)
        #expect(!links.contains(Self.address))
    }

    @Test("a link over which the peer's channel has arrived stays as long as it is used")
    func used() {
        var links = Self.failed()
        #expect(links.take(Self.address, isUsed: true) == false)
        #expect(links.take(Self.address, isUsed: true) == false)
        #expect(links.take(Self.address, isUsed: false) == true)
    }

    @Test("a peer has no turn if this side accepts no channels")
    func dialsOnly() {
        var links = Self.failed(accepts: false)
        #expect(links.turn(of: Self.address) == nil)
        #expect(links.take(Self.address, isUsed: false) == true)
    }

    @Test("a link that no dial of this side has made is not ended, and its peer has no turn")
    func peersLink() {
        var links = DialedLinks(accepts: true)
        #expect(links.turn(of: Self.address) == nil)
        #expect(links.take(Self.address, isUsed: false) == false)
    }
}
