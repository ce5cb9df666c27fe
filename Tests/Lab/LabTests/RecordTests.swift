import BLESec
import Testing

@testable import BLESecL2CAP

extension Laboratory {
    /// How a channel's records are divided on the way to the controller.
    @Suite struct RecordTests {
        /// What a record adds to a message: the length field, the type and the tag.
        private static let overhead = 19
        /// How many bytes one packet of a virtual controller carries: of an SDU, and of the SDU's
        /// length field.
        private static let mps = 188

        /// The lengths of the SDUs for a message's record.
        private static func sdus(_ size: Int) -> [Int] {
            let record = size + overhead
            return stride(from: 0, to: record, by: L2CAPSocket.maximumSDU).map {
                min(L2CAPSocket.maximumSDU, record - $0)
            }
        }

        @Test("a message takes exactly the packets that its record needs")
        func packets() async throws {
            try await withChannels { dialer, acceptor, loop in
                let (here, there) = (try Adapter.named("hci0"), try Adapter.named("hci1"))
                #expect(try here.packets().size == 192)
                for size in [0, 1, 167, 168, 355, 356, 1_000, 4_096, 4_178, 4_179, 8_173] {
                    let before = (try here.packets().sent, try there.packets().sent)
                    async let got = acceptor.receive()
                    #expect(
                        try await dialer.deliver([UInt8](repeating: 7, count: size)) == .delivered)
                    try await #expect(got?.count == size)
                    let sdus = Self.sdus(size)
                    let record = sdus.reduce(0) { $0 + ($1 + 2 + Self.mps - 1) / Self.mps }
                    // Each side answers the other side's SDU with credits; the acknowledgement is
                    // one SDU.
                    let expected = (UInt32(record) + 1, UInt32(sdus.count) + 1)
                    var sent: (UInt32, UInt32) = (0, 0)
                    var looks = 0
                    repeat {
                        try await loop.sleep(for: .milliseconds(20))
                        sent = (
                            try here.packets().sent &- before.0,
                            try there.packets().sent &- before.1
                        )
                        looks += 1
                    } while sent != expected && looks < 100
                    // No further packets follow.
                    try await loop.sleep(for: .milliseconds(100))
                    #expect(try here.packets().sent &- before.0 == expected.0, "\(size) bytes")
                    #expect(try there.packets().sent &- before.1 == expected.1, "\(size) bytes")
                }
            }
        }

        private func withChannels(
            _ body:
                @escaping @Sendable (SecureChannel, SecureChannel, EventLoop) async throws -> Void
        ) async throws {
            try await withChannel { channel in
                let configuration = ChannelConfiguration(
                    identity: try .generate(), trust: .anyone)
                let other = ChannelConfiguration(identity: try .generate(), trust: .anyone)
                async let acceptor = SecureChannel.open(
                    over: channel.accepted, role: .acceptor, configuration: other)
                let dialer = try await SecureChannel.open(
                    over: channel.dialed, role: .dialer, configuration: configuration)
                try await body(dialer, acceptor, channel.loop)
            }
        }
    }
}
