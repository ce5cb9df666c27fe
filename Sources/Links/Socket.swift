internal import CLinux
import Glibc

/// The system calls of the links, each a line or two. The one file of theirs that talks to C.
package enum Socket {
    /// `CLOCK_MONOTONIC`.
    package static func monotonicTime() -> MonotonicTime {
        var time = timespec()
        unsafe clock_gettime(CLOCK_MONOTONIC, &time)
        return MonotonicTime(
            nanoseconds: UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec))
    }

    /// Closes a descriptor. There is nothing to be done about an error.
    package static func close(_ descriptor: Int32) {
        Glibc.close(descriptor)
    }
}
