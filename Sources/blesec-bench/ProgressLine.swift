internal import Glibc

/// One line on standard error that says how far a run is; nothing where nobody looks.
struct ProgressLine {
    private let total: Int
    private let isShown = isatty(STDERR_FILENO) == 1
    private var done = 0

    private static let width = 24

    init(steps: Int) { total = max(1, steps) }

    /// Says what is being measured now.
    mutating func show(_ what: String) {
        let filled = done * Self.width / total
        let bar =
            String(repeating: "#", count: filled)
            + String(repeating: ".", count: Self.width - filled)
        write("\r\u{1B}[K[\(bar)] \(done * 100 / total)% \(what)")
        done += 1
    }

    /// Takes the line away.
    func clear() { write("\r\u{1B}[K") }

    private func write(_ text: String) {
        guard isShown else { return }
        let bytes = Array(text.utf8)
        // Whether anyone sees it changes nothing.
        _ = unsafe bytes.withUnsafeBytes {
            unsafe Glibc.write(STDERR_FILENO, $0.baseAddress, $0.count)
        }
    }
}
