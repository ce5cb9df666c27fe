package import BLESecChannelCore
internal import Glibc

/// A manual page as text. It is as wide as the terminal, from 40 to 100 columns, or 80 columns wide
/// without a terminal.
package struct ManualPage {
    private var text = ""
    private let width: Int

    private static let indent = 7
    private static let deepIndent = 14

    private init(width: Int) { self.width = width }

    /// The page of a command.
    package init(_ manual: Manual) {
        self.init(width: Self.terminalWidth)
        heading("NAME")
        paragraph("\(manual.name) - \(manual.summary)")
        heading("SYNOPSIS")
        let options = manual.options.map { "[\($0.usage)]" + ($0.isRepeatable ? "..." : "") }
        synopsis(manual.name, manual.operands + options)
        heading("DESCRIPTION")
        for item in manual.description { paragraph(item) }
        heading("OPTIONS")
        for option in manual.options + [.help, .version] { entry(option) }
        heading("EXIT STATUS")
        for status in manual.statuses { entry("\(status.rawValue)", status.meaning) }
        heading("EXAMPLES")
        for example in manual.examples {
            line(example.line, indent: Self.indent)
            wrap(example.purpose, indent: Self.deepIndent)
        }
    }

    /// Prints the page of a tool that has commands.
    package static func print(_ program: Program) throws(ChannelError) {
        var page = ManualPage(width: terminalWidth)
        page.heading("NAME")
        page.paragraph("\(program.name) - \(program.summary)")
        page.heading("SYNOPSIS")
        page.line("\(program.name) COMMAND [ARGUMENT]...", indent: indent)
        page.line("\(program.name) COMMAND --help", indent: indent)
        page.heading("DESCRIPTION")
        for item in program.description { page.paragraph(item) }
        page.heading("COMMANDS")
        for (word, summary) in program.table {
            page.entry(word, summary.prefix(1).uppercased() + summary.dropFirst() + ".")
        }
        page.heading("OPTIONS")
        for option in [Option.help, .version] { page.entry(option) }
        page.heading("EXIT STATUS")
        for status in ExitStatus.allCases { page.entry("\(status.rawValue)", status.meaning) }
        try page.print()
    }

    /// Prints the page to standard output.
    package func print() throws(ChannelError) { try StandardOutput.print(text) }

    private static var terminalWidth: Int {
        var size = winsize()
        guard isatty(STDOUT_FILENO) == 1,
            unsafe ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0
        else { return 80 }
        // Lines beyond 100 columns are hard to read, and below 40 nothing fits.
        return min(max(Int(size.ws_col), 40), 100)
    }

    private mutating func heading(_ title: String) {
        if !text.isEmpty, !text.hasSuffix("\n\n") { text += "\n" }
        text += title + "\n"
    }

    private mutating func line(_ line: String, indent: Int) {
        text += String(repeating: " ", count: indent) + line + "\n"
    }

    private mutating func paragraph(_ words: String) {
        if text.hasSuffix(".\n") { text += "\n" }
        wrap(words, indent: Self.indent)
    }

    /// An option, with its description on the lines below.
    private mutating func entry(_ option: Option) {
        line(option.usage, indent: Self.indent)
        wrap(option.help, indent: Self.deepIndent)
        text += "\n"
    }

    /// A term and its description, on the same line or, after a long term, on the lines below.
    private mutating func entry(_ term: String, _ words: String) {
        let room = Self.deepIndent - Self.indent
        guard term.count < room else {
            line(term, indent: Self.indent)
            return wrap(words, indent: Self.deepIndent)
        }
        let start = text.endIndex
        wrap(words, indent: Self.deepIndent)
        let margin = String(repeating: " ", count: Self.indent)
        let beside = margin + term + String(repeating: " ", count: room - term.count)
        let first = text.index(start, offsetBy: Self.deepIndent)
        text.replaceSubrange(start..<first, with: beside)
    }

    /// The command and its arguments, wrapped only between arguments.
    private mutating func synopsis(_ command: String, _ items: [String]) {
        var current = command
        let indent = String(repeating: " ", count: command.count)
        for item in items {
            if Self.indent + current.count + 1 + item.count > width {
                line(current, indent: Self.indent)
                current = indent
            }
            current += " " + item
        }
        line(current, indent: Self.indent)
    }

    private mutating func wrap(_ words: String, indent: Int) {
        var current = ""
        for word in words.split(separator: " ") {
            if !current.isEmpty, indent + current.count + 1 + word.count > width {
                line(current, indent: indent)
                current = ""
            }
            current += current.isEmpty ? String(word) : " " + word
        }
        if !current.isEmpty { line(current, indent: indent) }
    }
}
