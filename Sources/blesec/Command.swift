internal import ChannelCore

/// One of the tool's commands.
struct Command: Sendable {
    /// What it is called, takes and does.
    var manual: Manual
    /// Does it. An error becomes one line and the exit status of its code.
    var run: @Sendable @concurrent (Arguments) async throws(ChannelError) -> Void
}

/// What a command is called, takes and does: the parser reads it, and `--help` prints it.
struct Manual: Sendable {
    /// The word after `blesec`.
    var name: String
    /// What it does, in a few words without a full stop.
    var summary: String
    /// What stands behind the options, by name, all of it needed.
    var operands: [String]
    var options: [Option]
    /// Paragraphs.
    var description: [String]
    /// Each a command line and what it is good for.
    var examples: [(line: String, purpose: String)]
    /// What it may exit with.
    var statuses: [ExitStatus]
}

/// An option of a command.
struct Option: Sendable, Hashable {
    /// With its dashes.
    var name: String
    /// What its value is called; nil when it takes none.
    var value: String?
    var isRepeatable = false
    /// What it does, in sentences.
    var help: String

    /// For commands whose result or progress a script may want to read.
    static let json = Option(
        name: "--json",
        help: "Write results and diagnostics as JSON, one object a line, instead of text.")
    static let help = Option(name: "--help", help: "Print this page and exit.")
    static let version = Option(name: "--version", help: "Print the version and exit.")

    /// As a synopsis shows it.
    var usage: String { value.map { "\(name) \($0)" } ?? name }
}
