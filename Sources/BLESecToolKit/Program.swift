internal import BLESec
internal import Glibc

/// A command-line tool: what it is called, and its commands in a table.
package struct Program: Sendable {
    /// The words that start it: the last is a group's own.
    package var name: String
    /// What it is, in a few words without a full stop.
    package var summary: String
    /// What its own page says, in paragraphs.
    package var description: [String]
    /// Its commands, in the order in which `--help` lists them.
    package var commands: [Command]
    /// Words that have commands of their own behind them, listed after the others.
    package var groups: [Program]
    /// What it does when no command is named; nil when one must be.
    package var defaultCommand: Command?
    /// Words other than options that may begin its command line.
    package var defaultWords: [String]

    /// The version that `--version` prints.
    package static let version = "0.1.0"

    /// Describes a tool.
    package init(
        name: String, summary: String, description: [String], commands: [Command],
        groups: [Program] = [], defaultCommand: Command? = nil, defaultWords: [String] = []
    ) {
        self.name = name
        self.summary = summary
        self.description = description
        self.commands = commands
        self.groups = groups
        self.defaultCommand = defaultCommand
        self.defaultWords = defaultWords
    }

    /// Does what the words of the command line say, and ends the process.
    package func main() -> Never {
        // Before there is any other thread, so that all of them leave signals to one.
        Signals.start()
        StandardDescriptors.claim()
        Diagnostics.program = name
        let words = Array(CommandLine.arguments.dropFirst())
        // On the loop that channels live on, so that no call of theirs changes threads.
        Task(executorPreference: EventLoop.shared) {
            // Not `exit`: OpenSSL's clean-up must not meet threads that still work.
            _exit(await status(of: words).rawValue)
        }
        while true { pause() }
    }

    private func status(of words: [String]) async -> ExitStatus {
        do throws(ChannelError) {
            try await run(words)
            return .success
        } catch {
            // What is wrong may stand in the command's own output; the status says it as well.
            if !error.reason.isEmpty { Diagnostics.print(error) }
            return ExitStatus(error)
        }
    }

    private func run(_ words: [String]) async throws(ChannelError) {
        if let command = commands.first(where: { $0.manual.word == words.first }) {
            return try await run(command, Array(words.dropFirst()))
        }
        if let group = groups.first(where: { $0.word == words.first }) {
            return try await group.run(Array(words.dropFirst()))
        }
        if let defaultCommand, words.first.map(beginsDefault) ?? true {
            return try await run(defaultCommand, words)
        }
        guard let word = words.first else {
            throw .usage("a command is missing: \(commandNames); see `\(name) --help`")
        }
        switch word {
        case "--help", "-h", "help": return try ManualPage.print(self)
        case "--version": return try printVersion()
        default: break
        }
        let what = word.hasPrefix("-") ? "option" : "command"
        let names = commandWords + defaultWords + ["--help", "--version"]
        throw .usage(
            "unknown \(what) `\(word)`\(Suggestion.text(for: word, among: names)); "
                + "see `\(name) --help`")
    }

    private func beginsDefault(_ word: String) -> Bool {
        word.hasPrefix("-") || defaultWords.contains(word)
    }

    private func run(_ command: Command, _ words: [String]) async throws(ChannelError) {
        let arguments = try Arguments(words, of: command.manual)
        if arguments.wantsHelp { return try ManualPage(command.manual).print() }
        if arguments.wantsVersion { return try printVersion() }
        Diagnostics.isJSON = arguments.has(.json)
        try arguments.requireOperands()
        try await command.run(arguments)
    }

    private func printVersion() throws(ChannelError) {
        try StandardOutput.print("\(name) \(Self.version)\n")
    }

    /// Its commands and groups, each with what it does.
    var table: [(word: String, summary: String)] {
        commands.map { ($0.manual.word, $0.manual.summary) } + groups.map { ($0.word, $0.summary) }
    }

    private var word: String { String(name.split(separator: " ").last ?? "") }

    private var commandWords: [String] { table.map(\.word) }

    private var commandNames: String {
        let names = commandWords
        return names.dropLast().joined(separator: ", ") + " or " + (names.last ?? "")
    }
}
