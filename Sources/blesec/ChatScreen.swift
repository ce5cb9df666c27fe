internal import BLESec
internal import BLESecJSON
internal import BLESecToolKit
internal import Glibc

/// The output of a chat: coloured lines on a terminal, plain lines elsewhere, objects with
/// `--json`.
struct ChatScreen: Sendable {
    private let isOutputTerminal = isatty(STDOUT_FILENO) == 1
    private let isErrorTerminal = isatty(STDERR_FILENO) == 1
    private let hasColours = Environment.allowsColours

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
            line = coloured("<", "1;36") + " " + Self.oneLine(message)
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
        // 16 columns are enough for the indentation and the fate.
        let room = max(8, Environment.width - 16)
        let text = Self.oneLine(message)
        let shown = text.count <= room ? text : text.prefix(room - 3) + "..."
        let line = coloured("  \(fate.rawValue): \(shown)", fate == .unknown ? "1;31" : "2")
        StandardError.write(line + "\n")
    }

    /// `text` between escape sequences that begin and end `style`, if colours are allowed. `style` has
    /// the numbers of an SGR sequence, such as `1;36` for bold and cyan.
    private func coloured(_ text: String, _ style: String) -> String {
        hasColours ? "\u{1B}[\(style)m\(text)\u{1B}[0m" : text
    }

    private static func oneLine(_ message: [UInt8]) -> String {
        Diagnostics.oneLine(String(decoding: message, as: UTF8.self))
    }
}
