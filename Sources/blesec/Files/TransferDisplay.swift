internal import BLESec
internal import BLESecFiles
internal import BLESecJSON
internal import BLESecLocking
internal import BLESecToolKit
internal import Glibc

/// The progress of files on standard error. With `--json`, it is an object each second, and one when
/// a state changes. Without `--json`, a terminal that can redraw lines shows the progress on such
/// lines; elsewhere there is only a line for each transfer that has ended.
final class TransferDisplay: Sendable {
    private struct State: Sendable {
        /// How many questions are on the terminal or wait for their turn. While there are any, no
        /// progress is drawn.
        var questionCount = 0
        /// How many transfers have ended, and how many bytes they have transferred.
        var endedCount = 0
        var endedBytes: UInt64 = 0
        /// The redrawn lines that are on the terminal now.
        var lines: [String] = []
    }

    /// The number of all files and folders to transfer, and the sum of their bytes. Nil if the number
    /// is unknown; `bytes` is nil if only the sum is unknown.
    private let total: (count: Int, bytes: UInt64?)?
    private let state = Locked(State())
    /// Whether the progress is shown as lines of the terminal, which are redrawn.
    private let redrawsLines: Bool
    private let hasColours: Bool

    init(total: (count: Int, bytes: UInt64?)? = nil) {
        self.total = total
        redrawsLines =
            Terminal.canRedraw(STDERR_FILENO) && !Diagnostics.isJSON && Diagnostics.verbosity >= 0
        hasColours = redrawsLines && Environment.allowsColours
        guard redrawsLines else { return }
        Diagnostics.show(by: { [weak self] line in
            guard let self else { return line() }
            self.state.withLock { state in
                let lines = state.lines
                self.draw([], &state)
                line()
                self.draw(lines, &state)
            }
        })
    }

    deinit { if redrawsLines { Diagnostics.show(by: nil) } }

    /// Shows a transfer until it has ended.
    func follow(_ transfer: FileTransfer) async {
        if Diagnostics.isJSON { return await writeObjects(transfer) }
        for await progress in transfer.progress { show(transfer, progress) }
    }

    private func show(_ transfer: FileTransfer, _ progress: FileTransfer.Progress) {
        guard redrawsLines, progress.state != .done, progress.state != .failed else { return }
        let width = Environment.width
        state.withLock { state in
            guard state.questionCount == 0, !StandardError.isBehind else { return }
            var lines = [Self.line(transfer.name, progress, width, hasColours)]
            if let total, total.count > 1 {
                lines.append(
                    Self.totalLine(
                        state.endedCount, Self.sum(state.endedBytes, progress.bytes), total, width))
            }
            draw(lines, &state)
        }
    }

    /// Writes an object with the newest progress each second, and at once when the state has
    /// changed.
    private func writeObjects(_ transfer: FileTransfer) async {
        let written = Locked<FileTransfer.State?>(nil)
        let ticking = Task(executorPreference: EventLoop.shared) {
            while (try? await EventLoop.shared.sleep(for: .seconds(1))) != nil {
                self.writeObject(transfer, written, isDue: true)
            }
        }
        for await _ in transfer.progress { writeObject(transfer, written, isDue: false) }
        ticking.cancel()
        await ticking.value
    }

    /// Writes the newest progress, if `isDue` is true or the state differs from `written`, the
    /// state in the last object. Writes nothing after the state `done` or `failed`.
    private func writeObject(
        _ transfer: FileTransfer, _ written: Locked<FileTransfer.State?>, isDue: Bool
    ) {
        // The lock keeps the objects in their order.
        written.withLock { written in
            let progress = transfer.current
            guard written != .done, written != .failed, isDue || progress.state != written else {
                return
            }
            written = progress.state
            writeProgress(of: transfer, progress)
        }
    }

