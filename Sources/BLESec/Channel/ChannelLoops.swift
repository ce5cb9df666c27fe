internal import BLESecLinks
internal import Synchronization

/// The loops on which the channels of a listener run.
///
/// The next channel goes to the loop with the fewest open channels of the listener. Round robin
/// would be simpler, but channels last for different times, so some loops could be left with most
/// of the channels that last long.
struct ChannelLoops: Sendable {
    /// One of the loops, and the number of open channels on it.
    fileprivate final class Share: Sendable {
        let loop: EventLoop
        let openChannels = Atomic<Int>(0)
        init(_ loop: EventLoop) { self.loop = loop }
    }

    /// Counts one channel as open on its loop until the last reference is released.
    final class Seat: Sendable {
        private let share: Share

        fileprivate init(_ share: Share) {
            self.share = share
            share.openChannels.add(1, ordering: .relaxed)
        }

        deinit { share.openChannels.subtract(1, ordering: .relaxed) }
    }

    /// The listener's own loop, which gets the channels if no other loop is left.
    private let own: EventLoop
    private let shares: [Share]

    /// Without `loops`, all channels run on the listener's own loop.
    init(_ loops: [EventLoop], own: EventLoop) {
        self.own = own
        var shares: [Share] = []
        for loop in loops where !shares.contains(where: { $0.loop === loop }) {
            shares.append(Share(loop))
        }
        self.shares = shares
    }

    /// The loop for the next channel; of equally loaded loops, the first. Loops that were shut down
    /// get no channels.
    var next: EventLoop {
        var next: Share?
        var fewest = Int.max
        for share in shares where !share.loop.isShutdownRequested {
            let count = share.openChannels.load(ordering: .relaxed)
            if count < fewest { (next, fewest) = (share, count) }
        }
        return next?.loop ?? own
    }

    /// Counts a channel on `loop`; nil if the loop is not one of these.
    func seat(on loop: EventLoop) -> Seat? {
        shares.first { $0.loop === loop }.map { Seat($0) }
    }
}
