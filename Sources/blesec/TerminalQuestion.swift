internal import BLESec
internal import BLESecToolKit
internal import Glibc

/// A question at the terminal that is answered with yes or no.
enum TerminalQuestion {
    /// Shows the lines and the question, and returns whether the answer is yes. The end of the
    /// input counts as no; after any other answer, the question is repeated.
    ///
    /// - Parameter remedy: what to do if there is no terminal, for the error's text.
    /// - Throws: `noSuchFile` when there is no terminal; `inputOutput` when a write to it fails.
    static func ask(
        _ question: String, after lines: [String], remedy: String
    ) throws(ChannelError) -> Bool {
        // The answer is not read from standard input: what is piped into the command is no answer.
        let terminal = unsafe open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)
        guard terminal >= 0 else {
            throw ChannelError(.noSuchFile, "there is no terminal to ask: \(remedy)")
        }
        defer { close(terminal) }
        for line in lines { try write(Diagnostics.oneLine(line) + "\n", terminal) }
        var isFirst = true
        while true {
            try show(question, answers: "y/n", on: terminal, discardsInput: isFirst)
            isFirst = false
            guard let answer = readLine(terminal) else { return false }
            switch answer.lowercased() {
            case "y", "yes": return true
            case "n", "no": return false
            default: continue
            }
        }
    }

    /// Writes a question and the possible answers. With `discardsInput`, what was typed before the
    /// question is no answer.
    static func show(
        _ question: String, answers: String, on terminal: Int32, discardsInput: Bool
    ) throws(ChannelError) {
        try write(Diagnostics.oneLine(question), terminal)
        // The input is discarded only after the write, since the write waits while the user has
        // stopped the terminal's output (Ctrl-S). What is typed once the possible answers are shown
        // is kept. A background process must not discard what is typed for the foreground.
        if discardsInput, tcgetpgrp(terminal) == getpgrp() { tcflush(terminal, TCIFLUSH) }
        try write(" [\(answers)] ", terminal)
    }

    private static func write(_ text: String, _ terminal: Int32) throws(ChannelError) {
        try StandardOutput.write(Array(text.utf8), to: terminal)
    }

    /// The next line; nil at the end.
    private static func readLine(_ terminal: Int32) -> String? {
        var line: [UInt8] = []
        while true {
            var byte: UInt8 = 0
            let count = unsafe read(terminal, &byte, 1)
            if count < 0, errno == EINTR { continue }
            guard count == 1 else { return nil }
            if byte == UInt8(ascii: "\n") { return String(decoding: line, as: UTF8.self) }
            line.append(byte)
        }
    }
}