    private func writeProgress(
        of transfer: FileTransfer, _ progress: FileTransfer.Progress
    ) {
        var members: [(String, JSONValue)] = [
            ("name", .string(transfer.name)), ("state", .string(progress.state.rawValue)),
            ("bytes", .number(Int(clamping: progress.bytes))),
            ("total", .number(Int(clamping: progress.totalBytes))),
            ("files", .number(progress.files)), ("total-files", .number(progress.totalFiles)),
        ]
        if let rate = progress.rate {
            members.append(("rate", .number(Int(clamping: Self.clampedInteger(rate)))))
        }
        if let left = progress.timeLeft {
            members.append(("seconds-left", .number(Int(clamping: left.components.seconds))))
        }
        if let total {
            let (ended, bytes) = state.withLock { state in
                (state.endedCount, Self.sum(state.endedBytes, progress.bytes))
            }
            members += [
                ("all-ended", .number(ended)), ("all-count", .number(total.count)),
                ("all-bytes", .number(Int(clamping: bytes))),
            ]
            if let all = total.bytes {
                members.append(("all-total", .number(Int(clamping: all))))
            }
        }
        Diagnostics.note("", "progress", members)
    }

    /// Reports how a transfer has ended, on a line that stays.
    func end(
        _ transfer: FileTransfer, _ text: String, _ event: String,
        _ members: [(String, JSONValue)] = [], isFailure: Bool = false
    ) {
        state.withLock { state in
            draw([], &state)
            state.endedCount += 1
            state.endedBytes = Self.sum(state.endedBytes, transfer.current.bytes)
        }
        guard hasColours else {
            return Diagnostics.note(text, event, members, at: isFailure ? -1 : 0)
        }
        let colour = isFailure ? "\u{1B}[31m" : "\u{1B}[32m"
        state.withLock { state in
            draw([], &state)
            write("\(colour)\(Diagnostics.oneLine(text))\u{1B}[0m\n")
        }
    }

    /// Erases the redrawn lines.
    func erase() { state.withLock { draw([], &$0) } }

    /// Erases the redrawn lines, so that a question can be asked. Progress is drawn again when
    /// ``resume()`` has been called as often as this method.
    func pause() {
        state.withLock { state in
            draw([], &state)
            state.questionCount += 1
        }
    }

    func resume() { state.withLock { $0.questionCount -= 1 } }

    /// Replaces the redrawn lines by `lines`.
    private func draw(_ lines: [String], _ state: inout State) {
        guard !lines.isEmpty || !state.lines.isEmpty else { return }
        let count = state.lines.count
        state.lines = lines
        write(Self.drawing(lines, over: count))
    }

    /// The text that replaces `count` drawn lines by `lines`. The text tells the terminal not to
    /// wrap `lines`. So each of them takes one line of a narrow terminal, even if characters are
    /// two columns wide.
    static func drawing(_ lines: [String], over count: Int) -> String {
        let cursorUp = count > 1 ? "\u{1B}[\(count - 1)A" : ""
        let erasing = "\r" + cursorUp + "\u{1B}[J"
        guard !lines.isEmpty else { return erasing }
        return erasing + "\u{1B}[?7l" + lines.joined(separator: "\n") + "\u{1B}[?7h"
    }

    private func write(_ text: String) { StandardError.write(text) }

    // MARK: - Text

    /// One line of at most `width` columns: the name, and as many facts about the transfer as fit.
    /// Each character counts as one column.
    private static func line(
        _ name: String, _ progress: FileTransfer.Progress, _ width: Int, _ hasColours: Bool
    ) -> String {
        let (facts, isPaused) = facts(progress)
        // `facts` begins with the most important fact; the facts that do not fit are left out.
        let room = width - 1
        var shown: [String] = []
        var used = 0
        for fact in facts {
            guard shown.isEmpty || used + 2 + fact.count <= room - Self.nameColumns else { break }
            shown.append(fact)
            used += 2 + fact.count
        }
        let nameRoom = max(room - used, 1)
        let text = shortened(Diagnostics.oneLine(name), to: nameRoom)
        let rest = shown.joined(separator: "  ")
        let gap = String(repeating: " ", count: max(1, room - text.count - rest.count))
        guard hasColours else { return text + gap + rest }
        return text + gap + (isPaused ? "\u{1B}[33m" : "\u{1B}[36m") + rest + "\u{1B}[0m"
    }

