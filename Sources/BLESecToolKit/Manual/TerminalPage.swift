internal import Glibc

/// A manual page as text. It is as wide as the terminal, but at least 40 and at most 100 columns.
/// If standard output is not a terminal, the page is 80 columns wide.
struct TerminalPage {
    private(set) var text = ""
    private let width = Self.terminalWidth

    private static let indent = 7
    private static let deepIndent = 14

    init(_ page: ManualPage) {
        heading("NAME")
        paragraph("\(page.name) - \(page.summary)")
        for section in page.sections {
            heading(section.title)
            for block in section.blocks { add(block) }
        }
    }

    private mutating func add(_ block: ManualPage.Block) {
        switch block {
        case .paragraph(let content): paragraph(content)
        case .entry(let term, let description): entry(term, description)
        case .synopsis(let command, let parameters): synopsis(command, parameters.map(\.usage))
        case .option(let option):
            line(option.heading, indent: Self.indent)
            wrap(option.help, indent: Self.deepIndent)
            text += "\n"
        case .example(let command, let purpose):
            line(command, indent: Self.indent)
            wrap(purpose, indent: Self.deepIndent)
        }
    }

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

    private mutating func paragraph(_ content: String) {
        // An empty line separates the paragraph from a block before it. A block ends with a full
        // stop, and a heading does not.
        if text.hasSuffix(".\n") { text += "\n" }
        wrap(content, indent: Self.indent)
    }

    /// A term and its description. The description begins on the term's line if the term fits into
    /// its column, and otherwise on the next line.
    private mutating func entry(_ term: String, _ description: String) {
        let room = Self.deepIndent - Self.indent
        guard term.count < room else {
            line(term, indent: Self.indent)
            return wrap(description, indent: Self.deepIndent)
        }
        // The term replaces the margin of the description's first line.
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

extension ManualPage.Parameter {
    /// The form in a synopsis: brackets enclose what may be missing.
    fileprivate var usage: String {
        switch self {
        case .operand(let name): name
        case .option(let option) where option == .help: option.name
        case .option(let option): "[\(option.usage)]" + (option.isRepeatable ? "..." : "")
        case .options(let option, let needed): "[\(option.usage) \(needed.usage)]"
        }
    }
}
