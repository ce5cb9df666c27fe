internal import BLESecToolKit
internal import Glibc

/// What the terminal and the environment say about output.
enum Environment {
    /// Whether output on a terminal may be coloured: `NO_COLOR` is unset or empty, and the terminal
    /// obeys escape sequences.
    static var allowsColours: Bool {
        let isRefused = unsafe getenv("NO_COLOR").map { unsafe $0.pointee != 0 } ?? false
        return !isRefused && Terminal.obeysEscapes
    }

    /// The number of columns of the terminal at standard error, but at least 20; 80 if the number
    /// is unknown.
    static var width: Int {
        var size = winsize()
        guard unsafe ioctl(STDERR_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else {
            return 80
        }
        return max(20, Int(size.ws_col))
    }

    /// The number of lines of the terminal at standard output; 24 if that is unknown.
    static var height: Int {
        var size = winsize()
        guard unsafe ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_row > 0 else {
            return 24
        }
        return Int(size.ws_row)
    }
}