    /// The number of columns that are kept for the name.
    private static let nameColumns = 12

    private static func facts(
        _ progress: FileTransfer.Progress
    ) -> (facts: [String], isPaused: Bool) {
        let share = "\(share(progress.bytes, of: progress.totalBytes, progress.state))%"
        let bytes = "\(size(progress.bytes)) of \(size(progress.totalBytes))"
        let files = progress.totalFiles > 1 ? ["\(progress.files)/\(progress.totalFiles)"] : []
        switch progress.state {
        case .connecting: return (["looking for the peer"], true)
        case .waiting: return (["waiting for the peer", share], true)
        case .verifying: return (["verifying", share] + files, false)
        default:
            var facts = [share]
            if let left = progress.timeLeft { facts.append("\(time(left)) left") }
            if let rate = progress.rate { facts.append("\(size(clampedInteger(rate)))/s") }
            return (facts + [bytes] + files, false)
        }
    }

    private static func totalLine(
        _ ended: Int, _ bytes: UInt64, _ total: (count: Int, bytes: UInt64?), _ width: Int
    ) -> String {
        let amount = total.bytes.map {
            "\(share(bytes, of: $0, .transferring))%  \(size(bytes)) of \(size($0))"
        }
        let text = "total \(amount ?? size(bytes))  \(ended)/\(total.count)"
        return String(text.prefix(width - 1))
    }

    /// The percentage that is done; 100 only when everything is stored.
    static func share(_ bytes: UInt64, of total: UInt64, _ state: FileTransfer.State) -> Int {
        if state == .done { return 100 }
        guard total > 0 else { return 0 }
        return min(99, Int(Double(bytes) / Double(total) * 100))
    }

    /// A number of bytes with a unit, such as `512 B`, `1.5 MiB` or `640 KiB`.
    static func size(_ bytes: UInt64) -> String {
        var value = Double(bytes)
        var unit = 0
        let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
        while value >= 1_000, unit < units.count - 1 {
            value /= 1_024
            unit += 1
        }
        guard unit > 0 else { return "\(bytes) B" }
        // Numbers below 100 have one digit after the decimal point.
        let tenths = Int((value * 10).rounded())
        let text = value < 99.95 ? "\(tenths / 10).\(tenths % 10)" : "\(Int(value.rounded()))"
        return "\(text) \(units[unit])"
    }

    /// The sum of two numbers; a sum that is too large becomes the greatest number.
    private static func sum(_ one: UInt64, _ other: UInt64) -> UInt64 {
        one > .max - other ? .max : one + other
    }

    /// A number as an integer: 0 if it is negative, and `.max` from 2^63 on.
    static func clampedInteger(_ number: Double) -> UInt64 {
        number < 0x1p63 ? UInt64(max(0, number)) : .max
    }

    /// A duration, such as `5:07` (minutes and seconds), `2:05:07` or `3 days`.
    static func time(_ duration: Duration) -> String {
        let seconds = Int(clamping: duration.components.seconds)
        func twoDigits(_ number: Int) -> String { number < 10 ? "0\(number)" : "\(number)" }
        if seconds < 3_600 { return "\(seconds / 60):\(twoDigits(seconds % 60))" }
        if seconds < 86_400 {
            let minutes = twoDigits(seconds / 60 % 60)
            return "\(seconds / 3_600):\(minutes):\(twoDigits(seconds % 60))"
        }
        return "\(seconds / 86_400) days"
    }

    private static func shortened(_ text: String, to room: Int) -> String {
        guard text.count > room else { return text }
        guard room > 3 else { return String(text.prefix(max(0, room))) }
        return text.prefix(room - 3) + "..."
    }
}
