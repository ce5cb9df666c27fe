internal import Synchronization

/// How far a listener's channel has come, written by the channel and read by its listener.
///
/// The two may run on different loops, so the stage that the listener reads may be out of date. When
/// a new link needs room, the listener therefore asks a channel to end its handshake, and the
/// channel decides whether the handshake gives up its place.
final class HandshakeProgress: Sendable {
    enum Stage: UInt8, AtomicRepresentable {
        /// The peer has not proven its identity.
        case unproven
        /// An application is deciding about the peer (the number of such peers is limited), or a
        /// pairing is at its last confirmations.
        case deciding
        /// The channel is ready: the peer has given every proof that the protocol requires.
        case ready
        /// The channel has ended.
        case over
    }

    private let atomicStage = Atomic<Stage>(.unproven)
    /// Counts the channel as open on its loop as long as this object exists; nil if the channel runs
    /// on none of the loops that the listener counts.
    private let countedChannel: ChannelLoops.CountedChannel?

    init(_ countedChannel: ChannelLoops.CountedChannel?) { self.countedChannel = countedChannel }

    var stage: Stage {
        get { atomicStage.load(ordering: .acquiring) }
        set { atomicStage.store(newValue, ordering: .releasing) }
    }
}
