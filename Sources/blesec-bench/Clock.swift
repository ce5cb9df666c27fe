internal import Glibc

/// Clocks, in nanoseconds.
enum Clock {
    /// The processor time that this thread has used.
    static var threadTime: UInt64 { read(CLOCK_THREAD_CPUTIME_ID) }
    /// The time since an arbitrary moment.
    static var time: UInt64 { read(CLOCK_MONOTONIC) }

    private static func read(_ clock: clockid_t) -> UInt64 {
        var time = timespec()
        unsafe clock_gettime(clock, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}
