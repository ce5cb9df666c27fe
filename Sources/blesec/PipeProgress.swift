internal import BLESec
internal import BLESecLocking
internal import BLESecToolKit
internal import Glibc

/// The progress of a pipe on standard error: one line of the terminal with the bytes in each
/// direction and their rates, redrawn every second.
///
/// The line is shown only on a terminal that can redraw it, without `--json` and `--quiet`. The line
/// is not shown if standard output is a terminal too: there it would stand between the peer's bytes.
final class PipeProgress: Sendable {
    private struct State: Sendable {
        var sent: UInt64 = 0
        var received: UInt64 = 0
        /// The counts when the line was last drawn.
        var drawn: (sent: UInt64, received: UInt64, at: ContinuousClock.Instant)
        /// The text that the terminal shows now; nil if it shows none.
        var line: String?
        /// Whether ``end()`` was called, so that nothing is drawn any more.
        var isOver = false
    }

    /// The time before the first drawing, and between two drawings. A pipe that ends sooner shows
    /// no line.
    private static let interval = Duration.seconds(1)

    private let isShown: Bool
    private let state = Locked(State(drawn: (0, 0, .now)))
    private let task = Locked<Task<Void, Never>?>(nil)

    init() {
        isShown =
            Terminal.canRedraw(STDERR_FILENO) && isatty(STDOUT_FILENO) == 0
            && !Diagnostics.isJSON && Diagnostics.verbosity >= 0
    }

    /// Shows the line from now on.
    func begin() {
        guard isShown else { return }
        state.withLock { $0.drawn.at = .now }
        // Each message is printed in place of the line, which is then drawn again below it.
        Diagnostics.show(by: { [weak self] printMessage in
            guard let self else { return printMessage() }
            self.state.withLock { state in
                let shown = state.line
                Self.draw(nil, &state)
                printMessage()
                Self.draw(shown, &state)
            }
        })
        let drawing = Task(executorPreference: EventLoop.shared) { [weak self] in
            while (try? await EventLoop.shared.sleep(for: Self.interval)) != nil, let self {
                self.draw()
            }
        }
        task.withLock { $0 = drawing }
    }

    func sent(_ count: Int) {
        guard isShown else { return }
        state.withLock { $0.sent &+= UInt64(clamping: count) }
    }

    func received(_ count: Int) {
        guard isShown else { return }
        state.withLock { $0.received &+= UInt64(clamping: count) }
    }

    /// Removes the line.
    func end() {
        guard isShown else { return }
        task.withLock { $0.take() }?.cancel()
        state.withLock { state in
            Self.draw(nil, &state)
            state.isOver = true
        }
        Diagnostics.show(by: nil)
    }

    private func draw() {
        state.withLock { state in
            guard !state.isOver, !StandardError.isBehind else { return }
            let now = ContinuousClock.now
            let seconds = (now - state.drawn.at) / .seconds(1)
            let text =
                "sent " + Self.text(state.sent, since: state.drawn.sent, seconds) + ", received "
                + Self.text(state.received, since: state.drawn.received, seconds)
            state.drawn = (state.sent, state.received, now)
            Self.draw(String(text.prefix(Environment.width - 1)), &state)
        }
    }

    private static func text(_ bytes: UInt64, since old: UInt64, _ seconds: Double) -> String {
        let rate = seconds > 0 ? Double(bytes &- old) / seconds : 0
        let whole = TransferDisplay.clampedInteger(rate)
        return "\(TransferDisplay.size(bytes)) (\(TransferDisplay.size(whole))/s)"
    }

    private static func draw(_ text: String?, _ state: inout State) {
        guard text != nil || state.line != nil else { return }
        state.line = text
        StandardError.write("\r\u{1B}[K" + (text ?? ""))
    }
}
