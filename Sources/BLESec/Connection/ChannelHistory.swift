internal import BLESecLinks

/// The facts that decide which of two channels to one peer stays (`docs/wire-format.md`, "Finding
/// each other").
struct ChannelHistory: Sendable {
    /// When the channel began to use its open link.
    let began: MonotonicTime
    /// When the channel became ready.
    let ready: MonotonicTime
    /// The hash of the handshake, which is the same on both sides.
    let hash: [UInt8]

    /// The largest difference assumed between the times at which the two sides see the same event.
    private static let maximumTimeDifference = Duration.seconds(2)

    /// Whether this channel, which became ready later than `older`, stays instead of `older`.
    ///
    /// Both sides must choose the same channel. If this channel began before `older` was ready, or
    /// at most ``maximumTimeDifference`` after that, the sides may disagree about the order. Then
    /// the channel with the lower handshake hash stays, because both sides know the hashes.
    /// Otherwise this channel stays, because `older` may already be dead.
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
