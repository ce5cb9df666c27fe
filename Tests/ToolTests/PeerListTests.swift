import BLESecDiscovery
import BLESecL2CAP
import BLESecLinks
import Testing

@testable import blesec

/// The table of `blesec scan`.
@Suite struct PeerListTests {
    private let now = MonotonicTime(nanoseconds: 1_000_000_000_000)

    /// A list after one advertisement from each of `count` peers.
    private func list(ofPeers count: Int) throws -> PeerList {
        var list = PeerList(isTable: true)
        for number in 0..<count {
            let address = BluetoothAddress(bytes: [0xC0, 0, 0, 0, 0, UInt8(number)]) ?? .any
            let sighting = Sighting(
                address: DeviceAddress(address, .random), advertisement: .serviceOnly, signal: -50)
            try list.show(sighting, at: now)
        }
        return list
    }

    @Test("a drawing wraps no line, and the terminal wraps lines again after it")
    func wrapping() throws {
        for count in [0, 3] {
            var peers = try list(ofPeers: count)
            for _ in 0..<2 {
                let drawing = peers.drawing(at: now, height: 24)
                #expect(drawing.hasPrefix("\u{1B}[?7l"))
                #expect(drawing.hasSuffix("\n\u{1B}[J\u{1B}[?7h"))
            }
        }
    }

    @Test("a drawn table is erased before a message, and the next drawing begins below the message")
    func erasing() throws {
        var peers = try list(ofPeers: 3)
        #expect(peers.erasing().isEmpty)
        _ = peers.drawing(at: now, height: 24)
        #expect(peers.erasing() == "\u{1B}[4A\u{1B}[J")
        #expect(peers.erasing().isEmpty)
        #expect(peers.drawing(at: now, height: 24).hasPrefix("\u{1B}[?7l\u{1B}[KADDRESS"))
    }

    @Test(
        "on three or more terminal lines a drawing leaves one free, and the next begins in the same line",
        arguments: [(60, 21), (24, 21), (22, 21), (10, 9), (3, 2), (1, 2)])
    func height(_ height: Int, _ lineCount: Int) throws {
        var peers = try list(ofPeers: 30)
        let first = peers.drawing(at: now, height: height)
        #expect(first.filter { $0 == "\n" }.count == lineCount)
        let second = peers.drawing(at: now, height: height)
        #expect(second.hasPrefix("\u{1B}[?7l\u{1B}[\(lineCount)A"))
        #expect(second.filter { $0 == "\n" }.count == lineCount)
    }
}
