internal import Glibc

/// Decides whether to read a terminal again after a read has failed.
///
/// While this process is in the background, lines are typed for another program. The tools read on
/// threads that block SIGTTIN, so such a read fails with `EIO`, and does not stop the process.
package struct TerminalReads {
    private let terminal: Int32
    /// The number of failures in the foreground, one after another.
    private var failures = 0

    /// How long to wait, in microseconds, before the terminal is read again.
    private static let retryDelay: UInt32 = 200_000

    package init(_ terminal: Int32) { self.terminal = terminal }

    /// Whether to read again after a failure with this value of `errno`; if so, waits before it
    /// returns. One failure in the foreground is ignored: the process may have come to the
    /// foreground only after the read had failed.
    package mutating func mayRetry(after error: Int32) -> Bool {
        guard error == EIO else { return false }
        let foreground = tcgetpgrp(terminal)
        guard foreground != -1 else { return false }
        failures = foreground == getpgrp() ? failures + 1 : 0
        guard failures < 2 else { return false }
        usleep(Self.retryDelay)
        return true
    }
}
