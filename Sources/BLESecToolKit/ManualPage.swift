internal import BLESecChannelCore
internal import Glibc

/// A manual page as text. It is as wide as the terminal, from 40 to 100 columns, or 80 columns wide
/// without a terminal.
struct ManualPage {
    private var text = ""
    private let width = Self.terminalWidth

    private static let indent = 7
    private static let deepIndent = 14

    /// Prints the page of a command.
    static func print(_ command: Command) throws(ChannelError) {
        var page = ManualPage()
        page.begin(command.name, command.summary)
        let options = command.options.map { "[\($0.usage)]" + ($0.isRepeatable ? "..." : "") }
        page.synopsis(command.name, command.operands + options)
        page.description(command.description)
        page.options(command.options)
        page.statuses(command.statuses)
        page.heading("EXAMPLES")
        for (command, purpose) in command.examples {
            page.line(command, indent: indent)
            page.wrap(purpose, indent: deepIndent)
        }
        try StandardOutput.print(page.text)
    }

    /// Prints the page of a tool that has commands.
    static func print(_ program: Program) throws(ChannelError) {
        var page = ManualPage()
        page.begin(program.name, program.summary)
        page.line("\(program.name) COMMAND [ARGUMENT]...", indent: indent)
        page.line("\(program.name) COMMAND --help", indent: indent)
        page.description(program.description)
        page.heading("COMMANDS")
        for (word, summary) in program.table {
            page.entry(word, summary.prefix(1).uppercased() + summary.dropFirst() + ".")
        }
        page.options([])
        page.statuses(ExitStatus.allCases)
        try StandardOutput.print(page.text)
    }

    private static var terminalWidth: Int {
        var size = winsize()
        guard isatty(STDOUT_FILENO) == 1,
            unsafe ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0
        else { return 80 }
        // Lines beyond 100 columns are hard to read, and below 40 nothing fits.
        return min(max(Int(size.ws_col), 40), 100)
    }

    /// The name and the summary, and the heading of the synopsis.
    private mutating func begin(_ name: String, _ summary: String) {
        heading("NAME")
        paragraph("\(name) - \(summary)")
        heading("SYNOPSIS")
    }

    private mutating func description(_ paragraphs: [String]) {
        heading("DESCRIPTION")
        for content in paragraphs { paragraph(content) }
    }

    /// Each option, with its description on the lines below.
    private mutating func options(_ options: [Option]) {
        heading("OPTIONS")
        for option in options + [.help, .version] {
            line(option.usage, indent: Self.indent)
            wrap(option.help, indent: Self.deepIndent)
            text += "\n"
        }
    }

    private mutating func statuses(_ statuses: [ExitStatus]) {
        heading("EXIT STATUS")
        for status in statuses { entry("\(status.rawValue)", status.meaning) }
    }

    private mutating func heading(_ title: String) {
        if !text.isEmpty, !text.hasSuffix("\n\n") { text += "\n" }
        text += title + "\n"
    }

    private mutating func line(_ line: String, indent: Int) {
        text += String(repeating: " ", count: indent) + line + "\n"
    }

    private mutating func paragraph(_ content: String) {
        if text.hasSuffix(".\n") { text += "\n" }
        wrap(content, indent: Self.indent)
    }

    /// A term and its description, on the same line or, after a long term, on the lines below.
    private mutating func entry(_ term: String, _ description: String) {
        let room = Self.deepIndent - Self.indent
        guard term.count < room else {
            line(term, indent: Self.indent)
            return wrap(description, indent: Self.deepIndent)
        }
        let start = text.endIndex
        wrap(description, indent: Self.deepIndent)
        let margin = String(repeating: " ", count: Self.indent)
        let firstColumn = margin + term + String(repeating: " ", count: room - term.count)
        let first = text.index(start, offsetBy: Self.deepIndent)
        text.replaceSubrange(start..<first, with: firstColumn)
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

    private mutating func wrap(_ content: String, indent: Int) {
        var current = ""
        for word in content.split(separator: " ") {
            if !current.isEmpty, indent + current.count + 1 + word.count > width {
                line(current, indent: indent)
                current = ""
            }
            current += current.isEmpty ? String(word) : " " + word
        }
        if !current.isEmpty { line(current, indent: indent) }
    }
}
