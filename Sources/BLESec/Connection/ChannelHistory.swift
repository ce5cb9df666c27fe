internal import BLESecLinks

/// The facts that decide which of two channels to one peer stays (`docs/wire-format.md`, "Finding
/// each other").
struct ChannelHistory: Sendable {
    /// When the channel began to use its open link.
    let beginTime: MonotonicTime
    /// When the channel became ready.
    let readyTime: MonotonicTime
    /// The hash of the handshake, which is the same on both sides.
    let hash: [UInt8]

    /// The largest difference assumed between the times at which the two sides see the same event.
    private static let maximumTimeDifference = Duration.seconds(2)

    /// Whether this channel stays instead of `other`.
    ///
    /// Both sides must choose the same channel. If one channel began more than
    /// ``maximumTimeDifference`` after the other was ready, both sides know which channel is newer. The
    /// newer channel stays, because the older channel may already be dead. Otherwise the sides may
    /// disagree about the order. Then the channel with the lower handshake hash stays, because both sides
    /// know the hashes.
    func stays(insteadOf other: ChannelHistory) -> Bool {
        if isNewer(than: other) { return true }
        if other.isNewer(than: self) { return false }
        return hash.lexicographicallyPrecedes(other.hash)
    }

    /// Whether both sides know that this channel is newer than `other`.
    private func isNewer(than other: ChannelHistory) -> Bool {
        beginTime > other.readyTime.advanced(by: Self.maximumTimeDifference)
    }
}

extension ChannelHistory {
    /// The history of a channel that is ready.
    init(of channel: SecureChannel) async {
        self.init(
            beginTime: await channel.beginTime, readyTime: await channel.readyTime,
            hash: await channel.handshakeHash)
    }
}
