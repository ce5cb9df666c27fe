internal import Glibc

/// What the terminal of this process can do, according to the environment.
package enum Terminal {
    /// Whether the terminal obeys escape sequences, which colour text and move the cursor: not if
    /// `TERM` is `dumb`, empty or not set.
    package static var obeysEscapes: Bool {
        let name = unsafe getenv("TERM").map { unsafe String(cString: $0) } ?? ""
        return !["", "dumb"].contains(name)
    }

    /// Whether lines that were written to `descriptor` can be redrawn: it is a terminal that obeys
    /// escape sequences.
    package static func canRedraw(_ descriptor: Int32) -> Bool {
        isatty(descriptor) == 1 && obeysEscapes
    }
}
