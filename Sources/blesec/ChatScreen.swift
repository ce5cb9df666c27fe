internal import BLESec
internal import BLESecJSON
internal import BLESecToolKit
internal import Glibc

/// The output of a chat: coloured lines on a terminal, plain lines elsewhere, objects with
/// `--json`.
struct ChatScreen: Sendable {
    private let isOutputTerminal = isatty(STDOUT_FILENO) == 1
    private let isErrorTerminal = isatty(STDERR_FILENO) == 1

    /// Shows a message of the peer on one line, with control characters replaced, or as JSON.
    func show(_ message: [UInt8]) async throws(ChannelError) {
        let line: String
        if Diagnostics.isJSON {
            // JSON escapes the characters that control a terminal.
            line = JSONWriter.line(
                .object([
                    ("event", .string("message")),
                    ("text", .string(String(decoding: message, as: UTF8.self))),
                ]))
        } else if isOutputTerminal {
            line = "\u{1B}[1;36m<\u{1B}[0m \(Self.oneLine(message))"
        } else {
            line = Self.oneLine(message)
        }
        try await StandardOutput.send(Array((line + "\n").utf8))
    }

    /// Shows the fate of a line. `fate` is nil when the line was just sent.
    func showFate(_ fate: Delivery?, _ number: Int, _ message: [UInt8]) {
        guard isErrorTerminal, !Diagnostics.isJSON else {
            let word = fate?.rawValue ?? "sent"
            return Diagnostics.note("\(word) \(number)", word, [("number", .number(number))])
        }
        // The terminal already shows the typed line.
        guard let fate, Diagnostics.verbosity >= 0 else { return }
        let mark = (fate == .unknown ? "\u{1B}[1;31m  " : "\u{1B}[2m  ") + fate.rawValue
        let room = max(8, Environment.width - 16)
        let text = Self.oneLine(message)
        let shown = text.count <= room ? text : text.prefix(room - 3) + "..."
        try? StandardOutput.write(Array("\(mark): \(shown)\u{1B}[0m\n".utf8), to: STDERR_FILENO)
    }

    private static func oneLine(_ message: [UInt8]) -> String {
        Diagnostics.oneLine(String(decoding: message, as: UTF8.self))
    }
}
