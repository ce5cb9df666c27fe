internal import BLESecLinks
internal import Synchronization

/// The loops on which the channels of a listener run.
///
/// The next channel goes to the loop with the fewest open channels of the listener. Round robin
/// would be simpler, but channels last for different times, so some loops could be left with most
/// of the channels that last long.
struct ChannelLoops: Sendable {
    /// One of the loops, and the number of open channels on it.
    fileprivate final class CountedLoop: Sendable {
        let loop: EventLoop
        let openChannels = Atomic<Int>(0)
        init(_ loop: EventLoop) { self.loop = loop }
    }

    /// Counts one channel as open on its loop, until the last reference to this object is released.
    final class CountedChannel: Sendable {
        private let loop: CountedLoop

        fileprivate init(on loop: CountedLoop) {
            self.loop = loop
            loop.openChannels.add(1, ordering: .relaxed)
        }

        deinit { loop.openChannels.subtract(1, ordering: .relaxed) }
    }

    /// The listener's own loop, which gets the channels if no other loop is left.
    private let listenerLoop: EventLoop
    private let countedLoops: [CountedLoop]

    /// Without `loops`, all channels run on the listener's own loop.
    init(_ loops: [EventLoop], listenerLoop: EventLoop) {
        self.listenerLoop = listenerLoop
        var countedLoops: [CountedLoop] = []
        for loop in loops where !countedLoops.contains(where: { $0.loop === loop }) {
            countedLoops.append(CountedLoop(loop))
        }
        self.countedLoops = countedLoops
    }

    /// The loop for the next channel; of equally loaded loops, the first. Loops that were shut down
    /// get no channels.
    var nextLoop: EventLoop {
        var next: CountedLoop?
        var fewest = Int.max
        for candidate in countedLoops where !candidate.loop.isShutdownRequested {
            let count = candidate.openChannels.load(ordering: .relaxed)
            if count < fewest { (next, fewest) = (candidate, count) }
        }
        return next?.loop ?? listenerLoop
    }

    /// Counts a channel on `loop`. Returns nil, and counts nothing, if `loop` is not one of the
    /// loops that were given to the initializer.
    func countChannel(on loop: EventLoop) -> CountedChannel? {
        countedLoops.first { $0.loop === loop }.map { CountedChannel(on: $0) }
    }
}
