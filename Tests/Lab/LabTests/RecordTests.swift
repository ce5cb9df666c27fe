import BLESec
import Testing

@testable import BLESecL2CAP

extension Laboratory {
    /// How a channel's records are divided on the way to the controller.
    @Suite struct RecordTests {
        /// What a record adds to a message: the length field, the type and the tag.
        private static let overhead = 19
        /// How many bytes of an SDU, with the two bytes of the SDU's length field, one packet of a
        /// virtual controller carries.
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
                let (hci0, hci1) = (try Adapter.named("hci0"), try Adapter.named("hci1"))
                #expect(try hci0.packets().size == 192)
                for size in [0, 1, 167, 168, 355, 356, 1_000, 4_096, 4_178, 4_179, 8_173] {
                    let before = (try hci0.packets().sent, try hci1.packets().sent)
                    async let got = acceptor.receive()
                    #expect(
                        try await dialer.deliver([UInt8](repeating: 7, count: size)) == .delivered)
                    try await #expect(got?.count == size)
                    let sdus = Self.sdus(size)
                    let record = sdus.reduce(0) { $0 + ($1 + 2 + Self.mps - 1) / Self.mps }
                    // hci0 sends the record, and a packet of credits for the acknowledgement. hci1
                    // sends a packet of credits for each SDU, and the acknowledgement.
                    let expected = (UInt32(record) + 1, UInt32(sdus.count) + 1)
                    var sent: (UInt32, UInt32) = (0, 0)
                    var polls = 0
                    repeat {
                        try await loop.sleep(for: .milliseconds(20))
                        sent = (
                            try hci0.packets().sent &- before.0,
                            try hci1.packets().sent &- before.1
                        )
                        polls += 1
                    } while sent != expected && polls < 100
                    // No further packets follow.
                    try await loop.sleep(for: .milliseconds(100))
                    #expect(try hci0.packets().sent &- before.0 == expected.0, "\(size) bytes")
                    #expect(try hci1.packets().sent &- before.1 == expected.1, "\(size) bytes")
                }
            }
        }

        private func withChannels(
            _ body:
                @escaping @Sendable (SecureChannel, SecureChannel, EventLoop) async throws -> Void
        ) async throws {
            try await withChannel { channel in
                let configuration = ChannelConfiguration(identity: try .generate(), trust: .anyone)
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
