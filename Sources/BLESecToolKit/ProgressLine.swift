internal import Glibc

/// One line on standard error that says how far a run is; nothing where nobody looks.
package struct ProgressLine {
    private let total: Int
    private let isShown = isatty(STDERR_FILENO) == 1
    private var done = 0

    private static let width = 24

    /// A line for so many steps.
    package init(steps: Int) { total = max(1, steps) }

    /// Says what the next step is, and counts it as done once the one behind it is shown.
    package mutating func show(_ what: String) {
        show(what, done: done)
        done += 1
    }

    /// Says what goes on, with so many steps done.
    package mutating func show(_ what: String, done: Int) {
        self.done = done
        let filled = min(done * Self.width / total, Self.width)
        let bar =
            String(repeating: "#", count: filled)
            + String(repeating: ".", count: Self.width - filled)
        write("\r\u{1B}[K[\(bar)] \(done * 100 / total)% \(what)")
    }

    /// Takes the line away.
    package func clear() { write("\r\u{1B}[K") }

    private func write(_ text: String) {
        guard isShown else { return }
        let bytes = Array(text.utf8)
        // Whether anyone sees it changes nothing.
        _ = unsafe bytes.withUnsafeBytes {
            unsafe Glibc.write(STDERR_FILENO, $0.baseAddress, $0.count)
        }
    }
}
