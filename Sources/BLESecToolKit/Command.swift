package import BLESecChannelCore

/// One of a tool's commands.
package struct Command: Sendable {
    /// What a command fails with.
    package typealias Failure = ChannelError

    /// What it is called, takes and does.
    package var manual: Manual
    /// Does it. An error becomes one line and the exit status of its code.
    package var run: @Sendable @concurrent (Arguments) async throws(Failure) -> Void

    /// Puts the two together.
    package init(
        manual: Manual,
        run: @escaping @Sendable @concurrent (Arguments) async throws(Failure) -> Void
    ) {
        self.manual = manual
        self.run = run
    }
}

/// What a command is called, takes and does: the parser reads it, and `--help` prints it.
package struct Manual: Sendable {
    /// The words that start it: the tool's, and its own where it has one.
    package var name: String
    /// What it does, in a few words without a full stop.
    package var summary: String
    /// What stands behind the options, by name, all of it needed but a last `[NAME]`; an only
    /// `[NAME]...` is any number of them, none included.
    package var operands: [String]
    package var options: [Option]
    /// Paragraphs.
    package var description: [String]
    /// Each a command line and what it is good for.
    package var examples: [(line: String, purpose: String)]
    /// What it may exit with.
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

    /// The command's own word, the last of its name.
    package var word: String { String(name.split(separator: " ").last ?? "") }
}

/// An option of a command.
package struct Option: Sendable, Hashable {
    /// With its dashes.
    package var name: String
    /// What its value is called; nil when it takes none.
    package var value: String?
    package var isRepeatable = false
    /// What it does, in sentences.
    package var help: String

    /// Describes an option.
    package init(name: String, value: String? = nil, isRepeatable: Bool = false, help: String) {
        self.name = name
        self.value = value
        self.isRepeatable = isRepeatable
        self.help = help
    }

    /// For commands whose result or progress a script may want to read.
    package static let json = Option(
        name: "--json",
        help: "Write results and diagnostics as JSON, one object a line, instead of text.")
    package static let help = Option(name: "--help", help: "Print this page and exit.")
    package static let version = Option(name: "--version", help: "Print the version and exit.")

    /// As a synopsis shows it.
    package var usage: String { value.map { "\(name) \($0)" } ?? name }
}
