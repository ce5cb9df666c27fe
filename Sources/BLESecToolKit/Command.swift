package import BLESecChannelCore

/// A command of a tool.
package struct Command: Sendable {
    /// The error type of a command.
    package typealias Failure = ChannelError

    /// The command's name, operands, options and description.
    package var manual: Manual
    /// Runs the command. An error becomes one line on standard error and the exit status of its
    /// code.
    package var run: @Sendable @concurrent (Arguments) async throws(Failure) -> Void

    /// A command with a manual and a function that runs it.
    package init(
        manual: Manual,
        run: @escaping @Sendable @concurrent (Arguments) async throws(Failure) -> Void
    ) {
        self.manual = manual
        self.run = run
    }
}

/// A command's name, operands, options and description: the parser reads it, and `--help` prints
/// it.
package struct Manual: Sendable {
    /// The words that start the command: the tool's name, and the command's own word if it has one.
    package var name: String
    /// A summary in a few words, without a full stop.
    package var summary: String
    /// The names of the operands. All are required, except a last `[NAME]`; a single `[NAME]...`
    /// stands for any number, including none.
    package var operands: [String]
    package var options: [Option]
    /// The description, in paragraphs.
    package var description: [String]
    /// Command lines, each with its purpose.
    package var examples: [(line: String, purpose: String)]
    /// The exit statuses of the command.
    package var statuses: [ExitStatus]

    /// Describes a command.
    package init(
        name: String, summary: String, operands: [String] = [], options: [Option],
        description: [String], examples: [(line: String, purpose: String)], statuses: [ExitStatus]
    ) {
        self.name = name
        self.summary = summary
        self.operands = operands
        self.options = options
        self.description = description
        self.examples = examples
        self.statuses = statuses
    }

    /// The last word of the command's name.
    package var word: String { String(name.split(separator: " ").last ?? "") }
}

/// An option of a command.
package struct Option: Sendable, Hashable {
    /// The name, with its dashes.
    package var name: String
    /// The name of the option's value; nil if the option takes no value.
    package var value: String?
    package var isRepeatable = false
    /// The description, in sentences.
    package var help: String

    /// Describes an option.
    package init(name: String, value: String? = nil, isRepeatable: Bool = false, help: String) {
        self.name = name
        self.value = value
        self.isRepeatable = isRepeatable
        self.help = help
    }

    /// The option `--json`, for commands whose result or progress a script may read.
    package static let json = Option(
        name: "--json",
        help: "Write results and diagnostics as JSON, one object a line, instead of text.")
    package static let help = Option(name: "--help", help: "Print this page and exit.")
    package static let version = Option(name: "--version", help: "Print the version and exit.")

    /// The option in the form that a synopsis shows.
    package var usage: String { value.map { "\(name) \($0)" } ?? name }
}
