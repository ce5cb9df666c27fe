package import BLESecChannelCore

/// A command of a tool, with what `--help` prints about it.
package struct Command: Sendable {
    package typealias Failure = ChannelError
    package typealias Run = @Sendable @concurrent (Arguments) async throws(Failure) -> Void

    /// The words that start the command: the tool's name, then, if there are any, the words of the
    /// command's group and of the command itself.
    let name: String
    /// A summary in a few words, without a full stop.
    let summary: String
    /// The names of the operands. Operands in brackets, as in `[NAME]`, may be missing. A last
    /// `[NAME]...` may be given any number of times.
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
    /// The letter of the short form, without its dash; nil if there is no short form.
    let short: Character?
    /// The name of the option's value; nil if the option takes no value.
    let valueName: String?
    /// For an optional value, the beginnings by which the next word is recognized as the value. The
    /// word `-`, and any value after `=`, is always recognized. Nil if the value is required, or if
    /// the option takes no value.
    let valueBeginnings: [String]?
    /// Whether the option may be given without its value.
    var isValueOptional: Bool { valueBeginnings != nil }
    let isRepeatable: Bool
    /// The name of another option that this option needs; a synopsis shows both together.
    let neededOption: String?
    /// What a shell offers for the value.
    let completion: Completion
    /// The description, in sentences.
    let help: String

    package init(
        name: String, short: Character? = nil, value: String? = nil,
        ifNextWordBeginsWith valueBeginnings: [String]? = nil, isRepeatable: Bool = false,
        needs neededOption: String? = nil, completion: Completion? = nil, help: String
    ) {
        self.name = name
        self.short = short
        valueName = value
        self.completion = completion ?? value.map(Completion.init(named:)) ?? .nothing
        self.valueBeginnings = valueBeginnings
        self.isRepeatable = isRepeatable
        self.neededOption = neededOption
        self.help = help
    }

    /// The option `--json`, for commands whose result or progress a script may read.
    package static let json = Option(
        name: "--json",
        help: "Write results and diagnostics as JSON, one object a line, instead of text. If the "
            + "reader of standard error falls far behind, objects are left out; `left-out` then "
            + "says how many.")
    /// The option `--verbose`, for commands that report what they do on standard error.
    package static let verbose = Option(
        name: "--verbose", short: "v", isRepeatable: true,
        help: "Report more on standard error: each attempt to reach a peer, and each refused peer. "
            + "If given twice, also report each change of a state, and begin each line with the time."
    )
    /// The option `--quiet`, for commands that report what they do on standard error.
    package static let quiet = Option(
        name: "--quiet", short: "q", help: "Report only errors on standard error.")
    static let help = Option(name: "--help", short: "h", help: "Print this page and exit.")
    static let version = Option(
        name: "--version", short: "V", help: "Print the version and exit.")

    /// The option in the form that a page's list shows.
    var heading: String { short.map { "-\($0), \(usage)" } ?? usage }

    /// The option in the form that a synopsis shows.
    package var usage: String {
        guard let valueName else { return name }
        return isValueOptional ? "\(name) [\(valueName)]" : "\(name) \(valueName)"
    }

    /// Whether `word` is the option's name, or its letter after a dash.
    func isNamed(_ word: String) -> Bool { word == name || short.map { "-\($0)" } == word }

    /// Whether `word`, which follows the option, is the option's value.
    func takes(_ word: String) -> Bool {
        guard let valueBeginnings else { return !word.hasPrefix("--") }
        return word == "-" || valueBeginnings.contains(where: word.hasPrefix)
    }
}
