internal import BLESecLinks

/// Which of two channels to one peer stays (blesec/1, "Discovery").
///
/// Both sides have to choose the same one. If their handshakes overlapped, neither side can tell which
/// came first, and the one with the lower handshake hash stays, which both sides know; otherwise the
/// newer one, since the older may be dead already.
enum DuplicateRule {
    /// What is known of a channel.
    struct Side {
        let began: MonotonicTime
        let ready: MonotonicTime
        let hash: [UInt8]
    }

    /// By how much the two sides may differ about when something happened.
    private static let doubt = Duration.seconds(2)

    /// Whether `newer`, which became ready later, stays instead of `older`.
    static func keeps(_ newer: Side, insteadOf older: Side) -> Bool {
        guard newer.began <= older.ready.advanced(by: doubt) else { return true }
        return newer.hash.lexicographicallyPrecedes(older.hash)
    }
}
