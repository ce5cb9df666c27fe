internal import BLESec
internal import BLESecL2CAP

/// What an adapter sends for messages over L2CAP, counted by the adapter's driver and computed from
/// the SDUs.
struct PacketScenario: Sendable {
    /// A link whose both ends count.
    struct Ends: Sendable {
        /// The end on ``PacketScenario/adapter``.
        let dialer: MeteredLink
        let acceptor: MeteredLink
    }

    /// All links from the adapter: while one is measured, another may still acknowledge.
    private(set) var links: [Ends] = []
    /// The adapter of the dialing ends.
    let adapter: Adapter

    init(adapter: Adapter) { self.adapter = adapter }

    /// Adds the next session's link.
    mutating func add(_ ends: Ends) { links.append(ends) }

    /// What was sent for a number of messages of one size, one way.
    struct Result: Sendable {
        var engine: String
        var size: Int
        var messages: Int
        var sdus: Int
        /// Bytes of the SDUs; those of the messages are `size` times `messages`.
        var sduBytes: Int
        /// What the adapter was given: the SDUs in pieces, and credits for the SDUs that came back.
        var packets: Int
        var computedPackets: Int

        /// The share of the SDUs' bytes that is the messages'.
        var messageShare: Double { Double(size * messages) / Double(max(1, sduBytes)) }
    }

    private struct Reading: Equatable {
        var own: MeteredLink.Count
        /// What the adapter has been given by now, and what it should have been.
        var packets: UInt32
        var computed: Int
    }

    /// Longer than an acknowledgement may wait, so that silence is the end.
    private static let quiet = Duration.milliseconds(150)
    private static let patience = 20
    /// What one count sends at the least, in bytes.
    private static let volume = 64 << 10

    /// Sends messages over the link with that index, and counts when all is quiet again.
    func measure(_ session: Session, link: Int, size: Int) async throws -> Result {
        let messages = min(64, max(1, Self.volume / size))
        let before = try await settledReading(link)
        _ = try await session.transfer(count: messages, size: size)
        let after = try await settledReading(link, since: before)
        return Result(
            engine: session.engine.name, size: size, messages: messages,
            sdus: after.own.sdus - before.own.sdus, sduBytes: after.own.bytes - before.own.bytes,
            packets: Int(after.packets &- before.packets),
            computedPackets: after.computed - before.computed)
    }

    /// A reading that has not changed for a while, and that adds up if it ever does.
    private func settledReading(_ link: Int, since start: Reading? = nil) async throws -> Reading {
        var last = try reading(link)
        for _ in 0..<Self.patience {
            try await links[link].dialer.loop.sleep(for: Self.quiet)
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
            own: links[link].dialer.count, packets: try adapter.packets().sent,
            computed: links.reduce(0) { $0 + $1.dialer.count.packets + $1.acceptor.count.sdus })
    }
}
