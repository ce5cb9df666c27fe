internal import Glibc

/// A progress line on standard error. Nothing is printed unless standard error is a terminal on which
/// lines can be redrawn.
package struct ProgressLine {
    private let total: Int
    private let isShown = Terminal.canRedraw(STDERR_FILENO)
    private var done = 0

    private static let width = 24

    package init(steps: Int) { total = max(1, steps) }

    /// Shows the step that begins. It counts as done when the next step is shown.
    package mutating func show(_ step: String) {
        show(step, done: done)
        done += 1
    }

    /// Shows the current step, and the share of finished steps as a bar and a percentage.
    package mutating func show(_ step: String, done: Int) {
        self.done = done
        let filled = min(done * Self.width / total, Self.width)
        let bar =
            String(repeating: "#", count: filled)
            + String(repeating: ".", count: Self.width - filled)
        write("\r\u{1B}[K[\(bar)] \(done * 100 / total)% \(step)")
    }

    package func clear() { write("\r\u{1B}[K") }

    private func write(_ text: String) {
        guard isShown else { return }
        let bytes = Array(text.utf8)
        _ = unsafe Glibc.write(STDERR_FILENO, bytes, bytes.count)
    }
}
