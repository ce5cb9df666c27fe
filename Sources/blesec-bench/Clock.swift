internal import Glibc

/// Where times are taken, in nanoseconds.
enum Clock {
    /// What this thread has computed so far: other processes on the machine do not count.
    static var threadTime: UInt64 { read(CLOCK_THREAD_CPUTIME_ID) }
    /// Time as it passes.
    static var time: UInt64 { read(CLOCK_MONOTONIC) }

    private static func read(_ clock: clockid_t) -> UInt64 {
        var time = timespec()
        unsafe clock_gettime(clock, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}
