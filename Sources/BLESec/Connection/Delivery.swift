internal import BLESecChannelCore
internal import BLESecDelivery

/// The fate of a message.
public enum Delivery: String, Sendable, Hashable {
    /// The peer's program has taken the message or, with manual acknowledgement, has confirmed it.
    case delivered
    /// The peer's device has the message; whether its program has taken it is not reported.
    case received
    /// The link or, with ``PeerConnection/Guarantee/exactlyOnce(_:)``, the state of a side was lost
    /// before an acknowledgement: the message may or may not have arrived, and is not sent again.
    /// ``PendingDelivery/delivery()`` also returns `unknown` if its wait ends before the fate is
    /// certain.
    case unknown
    /// The message was removed from the store with `blesec outbox` before it was sent, and does not
    /// arrive. Only with ``PeerConnection/Guarantee/exactlyOnce(_:)`` and a store.
    case dropped
}

extension Delivery {
    init(_ fate: Fates.Fate) {
        self =
            switch fate {
            case .confirmed: .delivered
            case .unknown: .unknown
            case .dropped: .dropped
            }
    }
}

/// What to do with a message while there is no link.
public enum WhenDisconnected: Sendable, Hashable {
    /// The call waits for the next link. With ``PeerConnection/Guarantee/exactlyOnce(_:)``, a
    /// message is queued without waiting for a link.
    case wait
    /// The call throws `noSuchPeer` without sending the message.
    case fail
}

/// The fate of a queued message, which may still be undecided.
public struct PendingDelivery: Sendable {
    /// The object that reports the fate.
    enum Source {
        case link(SecureChannel)
        case connection(PeerConnection)
    }

    /// The message's number: sent messages are numbered from 1 on each link or, with
    /// ``PeerConnection/Guarantee/exactlyOnce(_:)``, on the connection.
    public let number: UInt64
    private let source: Source

    init(number: UInt64, _ source: Source) {
        self.number = number
        self.source = source
    }

    /// Returns the fate of the message once it is certain; `unknown` if the task is cancelled
    /// first, or if the connection is over first.
    ///
    /// With ``PeerConnection/Guarantee/exactlyOnce(_:)``, the message may still be sent after the
    /// wait was cancelled. With a store, the message may also be sent after the connection is over:
    /// the next connection with the store sends it, and reports its fate in
    /// ``PeerConnection/deliveries``.
    public func delivery() async -> Delivery {
        switch source {
        case .link(let channel): await channel.delivery(of: number)
        case .connection(let connection): await connection.delivery(of: number)
        }
    }
}
