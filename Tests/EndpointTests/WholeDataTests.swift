import BLESecDelivery
import Testing

@Suite("Data that leaves only if it fits into one record")
struct WholeDataTests {
    /// Two endpoints that are connected, with a bulk stream and an urgent stream of the first one.
    private struct Scene {
        var pair = EndpointPair()
        let bulk, urgent: Streams.Handle
        var sender: DeliveryEndpoint { pair.sides[0] }

        init() throws {
            pair.connect()
            try pair.exchange()
            bulk = pair.sides[0].streams.open("bulk", .bulk)
            urgent = pair.sides[0].streams.open("urgent", .urgent)
            try pair.exchange()
        }

        /// The number of bytes in the next record with data; nil if the next data is longer than
        /// `limit`.
        func nextWhole(atMost limit: Int) -> Int? {
            sender.nextRecord(atMost: limit, onlyWhole: true).map(\.data.count)
        }

        mutating func write(_ count: Int, to handle: Streams.Handle) throws {
            _ = try sender.streams.write([UInt8](repeating: 1, count: count)[...], to: handle)
        }
    }

    @Test("short data of the most urgent class leaves, and longer data is not begun")
    func streams() throws {
        var scene = try Scene()
        try scene.write(10_000, to: scene.bulk)
        #expect(scene.nextWhole(atMost: 512) == nil)
        try scene.write(64, to: scene.urgent)
        #expect(scene.nextWhole(atMost: 512) == 64)
        #expect(scene.nextWhole(atMost: 512) == nil)
        // Short bulk data does not overtake long urgent data.
        var other = try Scene()
        try other.write(10, to: other.bulk)
        try other.write(513, to: other.urgent)
        #expect(other.nextWhole(atMost: 512) == nil)
        #expect(other.nextWhole(atMost: 513) == 513)
        #expect(other.nextWhole(atMost: 512) == 10)
    }

    @Test("data that does not fit stays unchanged, and leaves next")
    func unchanged() throws {
        var scene = try Scene()
        try scene.write(10_000, to: scene.bulk)
        let before = scene.sender.progressCount
        for _ in 0..<20 { #expect(scene.nextWhole(atMost: 512) == nil) }
        #expect(scene.sender.progressCount == before)
        let data = try #require(scene.sender.nextRecord(atMost: 4_000)).data
        #expect(data.count == 4_000)
    }

    @Test("the rest of a begun message leaves if it fits, although the whole message did not fit")
    func messages() throws {
        var pair = EndpointPair()
        pair.connect()
        try pair.exchange()
        let sender = pair.sides[0]
        _ = sender.send([UInt8](repeating: 1, count: 1_000))
        // The store first has to commit that the message may have left.
        #expect(sender.nextRecord(atMost: 700) == nil)
        pair.commit()
        #expect(sender.nextRecord(atMost: 700, onlyWhole: true) == nil)
        #expect(sender.nextRecord(atMost: 700)?.data.count == 700)
        #expect(sender.nextRecord(atMost: 299, onlyWhole: true) == nil)
        #expect(sender.nextRecord(atMost: 300, onlyWhole: true)?.data.count == 300)
    }
}
