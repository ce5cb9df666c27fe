internal import BLESecLinks

/// Which of two channels to one peer stays (blesec/1, "Discovery").
///
/// Both sides must choose the same channel. If the handshakes overlapped, neither side can tell
/// which came first, and the channel with the lower handshake hash stays, because both sides know
/// the hashes. Otherwise the newer channel stays, because the older one may already be dead.
enum DuplicateRule {
    /// What the rule needs to know about a channel.
    struct Side {
        let began: MonotonicTime
        let ready: MonotonicTime
        let hash: [UInt8]
    }

    /// By how much the two sides may differ about the time of an event.
    private static let doubt = Duration.seconds(2)

    /// Whether `newer`, which became ready later, stays instead of `older`.
    static func keeps(_ newer: Side, insteadOf older: Side) -> Bool {
        guard newer.began <= older.ready.advanced(by: doubt) else { return true }
        return newer.hash.lexicographicallyPrecedes(older.hash)
    }
}
