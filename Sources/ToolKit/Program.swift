internal import BLESec
internal import Glibc

/// A command-line tool: what it is called, and its commands in a table.
package struct Program: Sendable {
    /// The word that starts it.
    package var name: String
    /// What it is, in a few words without a full stop.
    package var summary: String
    /// What its own page says, in paragraphs.
    package var description: [String]
    /// Its commands, in the order in which `--help` lists them.
    package var commands: [Command]
    /// What it does when no command is named; nil when one must be.
    package var defaultCommand: Command?

    /// The version that `--version` prints.
    package static let version = "0.1.0"

    /// Describes a tool.
    package init(
        name: String, summary: String, description: [String], commands: [Command],
        defaultCommand: Command? = nil
    ) {
        self.name = name
        self.summary = summary
        self.description = description
        self.commands = commands
        self.defaultCommand = defaultCommand
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
        if let defaultCommand, words.first.map({ $0.hasPrefix("-") }) ?? true {
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
        let names = commands.map(\.manual.word) + ["--help", "--version"]
        throw .usage(
            "unknown \(what) `\(word)`\(Suggestion.text(for: word, among: names)); "
                + "see `\(name) --help`")
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

    private var commandNames: String {
        let names = commands.map(\.manual.word)
        return names.dropLast().joined(separator: ", ") + " or " + (names.last ?? "")
    }
}
