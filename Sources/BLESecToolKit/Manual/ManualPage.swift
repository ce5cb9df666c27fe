internal import BLESecChannelCore
internal import Glibc

/// The content of a manual page. A `TerminalPage` shows it for `--help`, and an `MdocPage` is its
/// source for `man`.
package struct ManualPage: Sendable {
    /// A heading, and the blocks below it.
    package struct Section: Sendable {
        let title: String
        var blocks: [Block]

        package init(_ title: String, _ blocks: [Block]) {
            self.title = title
            self.blocks = blocks
        }
    }

    /// A part of a section. In texts, backquotes enclose what a reader types or sees.
    package enum Block: Sendable {
        case paragraph(String)
        /// A term with its description.
        case entry(String, String)
        /// The form of a command line: the command's words, and its operands and options.
        case synopsis(String, [Parameter])
        case option(Option)
        /// A command line, and its purpose.
        case example(String, String)
    }

    /// An operand or an option in a synopsis.
    package enum Parameter: Sendable {
        case operand(String)
        case option(Option)
        /// An option, and the option that it needs.
        case options(Option, Option)
    }

    /// The words that start the command, or the name of a guide.
    let name: String
    /// The number of the manual's section, which is called a chapter here because a page has
    /// sections too: 1 for commands, 7 for concepts.
    let chapter: Int
    let summary: String
    var sections: [Section]
    /// The other pages to read, by name and chapter.
    var references: [(name: String, chapter: Int)] = []

    /// The name in the manual, such as `blesec-ca-init`.
    var title: String { name.split(separator: " ").joined(separator: "-") }

    /// A page about concepts.
    package init(guide name: String, summary: String, sections: [Section]) {
        self.name = name
        chapter = 7
        self.summary = summary
        self.sections = sections
    }

    /// The page of a command.
    init(_ command: Command) {
        let parameters =
            command.operands.map(Parameter.operand) + Self.parameters(command.options)
        name = command.name
        chapter = 1
        summary = command.summary
        sections = [Section("SYNOPSIS", [.synopsis(command.name, parameters)])]
        add(command.description, command.options, command.statuses)
        sections.append(Section("EXAMPLES", command.examples.map { .example($0.key, $0.value) }))
    }

    /// The page of a tool that has commands, or of a group of commands.
    init(_ program: Program) {
        name = program.name
        chapter = 1
        summary = program.summary
        let forms = [
            [Parameter.operand("COMMAND"), .operand("[ARGUMENT]...")],
            [.operand("COMMAND"), .option(.help)],
        ]
        sections = [Section("SYNOPSIS", forms.map { .synopsis(program.name, $0) })]
        add(program.description, [], program.statuses)
        let commands = program.commandSummaries.map { word, summary in
            Block.entry(word, summary.prefix(1).uppercased() + summary.dropFirst() + ".")
        }
        sections.insert(Section("COMMANDS", commands), at: 2)
    }

    /// The options of a synopsis. If one option needs another, the needed option is shown only beside
    /// the option that needs it.
    private static func parameters(_ options: [Option]) -> [Parameter] {
        let neededNames = options.compactMap(\.neededOption)
        return options.filter { !neededNames.contains($0.name) }.map { option in
            guard let needed = options.first(where: { $0.name == option.neededOption }) else {
                return .option(option)
            }
            return .options(option, needed)
        }
    }

    private mutating func add(
        _ description: [String], _ options: [Option], _ statuses: [ExitStatus]
    ) {
        sections.append(Section("DESCRIPTION", description.map { .paragraph($0) }))
        let common = [Option.help, .version]
        sections.append(Section("OPTIONS", (options + common).map { .option($0) }))
        sections.append(
            Section("EXIT STATUS", statuses.map { .entry("\($0.rawValue)", $0.meaning) }))
    }

    /// Prints the page for `--help`.
    func print() throws(ChannelError) {
        try StandardOutput.print(TerminalPage(self).text)
    }
}
