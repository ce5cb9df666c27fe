internal import BLESec
internal import BLESecL2CAP

/// Measures how many packets an adapter sends for messages over L2CAP: the number that the
/// adapter's driver counts, and the number computed from the SDUs.
struct PacketScenario: Sendable {
    /// Both ends of a link; each counts what it sends.
    struct Ends: Sendable {
        /// The end at ``PacketScenario/adapter``.
        let dialer: MeteredLink
        let acceptor: MeteredLink
    }

    /// All links from the adapter. The driver counts the packets of all links together. While one
    /// link is measured, another may still send acknowledgements. So each computed number includes
    /// the packets of all links.
    var links: [Ends] = []
    /// The adapter of the dialing ends.
    let adapter: Adapter

    /// The packets for a number of messages of one size, one way.
    struct Result: Sendable {
        var engine: String
        var size: Int
        var messages: Int
        var sdus: Int
        /// Bytes of the SDUs; the messages have `size` times `messages` bytes.
        var sduBytes: Int
        /// The packets that the host gave to the adapter: the pieces of the SDUs, and a packet with
        /// credits for each SDU that the host received.
        var packets: Int
        var computedPackets: Int

        /// The messages' bytes as a fraction of the SDUs' bytes.
        var messageShare: Double { Double(size * messages) / Double(max(1, sduBytes)) }
    }

    private struct Reading: Equatable {
        var sent: MeteredLink.Count
        /// The packets that the driver has counted so far, and the number computed from the SDUs.
        var packets: UInt32
        var computed: Int
    }

    /// Longer than the delay of an acknowledgement. So if two readings with this pause between them
    /// are equal, nothing more is sent.
    private static let quietTime = Duration.milliseconds(150)
    private static let mostReadings = 20
    /// The most bytes of messages to send, unless a single message is longer.
    private static let mostBytes = 64 << 10

    /// Sends messages over the link with the index `link`, waits until nothing is sent any more,
    /// and counts the packets.
    func measure(_ session: Session, link: Int, size: Int) async throws -> Result {
        let messages = min(64, max(1, Self.mostBytes / size))
        let before = try await settledReading(link)
        _ = try await session.transfer(count: messages, size: size)
        let after = try await settledReading(link, since: before)
        return Result(
            engine: session.engine.name, size: size, messages: messages,
            sdus: after.sent.sdus - before.sent.sdus,
            sduBytes: after.sent.bytes - before.sent.bytes,
            packets: Int(after.packets &- before.packets),
            computedPackets: after.computed - before.computed)
    }

    /// The first reading that has not changed for ``quietTime`` and adds up: since `start`, the
    /// driver has counted as many packets as were computed. If none of ``mostReadings`` readings is
    /// like that, the last one.
    private func settledReading(_ link: Int, since start: Reading? = nil) async throws -> Reading {
        var last = try reading(link)
        for _ in 0..<Self.mostReadings {
            try await links[link].dialer.loop.sleep(for: Self.quietTime)
            let next = try reading(link)
            let addsUp =
                start.map { Int(next.packets &- $0.packets) == next.computed - $0.computed } ?? true
            if next == last, addsUp { break }
            last = next
        }
        return last
    }

    private func reading(_ link: Int) throws -> Reading {
        Reading(
            sent: links[link].dialer.count, packets: try adapter.packets().sent,
            computed: links.reduce(0) { $0 + $1.dialer.count.packets + $1.acceptor.count.sdus })
    }
}
