internal import BLESecLinks

/// The facts that decide which of two channels to one peer stays (`docs/wire-format.md`, "Finding
/// each other").
struct ChannelHistory: Sendable {
    /// When the channel took over its link.
    let began: MonotonicTime
    /// When the channel became ready.
    let ready: MonotonicTime
    /// The hash of the handshake, which is the same on both sides.
    let hash: [UInt8]

    /// The times at which the two sides see the same event are assumed to differ by at most this.
    private static let maximumTimeDifference = Duration.seconds(2)

    /// Whether this channel, which became ready later, stays instead of `older`.
    ///
    /// Both sides must choose the same channel. If this channel began before `older` was ready, or
    /// at most ``maximumTimeDifference`` later, the sides may disagree about the order, and the
    /// channel with the lower handshake hash stays, because both sides know the hashes. Otherwise
    /// the newer channel stays, because the older one may already be dead.
    func stays(insteadOf older: ChannelHistory) -> Bool {
        guard began <= older.ready.advanced(by: Self.maximumTimeDifference) else { return true }
        return hash.lexicographicallyPrecedes(older.hash)
    }
}

extension ChannelHistory {
    init(of channel: SecureChannel, readyAt now: MonotonicTime) async {
        self.init(began: await channel.began, ready: now, hash: await channel.handshakeHash)
    }
}
