internal import BLESec
internal import Glibc

/// A command-line tool, or a group of its commands.
package struct Program: Sendable {
    /// The words that start the tool; for a group of commands, the last word is the group's.
    let name: String
    /// A summary in a few words, without a full stop.
    let summary: String
    /// The description on the tool's own page, in paragraphs.
    let description: [String]
    /// The commands, in the order of `--help`.
    private let commands: [Command]
    /// Groups of commands, listed after the commands.
    private let groups: [Program]
    /// The command that runs when none is named; nil if a command is required.
    private let defaultCommand: Command?
    /// Words, besides options, with which the default command's arguments may begin.
    private let defaultWords: [String]

    /// The version that `--version` prints.
    package static let version = "0.1.0"

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

    /// Runs the command that the command line names, and ends the process.
    package func main() -> Never {
        // Before any other thread starts, so that only one thread handles signals.
        Signals.start()
        StandardDescriptors.claim()
        Diagnostics.program = name
        let words = Array(CommandLine.arguments.dropFirst())
        // On the loop of the channels, so that their calls do not change threads.
        Task(executorPreference: EventLoop.shared) {
            // Not `exit`: OpenSSL's cleanup must not run while other threads still use OpenSSL.
            _exit(await status(of: words).rawValue)
        }
        while true { pause() }
    }

    private func status(of words: [String]) async -> ExitStatus {
        do throws(ChannelError) {
            try await run(words)
            return .success
        } catch {
            // An error without a reason is not printed: the command's output has reported it.
            if !error.reason.isEmpty { Diagnostics.print(error) }
            return ExitStatus(error)
        }
    }

    private func run(_ words: [String]) async throws(ChannelError) {
        let rest = Array(words.dropFirst())
        if let command = commands.first(where: { $0.word == words.first }) {
            return try await run(command, rest)
        }
        if let group = groups.first(where: { $0.word == words.first }) {
            return try await group.run(rest)
        }
        if let defaultCommand, words.first.map(beginsDefault) ?? true {
            return try await run(defaultCommand, words)
        }
        let commandWords = table.map(\.word)
        guard let word = words.first else {
            throw .usage("a command is missing: \(commandWords.alternatives); see `\(name) --help`")
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
        let arguments = try Arguments(words, of: command)
        if arguments.wantsHelp { return try ManualPage.print(command) }
        if arguments.wantsVersion { return try printVersion() }
        Diagnostics.isJSON = arguments.has(.json)
        try arguments.requireOperands()
        try await command.run(arguments)
    }

    private func printVersion() throws(ChannelError) {
        try StandardOutput.print("\(name) \(Self.version)\n")
    }

    /// The commands and groups, each with its summary.
    var table: [(word: String, summary: String)] {
        commands.map { ($0.word, $0.summary) } + groups.map { ($0.word, $0.summary) }
    }

    private var word: String { String(name.split(separator: " ").last ?? "") }
}
