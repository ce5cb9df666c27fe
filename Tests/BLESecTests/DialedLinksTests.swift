import BLESecDiscovery
import BLESecL2CAP
import BLESecLinks
import Testing

@testable import BLESec

@Suite("The links of dials")
struct DialedLinksTests {
    private static let address = DeviceAddress(
        BluetoothAddress(bytes: [1, 2, 3, 4, 5, 6]) ?? .any, .random)
    private static let start = MonotonicTime(nanoseconds: 1_000_000_000_000)

    private static func time(_ milliseconds: Int) -> MonotonicTime {
        start.advanced(by: .milliseconds(milliseconds))
    }

    /// The links after a dial has failed at ``start``, and the end of the peer's turn.
    private static func failed(accepts: Bool = true) -> (DialedLinks, MonotonicTime?) {
        var links = DialedLinks(accepts: accepts)
        links.insert(address)
        let end = links.beginTurn(of: address, at: start)
        return (links, end)
    }

    @Test("after a failed dial the link is ended once, and not before the peer's turn of 500 ms")
    func turn() {
        var (links, end) = Self.failed()
        #expect(end == Self.time(500))
        #expect(links.take(Self.address, at: Self.time(499), isUsed: false) == false)
        #expect(links.contains(Self.address))
        #expect(links.take(Self.address, at: Self.time(500), isUsed: false) == true)
        #expect(links.take(Self.address, at: Self.time(500), isUsed: false) == false)
        #expect(!links.contains(Self.address))
    }

    @Test("a link over which the peer's channel has arrived stays as long as it is used")
    func used() {
        var (links, _) = Self.failed()
        links.endTurn(of: Self.address)
        #expect(links.take(Self.address, at: Self.time(100), isUsed: true) == false)
        #expect(links.take(Self.address, at: Self.time(5_000), isUsed: true) == false)
        #expect(links.take(Self.address, at: Self.time(5_001), isUsed: false) == true)
    }

    @Test("a link whose accepted channel has failed during the peer's turn is ended at once")
    func acceptFailed() {
        var (links, _) = Self.failed()
        links.endTurn(of: Self.address)
        #expect(links.take(Self.address, at: Self.time(100), isUsed: false) == true)
    }

    @Test("a peer has no turn if this side accepts no channels")
    func dialsOnly() {
        var (links, end) = Self.failed(accepts: false)
        #expect(end == nil)
        #expect(links.take(Self.address, at: Self.start, isUsed: false) == true)
    }

    @Test("a link that no dial of this side has made is not ended, and its peer has no turn")
    func peersLink() {
        var links = DialedLinks(accepts: true)
        let end = links.beginTurn(of: Self.address, at: Self.start)
        #expect(end == nil)
        #expect(links.take(Self.address, at: Self.time(500), isUsed: false) == false)
    }
}
