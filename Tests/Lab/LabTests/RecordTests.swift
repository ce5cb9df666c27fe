import BLESec
import Testing

@testable import BLESecL2CAP

extension Laboratory {
    /// How a channel's records are divided into SDUs and packets.
    @Suite struct RecordTests {
        /// What a record adds to a message: the length field, the type and the tag.
        private static let overhead = 19
        /// How many bytes one packet of a virtual controller carries. In an SDU's first packet, two
        /// of them are the SDU's length field.
        private static let mps = 188

        /// The lengths of the SDUs that carry the record of a message of `size` bytes.
        private static func sdus(_ size: Int) -> [Int] {
            let record = size + overhead
            return stride(from: 0, to: record, by: L2CAPSocket.maximumSDU).map {
                min(L2CAPSocket.maximumSDU, record - $0)
            }
        }

        @Test("a message costs the packets of its record, credits and acknowledgement, and no more")
        func packets() async throws {
            try await withSecureChannel { dialer, acceptor, loop in
                let (hci0, hci1) = (try Adapter.named("hci0"), try Adapter.named("hci1"))
                #expect(try hci0.packets().maximumPayload == 192)
                // The controllers may still send the last packets of the handshake.
                var previous: (UInt32, UInt32)
                repeat {
                    previous = (try hci0.packets().sent, try hci1.packets().sent)
                    try await loop.sleep(for: .milliseconds(200))
                } while try previous != (hci0.packets().sent, hci1.packets().sent)
                for size in [0, 1, 167, 168, 355, 356, 1_000, 4_096, 4_178, 4_179, 8_173] {
                    let before = (try hci0.packets().sent, try hci1.packets().sent)
                    async let received = acceptor.receive()
                    #expect(
                        try await dialer.deliver([UInt8](repeating: 7, count: size)) == .delivered)
                    try await #expect(received?.count == size)
                    let sdus = Self.sdus(size)
                    let recordPackets = sdus.reduce(0) { $0 + ($1 + 2 + Self.mps - 1) / Self.mps }
                    // hci0 sends the record, and a packet of credits for the acknowledgement. hci1
                    // sends a packet of credits for each SDU, and the acknowledgement.
                    let expected = (UInt32(recordPackets) + 1, UInt32(sdus.count) + 1)
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

        /// Runs `body` with the dialer and the acceptor of a secure channel, and with their loop.
        private func withSecureChannel(
            _ body:
                @escaping @Sendable (SecureChannel, SecureChannel, EventLoop) async throws -> Void
        ) async throws {
            try await withChannel { channel in
                let forDialer = ChannelConfiguration(identity: try .generate(), trust: .anyone)
                let forAcceptor = ChannelConfiguration(identity: try .generate(), trust: .anyone)
                async let acceptor = SecureChannel.open(
                    over: channel.accepted, role: .acceptor, configuration: forAcceptor)
                let dialer = try await SecureChannel.open(
                    over: channel.dialed, role: .dialer, configuration: forDialer)
                try await body(dialer, acceptor, channel.loop)
            }
        }
    }
}
