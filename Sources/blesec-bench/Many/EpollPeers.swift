internal import CBLESecBench

/// Many channels in C, with both ends of each in one epoll loop on one thread.
enum EpollPeers {
    /// What all channels together have done.
    struct Load: Sendable {
        /// Bytes of messages.
        var bytes: Int
        /// The thread's processor time, in nanoseconds.
        var time: UInt64
        /// The number of messages on the slowest channel.
        var leastMessages: Int

        /// Bytes of messages in a second of processor time.
        var goodput: Double { Double(bytes) / Double(max(1, time)) * 1e9 }
    }

    /// Lets every channel send `batch` messages at a time for `nanoseconds`. Then each
    /// channel sends once more, and the call returns when everything is received. Blocks this
    /// thread.
    static func measure(
        channels: Int, size: Int, batch: Int, nanoseconds: UInt64
    ) throws -> Load {
        var load = blesec_bench_load()
        guard
            unsafe blesec_bench_many_channels(channels, size, batch, Int64(nanoseconds), &load)
        else {
            throw BenchError.failed("the epoll loop in C")
        }
        return Load(
            bytes: Int(load.bytes), time: UInt64(load.nanoseconds),
            leastMessages: Int(load.least_messages))
    }
}
