package import BLESecChannelCore

/// A command of a tool, with what `--help` prints about it.
package struct Command: Sendable {
    package typealias Failure = ChannelError
    package typealias Run = @Sendable @concurrent (Arguments) async throws(Failure) -> Void

    /// The words that start the command: the tool's name, and the command's own word if it has one.
    let name: String
    /// A summary in a few words, without a full stop.
    let summary: String
    /// The names of the operands. All are required, except a last `[NAME]`; a last `[NAME]...`
    /// stands for any number, including none.
    let operands: [String]
    let options: [Option]
    /// The description, in paragraphs.
    let description: [String]
    /// Command lines, each with its purpose.
    let examples: KeyValuePairs<String, String>
    /// The exit statuses that the manual page lists.
    let statuses: [ExitStatus]
    /// Runs the command. An error becomes one line on standard error and the exit status of its
    /// code.
    let run: Run

    package init(
        name: String, summary: String, operands: [String] = [], options: [Option],
        description: [String], examples: KeyValuePairs<String, String>, statuses: [ExitStatus],
        run: @escaping Run
    ) {
        self.name = name
        self.summary = summary
        self.operands = operands
        self.options = options
        self.description = description
        self.examples = examples
        self.statuses = statuses
        self.run = run
    }
}

/// An option of a command.
package struct Option: Sendable, Hashable {
    /// The name, with its dashes.
    package let name: String
    /// The name of the option's value; nil if the option takes no value.
    let valueName: String?
    /// With what a value begins that may also be missing; nil if the value is required. Any value is
    /// taken behind `=`, and the word `-`.
    let valueBeginnings: [String]?
    let isRepeatable: Bool
    /// The description, in sentences.
    let help: String

    package init(
        name: String, value: String? = nil, orNothingUnless valueBeginnings: [String]? = nil,
        isRepeatable: Bool = false, help: String
    ) {
        self.name = name
        valueName = value
        self.valueBeginnings = valueBeginnings
        self.isRepeatable = isRepeatable
        self.help = help
    }

    /// The option `--json`, for commands whose result or progress a script may read.
    package static let json = Option(
        name: "--json",
        help: "Write results and diagnostics as JSON, one object a line, instead of text.")
    static let help = Option(name: "--help", help: "Print this page and exit.")
    static let version = Option(name: "--version", help: "Print the version and exit.")

    /// The option in the form that a synopsis shows.
    package var usage: String {
        guard let valueName else { return name }
        return valueBeginnings == nil ? "\(name) \(valueName)" : "\(name) [\(valueName)]"
    }

    /// Whether the next word is the option's value.
    func takes(_ word: String) -> Bool {
        guard let valueBeginnings else { return !word.hasPrefix("--") }
        return word == "-" || valueBeginnings.contains(where: word.hasPrefix)
    }
}
