internal import Synchronization

/// How far a listener's channel has come, written by the channel and read by its listener.
///
/// The two may run on different loops, so the stage that the listener reads may be out of date.
/// Therefore the listener only chooses a handshake that is to make room for a new link. The channel
/// of that handshake decides whether the handshake gives up its place.
final class HandshakeProgress: Sendable {
    enum Stage: UInt8, AtomicRepresentable {
        /// The peer has not proven its identity.
        case unproven
        /// An application is deciding about the peer, which has one of the limited places for such
        /// decisions; or a pairing is at its last confirmations.
        case deciding
        /// The peer has given every proof that the protocol requires.
        case ready
        /// The channel has ended.
        case over
    }

    private let current = Atomic<Stage>(.unproven)
    /// Counts the channel as open on its loop as long as this object exists.
    private let countedChannel: ChannelLoops.CountedChannel?

    init(_ countedChannel: ChannelLoops.CountedChannel?) { self.countedChannel = countedChannel }

    var stage: Stage {
        get { current.load(ordering: .acquiring) }
        set { current.store(newValue, ordering: .releasing) }
    }
}
