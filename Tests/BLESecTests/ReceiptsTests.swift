import BLESecLinks
import TestSupport
import Testing

@testable import BLESec

@Suite struct ReceiptsTests {
    @Test("messages are confirmed although a message of another channel came between them")
    func interleaved() async throws {
        var configuration = try PinnedPeers().configuration(.acceptor)
        configuration.acknowledgement = .manual
        let loop = EventLoop.shared
        let confirmed = await loop.run { [configuration] in
            let channels = (0..<2).map { _ in
                SecureChannel(
                    over: MemoryLink.pair(loop: loop).1, role: .acceptor,
                    configuration: configuration)
            }
            // The connection's messages 1, 2, 3 and 5 are messages 1 to 4 of the first channel. The
            // connection's message 4 came over the second channel, which is forgotten.
            var receipts = Receipts()
            for number: UInt64 in 1...3 { receipts.add(channels[0], number) }
            receipts.add(channels[1], 1)
            receipts.forget(channels[1])
            receipts.add(channels[0], 4)
            return [3, 5].map { number in receipts.take(through: number).map(\.last) }
        }
        #expect(confirmed == [[3], [4]])
    }
}
