internal import BLESecChannelCore

/// What became of a message (blesec/1, "Records").
public enum Delivery: String, Sendable, Hashable {
    /// The peer's program has taken it or, where it confirms by hand, has confirmed it.
    case delivered
    /// The peer's device has it. The peer does not tell whether its program does.
    case received
    /// The link went first: it may have arrived or not. It is not sent again.
    case unknown
}

/// What to do with a message while there is no link.
public enum WhenDisconnected: Sendable, Hashable {
    /// Wait for the next link.
    case wait
    /// Throw `no-such-peer`; nothing was sent then.
    case fail
}

/// A message that is under way.
public struct PendingDelivery: Sendable {
    let channel: SecureChannel
    let number: UInt64

    /// What has become of it, as soon as that is certain. Who is cancelled does not know.
    public func delivery() async -> Delivery { await channel.delivery(of: number) }
}
